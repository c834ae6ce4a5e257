"""The builtin broker: the port, kept by this process.

A batch that is published becomes one change: all of its rows are committed together. Verdicts that
need no storage (no such queue, no room) are known at once but are told with the rest, after the
commit, so that a batch is settled once.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

from namedqueue import topics
from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar.brokers.builtin.consumers import Consumer
from namedqueue_sidecar.brokers.builtin.dead_letters import BuiltinDeadLetters
from namedqueue_sidecar.brokers.builtin.journal import Journal
from namedqueue_sidecar.brokers.builtin.queues import CallLater, Queue, Surroundings, settings_of
from namedqueue_sidecar.brokers.builtin.sqlite import SqliteStorage
from namedqueue_sidecar.brokers.builtin.storage import (
    Batch,
    MemoryStorage,
    Message,
    Placed,
    QueueRow,
)
from namedqueue_sidecar.brokers.port import (
    Dead,
    DeadLetters,
    Depth,
    Main,
    Publication,
    QueueKey,
    Receiver,
    Settled,
    Subscription,
    Topic,
    Verdict,
)

PATIENCE: Final = 30.0
"""Seconds after which a publication is UNKNOWN, for a disk that neither writes nor fails."""

_Row: TypeAlias = tuple[Queue, Placed, Message, bool]


class BuiltinBroker:
    """Keeps jobs in memory, or in a folder that one process at a time may use."""

    def __init__(
        self,
        data: Path | None = None,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        call_later: CallLater | None = None,
    ) -> None:
        """Take time from elsewhere with `now_ms` and `call_later`; tests do."""
        self._storage = MemoryStorage() if data is None else SqliteStorage(data)
        self._now_ms = now_ms
        self._call_later = call_later
        self._surroundings: Surroundings | None = None
        self._queues: dict[QueueKey, Queue] = {}
        self._consumers: dict[QueueKey, list[Consumer]] = {}
        self._unsettled: deque[_Publishing] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._queue_ids = count(1)
        self._declaring = asyncio.Lock()

    async def open(self) -> None:
        """Take the folder and find in it what the last process left; StorageError if it cannot."""
        loop = asyncio.get_running_loop()
        contents = await self._storage.open()
        jobs = list(contents.jobs)
        self._queue_ids = count(1 + max((row.id for row in contents.queues), default=0))
        self._surroundings = Surroundings(
            loop=loop,
            storage=self._storage,
            journal=Journal(self._storage, loop),
            now_ms=self._now_ms,
            call_later=self._call_later or loop.call_later,
            seqs=count(1 + (jobs[-1].seq if jobs else 0)),
            tags=count(1),
        )
        by_id = {row.id: self._add(row) for row in contents.queues}
        for placed in jobs:
            by_id[placed.queue].arrived(placed, waited=True)

    async def close(self) -> None:
        """Write what is on its way and let the folder go."""
        if self._surroundings is None:
            return
        journal = self._surroundings.journal
        self._surroundings = None
        for queue in self._queues.values():
            queue.close()
        await journal.drain()
        if self._watch is not None:
            self._watch.cancel()
        self._queues.clear()
        self._consumers.clear()
        await self._storage.close()

    async def declare(self, queue: NamedQueue) -> None:
        """Make the queue exist as specified; a changed spec holds at once."""
        if queue.spec.type != "durable":
            raise ValueError(
                f"{queue.metadata.name} is not a durable queue; "
                "the builtin broker has no others yet"
            )
        key = QueueKey(queue.metadata.namespace, queue.metadata.name)
        settings = settings_of(queue)
        async with self._declaring:
            live = self._queues.get(key)
            if live is not None and live.settings == settings:
                return
            row = QueueRow(next(self._queue_ids) if live is None else live.id, *key, settings)
            await self._open.journal.written(Batch(queues=[row]))
            if live is None:
                self._add(row)
            else:
                live.apply(settings)

    async def undeclare(self, queue: QueueKey) -> None:
        """Forget a queue and all that is in it."""
        async with self._declaring:
            live = self._queues.pop(queue, None)
            if live is not None:
                live.close()
                await self._open.journal.written(Batch(dropped=[live.id]))

    @property
    def unavailable(self) -> str | None:
        """Why publishing cannot work right now."""
        if self._surroundings is None:
            return "the builtin broker is not open"
        return self._surroundings.journal.problem

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        """Store a batch; `settled` is called when it is safe."""
        if self._surroundings is None:
            verdicts = [Verdict.UNKNOWN] * len(batch)
            asyncio.get_running_loop().call_soon(settled, verdicts)
            return
        rows: list[_Row] = []
        verdicts = [self._route(publication, rows) for publication in batch]
        publishing = _Publishing(verdicts, settled, self._surroundings.loop.time())
        self._unsettled.append(publishing)
        self._keep_watch()
        change = Batch(added=[(placed, message) for _, placed, message, _ in rows])
        self._surroundings.journal.write(change, partial(self._stored, publishing, rows))

    def subscribe(
        self,
        queue: QueueKey,
        receiver: Receiver,
        prefetch: int,
        *,
        partitions: int = 0,  # noqa: ARG002 - here a FIFO queue is one piece
    ) -> Subscription:
        """Begin deliveries, now or as soon as the queue is declared."""
        consumers = self._consumers.setdefault(queue, [])
        consumer = Consumer(receiver, prefetch, closed=partial(_forget, consumers))
        consumers.append(consumer)
        live = self._queues.get(queue)
        if live is not None:
            live.attach(consumer)
        return consumer

    async def depth(self, queue: QueueKey) -> Depth | None:
        """Return how many jobs are where."""
        live = self._queues.get(queue)
        return None if live is None else live.depth()

    def dead_letters(self, queue: QueueKey) -> DeadLetters:
        """Return the queue's dead letters."""
        return BuiltinDeadLetters(partial(self._queues.get, queue))

    @property
    def _open(self) -> Surroundings:
        if self._surroundings is None:
            raise RuntimeError("the builtin broker is not open; await open() first")
        return self._surroundings

    def _add(self, row: QueueRow) -> Queue:
        key = QueueKey(row.namespace, row.name)
        live = Queue(row, self._open, self._consumers.setdefault(key, []))
        self._queues[key] = live
        return live

    def _route(self, publication: Publication, rows: list[_Row]) -> Verdict:
        """Add the rows that a publication becomes, and return the verdict if they are stored."""
        match publication:
            case Main(key, job, delay_ms):
                queue = self._queues.get(key)
                if queue is None or delay_ms > queue.settings.longest_delay_ms:
                    return Verdict.UNROUTABLE
                if delay_ms <= 0 and queue.room == 0:
                    return Verdict.FULL
                rows.append((queue, *queue.place(job, delay_ms), delay_ms > 0))
            case Dead(key, record):
                queue = self._queues.get(key)
                if queue is None:
                    return Verdict.UNROUTABLE
                rows.append((queue, *queue.place_dead(record), False))
            case Topic(namespace, job):
                queues = self._subscribed(namespace, job.topic)
                if not queues:
                    return Verdict.UNROUTABLE
                if any(queue.room == 0 for queue in queues):
                    return Verdict.FULL
                rows.extend((queue, *queue.place(job), False) for queue in queues)
        return Verdict.CONFIRMED

    def _subscribed(self, namespace: str, topic: str | None) -> list[Queue]:
        if topic is None:
            return []
        return [
            queue
            for key, queue in self._queues.items()
            if key.namespace == namespace
            and any(topics.matches(pattern, topic) for pattern in queue.settings.subscriptions)
        ]

    def _stored(
        self, publishing: "_Publishing", rows: Sequence[_Row], error: Exception | None
    ) -> None:
        for queue, placed, _, waited in rows:
            (queue.arrived if error is None else queue.failed)(placed, waited=waited)
        publishing.settle(known=error is None)
        while self._unsettled and self._unsettled[0].settled is None:
            self._unsettled.popleft()

    def _keep_watch(self) -> None:
        """Set one timer for all: the oldest publication is the first to be late."""
        if self._watch is None and self._unsettled:
            late_at = self._unsettled[0].since + PATIENCE
            self._watch = self._open.loop.call_at(late_at, self._settle_late)

    def _settle_late(self) -> None:
        self._watch = None
        if self._surroundings is None:
            return
        long_ago = self._surroundings.loop.time() - PATIENCE
        while self._unsettled and self._unsettled[0].since <= long_ago:
            self._unsettled.popleft().settle(known=False)
        self._keep_watch()


class _Publishing:
    """A batch on its way; `settled` is None once it was called."""

    __slots__ = ("settled", "since", "verdicts")

    def __init__(self, verdicts: list[Verdict], settled: Settled, since: float) -> None:
        self.verdicts = verdicts
        self.settled: Settled | None = settled
        self.since = since

    def settle(self, *, known: bool) -> None:
        """Tell the verdicts, once; what was to be confirmed is unknown if its commit is."""
        settled, self.settled = self.settled, None
        if settled is not None:
            settled(self.verdicts if known else [_doubted(verdict) for verdict in self.verdicts])


def _doubted(verdict: Verdict) -> Verdict:
    return Verdict.UNKNOWN if verdict is Verdict.CONFIRMED else verdict


def _forget(consumers: list[Consumer], consumer: Consumer) -> None:
    if consumer in consumers:
        consumers.remove(consumer)
