"""Every dead letter gets a record in the store, whoever brought it there.

A job that a worker buries is recorded after the dead-letter queue has confirmed it and before it is
acknowledged. While the store is away nothing waits for it: the job lies in the dead-letter queue
with its whole story, and its record follows. Letters that the broker brought there itself, for they
expired or killed their workers, and those that were missed, are found by comparing how many letters
a queue holds with how many the store knows. Where the two differ the letters are read.
"""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, cast

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.deadletters import DeadLetterRecord
from namedqueue.triage import group, letter_key
from namedqueue_sidecar.app.calls import Caller
from namedqueue_sidecar.brokers.port import Broker, Dead, Publication, QueueKey, Settled, Verdict
from namedqueue_sidecar.ending import end
from namedqueue_sidecar.store.away import Away
from namedqueue_sidecar.store.port import Kept, Letters, Met, Store
from namedqueue_sidecar.triaging.writing import Writing

_log = logging.getLogger(__name__)

COMPARE_SECONDS: Final = 60.0
_READ_AT_ONCE: Final = 200


class Records:
    """Keeps the store's records of a plane's dead letters."""

    def __init__(self, broker: Broker, store: Store, queues: Mapping[QueueKey, NamedQueue]) -> None:
        """Follow `queues`, a mapping that the plane changes."""
        self._broker = broker
        self._store = store
        self._queues = queues
        self._buried = Writing(self._write)
        self._compared: dict[QueueKey, tuple[int, int]] = {}
        self._comparing: asyncio.Task[None] | None = None

    def of(self, key: QueueKey) -> Letters:
        """Return the records of a queue."""
        return self._store.letters(key)

    async def met(self, key: QueueKey, job_id: str) -> Kept | None:
        """Return the newest record of a job, which is made now if only the broker knows it."""
        kept = await self.of(key).find(job_id)
        if kept is not None:
            return kept
        letter = await self._broker.dead_letters(key).find(job_id)
        if letter is None:
            return None
        await self._write([Dead(key, letter)])
        return await self.of(key).find(job_id)

    @property
    def recording(self) -> Broker:
        """The broker, for workers: what they bury through it gets its record."""
        return cast("Broker", _Recording(self._broker, self))

    def marking(self, key: QueueKey, redrive: str) -> Writing[DeadLetterRecord]:
        """Return what notes that letters were sent back."""

        async def mark(letters: Sequence[DeadLetterRecord]) -> None:
            await self.of(key).replayed([letter_key(each) for each in letters], redrive)

        return Writing(mark)

    def keep_watch(self) -> None:
        """Look for letters without a record from now on, every minute or so."""
        if self._comparing is None:
            self._comparing = asyncio.get_running_loop().create_task(self._compare_for_ever())

    async def close(self) -> None:
        """Write what is on its way, and look no more."""
        if self._comparing is not None:
            await end(self._comparing)
        await self._buried.flush()

    def buried(self, letters: Sequence[Dead], settled: partial[None]) -> None:
        """Keep records of jobs that were just buried, then go on."""
        self._buried.add(letters, settled)

    async def compare(self, key: QueueKey) -> None:
        """Read a queue's letters if there are others than the store knows."""
        depth = await self._broker.depth(key)
        if depth is None:
            return
        found = (depth.dead, await self.of(key).count_open())
        if found[0] == found[1] or self._compared.get(key) == found:
            return
        batch: list[Dead] = []
        async with aclosing(self._broker.dead_letters(key).read()) as reading:
            async for record in reading:
                batch.append(Dead(key, record))
                if len(batch) == _READ_AT_ONCE:
                    await self._write(batch)
                    batch = []
        await self._write(batch)
        self._compared[key] = (depth.dead, await self.of(key).count_open())

    async def _compare_for_ever(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            for key in [key for key, each in self._queues.items() if each.spec.type == "durable"]:
                try:
                    await self.compare(key)
                except (Away, OSError, LookupError, RuntimeError, TimeoutError) as trouble:
                    _log.debug("letters of %s are not compared: %s", key, trouble)

    async def _write(self, letters: Sequence[Dead]) -> None:
        for key in {letter.queue for letter in letters}:
            met = self._met(key, (each.record for each in letters if each.queue == key))
            if met:
                await self.of(key).write(met)

    def _met(self, key: QueueKey, records: Iterable[DeadLetterRecord]) -> list[Met]:
        queue = self._queues.get(key)
        if queue is None:
            return []
        kept, worker = queue.spec.dead_letter.retention.milliseconds, queue.spec.worker
        caller = None if worker is None else Caller(worker, queue.spec.retry)
        return [
            Met(each, group(each, caller.path(each.job) if caller else None), kept)
            for each in records
        ]


class _Recording:
    """A broker that holds a burial's verdict back until its record was written."""

    def __init__(self, broker: Broker, records: Records) -> None:
        self._broker = broker
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        """Send a batch."""
        if any(isinstance(each, Dead) for each in batch):
            settled = partial(self._published, batch, settled)
        self._broker.publish(batch, settled)

    def _published(
        self, batch: Sequence[Publication], settled: Settled, verdicts: Sequence[Verdict]
    ) -> None:
        buried = [
            each
            for each, verdict in zip(batch, verdicts, strict=True)
            if isinstance(each, Dead) and verdict is Verdict.CONFIRMED
        ]
        if buried:
            self._records.buried(buried, partial(settled, verdicts))
        else:
            settled(verdicts)
