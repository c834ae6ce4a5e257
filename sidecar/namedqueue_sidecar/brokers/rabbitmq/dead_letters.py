"""Browsing, discarding and redriving what failed for good.

Letters are shown in the order in which they were dead-lettered, by their own account, because a
queue's order does not survive being read. A page is found by reading them all and keeping its few,
and its cursor is the place of its last letter in that order, so paging misses nothing when letters
are removed meanwhile. A queue with a store is browsed there instead.

Who reads a queue has its letters in hand for a moment, so one at a time does.
"""

import asyncio
from bisect import insort
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Final, TypeAlias

from namedqueue.deadletters import DeadLetterRecord, redriven
from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Main, QueueKey, Verdict
from namedqueue_sidecar.brokers.rabbitmq.credentials import Provider
from namedqueue_sidecar.brokers.rabbitmq.publishing import Publisher
from namedqueue_sidecar.brokers.rabbitmq.walking import Letter, Walk, walking

_REDRIVE_BATCH: Final = 100

_Place: TypeAlias = tuple[int, str]
"""When a job was dead-lettered, and its id: where it stands among the letters."""


class RabbitMQDeadLetters:
    """The dead letters of one queue."""

    def __init__(
        self,
        queue: QueueKey,
        credentials: Provider,
        vhost: str,
        publisher: Publisher,
        turn: asyncio.Lock,
    ) -> None:
        self._queue = queue
        self._credentials = credentials
        self._vhost = vhost
        self._publisher = publisher
        self._turn = turn

    async def browse(
        self, after: str | None, limit: int
    ) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return a page and the cursor of the next one."""
        page = _Page(after, limit)
        async with self._walk() as walk:
            async for letter in walk.letters():
                page.add(letter.record)
        return page.finished()

    async def find(self, job_id: str) -> DeadLetterRecord | None:
        """Return one dead letter."""
        async with self._walk() as walk:
            async for letter in walk.letters():
                if letter.record.job.id == job_id:
                    return letter.record
        return None

    async def remove(self, job_ids: Sequence[str]) -> int:
        """Discard letters, each of them once."""
        wanted, removed = set(job_ids), 0
        async with self._walk() as walk:
            async for letter in walk.letters():
                if letter.record.job.id in wanted:
                    await walk.remove(letter)
                    wanted.discard(letter.record.job.id)
                    removed += 1
                if not wanted:
                    break
        return removed

    async def redrive(self, choose: Callable[[DeadLetterRecord], bool], limit: int | None) -> int:
        """Send chosen letters back, in batches, until one cannot be sent."""
        sent = 0
        chosen: list[Letter] = []
        async with self._walk() as walk:
            async for letter in walk.letters():
                if limit is not None and sent + len(chosen) >= limit:
                    break
                if choose(letter.record):
                    chosen.append(letter)
                if len(chosen) == _REDRIVE_BATCH:
                    arrived = await self._send_back(walk, chosen)
                    sent += arrived
                    if arrived < len(chosen):
                        return sent
                    chosen = []
            return sent + await self._send_back(walk, chosen)

    async def _send_back(self, walk: Walk, letters: Sequence[Letter]) -> int:
        """Publish, wait for the confirms, and only then remove what was confirmed."""
        settled: asyncio.Future[Sequence[Verdict]] = asyncio.get_running_loop().create_future()

        def note(verdicts: Sequence[Verdict]) -> None:
            if not settled.done():
                settled.set_result(verdicts)

        batch = [Main(self._queue, redriven(letter.record.job)) for letter in letters]
        self._publisher.publish(batch, note)
        arrived = 0
        for letter, verdict in zip(letters, await settled, strict=True):
            if verdict is Verdict.CONFIRMED:
                await walk.remove(letter)
                arrived += 1
        return arrived

    @asynccontextmanager
    async def _walk(self) -> AsyncIterator[Walk]:
        names = Names(self._queue.namespace, self._queue.name)
        async with (
            self._turn,
            walking(self._credentials, self._vhost, names.dead_letters, self._queue.name) as walk,
        ):
            yield walk


class _Page:
    """The first few letters after a place in the order of dead-lettering."""

    def __init__(self, after: str | None, limit: int) -> None:
        self._room = limit + 1
        self._limit = limit
        self._after = _read_cursor(after)
        self._records: list[tuple[_Place, DeadLetterRecord]] = []

    def add(self, record: DeadLetterRecord) -> None:
        """Keep a letter if it is among the first."""
        place = (record.dead_lettered_at, record.job.id)
        if place > self._after and (
            len(self._records) < self._room or place < self._records[-1][0]
        ):
            insort(self._records, (place, record), key=itemgetter(0))
            del self._records[self._room :]

    def finished(self) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return the page, and a cursor if there is more."""
        page = self._records[: self._limit]
        if len(self._records) <= self._limit or not page:
            return [record for _, record in page], None
        moment, job_id = page[-1][0]
        return [record for _, record in page], f"{moment}.{job_id}"


def _read_cursor(cursor: str | None) -> _Place:
    """Read where the page before ended; what is no cursor begins at the beginning."""
    moment, _, job_id = (cursor or "").partition(".")
    return (int(moment), job_id) if moment.isdecimal() else (-1, "")
