"""Browsing, discarding and redriving what failed for good.

Letters are shown in the order in which they were dead-lettered, by their own account. The cursor of
a page is the place of its last letter in that order, so paging misses nothing when letters are
removed meanwhile. The broker gives out first what was read before, in any order, and then the rest
in the order of its arrival. So a page is known when it is full and a letter comes that nobody has
read and that is some seconds younger: as far as the clocks of pods may differ. The first look at a
long queue is cheap for that reason. Whoever wants to look often has a store.

Who reads a queue has its letters in hand for a moment, so one at a time does. A redrive reads
beside them, for it may take hours; what it has in hand is not shown.
"""

import asyncio
import contextlib
from bisect import insort
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from operator import itemgetter
from typing import Final, TypeAlias

from namedqueue.deadletters import DeadLetterRecord
from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Busy, Course, QueueKey
from namedqueue_sidecar.brokers.rabbitmq.credentials import Provider
from namedqueue_sidecar.brokers.rabbitmq.redriving import WINDOW, Redriving
from namedqueue_sidecar.brokers.rabbitmq.transit import in_transit
from namedqueue_sidecar.brokers.rabbitmq.walking import Letter, Walk, walking

_CLOCKS_DIFFER_MS: Final = 5_000
_FIRST_WINDOW: Final = 200

_Place: TypeAlias = tuple[int, str]
"""When a job was dead-lettered, and its id: where it stands among the letters."""


class RabbitMQDeadLetters:
    """The dead letters of one queue."""

    def __init__(
        self, queue: QueueKey, credentials: Provider, vhost: str, turn: asyncio.Lock
    ) -> None:
        self._queue = queue
        self._credentials = credentials
        self._vhost = vhost
        self._turn = turn

    async def browse(
        self, after: str | None, limit: int, reason: str | None = None
    ) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return a page and the cursor of the next one."""
        page = _Page(after, limit)
        async with self._walk(max(_FIRST_WINDOW, 2 * limit)) as walk:
            async for letter in walk.letters():
                if page.is_known_before(letter):
                    break
                if reason in (None, letter.record.reason.code):
                    page.add(letter.record)
        return page.finished()

    async def read(self) -> AsyncGenerator[DeadLetterRecord]:
        """Give every letter once."""
        async with self._walk() as walk:
            async for letter in walk.letters():
                yield letter.record

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

    async def redrive(self, course: Course, patience: float) -> None:
        """Send chosen letters back through the redrive stage."""
        async with in_transit(
            self._credentials, self._vhost, self._queue, course.name, patience
        ) as transit:
            walks = partial(self._walking, window=min(WINDOW, course.ahead), steady=True)
            await Redriving(walks, transit, course).run()
        with contextlib.suppress(Busy):  # who has the stage now finishes what is left there
            await self._clear(course, patience)

    async def _clear(self, course: Course, patience: float) -> None:
        """Make sure that nothing is left in the stage: a broker may forget what it was told."""
        clear = False
        while not clear:
            async with in_transit(
                self._credentials, self._vhost, self._queue, course.name, patience
            ) as transit:
                clear = transit.is_clear
                transit.let_go(transit.waiting)
                await transit.forget()

    @asynccontextmanager
    async def _walk(self, window: int = _FIRST_WINDOW) -> AsyncIterator[Walk]:
        async with self._turn, self._walking(window=window, steady=False) as walk:
            yield walk

    def _walking(self, *, window: int, steady: bool) -> AbstractAsyncContextManager[Walk]:
        letters = Names(*self._queue).dead_letters
        return walking(
            self._credentials,
            self._vhost,
            letters,
            self._queue.name,
            window=max(1, window),
            steady=steady,
        )


class _Page:
    """The first few letters after a place in the order of dead-lettering."""

    def __init__(self, after: str | None, limit: int) -> None:
        self._room = limit + 1
        self._limit = limit
        self._after = _read_cursor(after)
        self._records: list[tuple[_Place, DeadLetterRecord]] = []

    def is_known_before(self, letter: Letter) -> bool:
        """Tell whether neither this letter nor any that follows can belong to the page."""
        if not letter.fresh or len(self._records) < self._room:
            return False
        last, _ = self._records[-1][0]
        return letter.record.dead_lettered_at > last + _CLOCKS_DIFFER_MS

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
