"""The dead letters of one queue, for people: browse, find, discard, redrive.

A cursor is the number of the last letter seen. Numbers only grow, so pages neither repeat nor skip
a letter while others arrive or go.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from namedqueue.deadletters import DeadLetterRecord
from namedqueue_sidecar.brokers.builtin.queues import Queue
from namedqueue_sidecar.brokers.builtin.storage import Placed
from namedqueue_sidecar.brokers.port import Course

_AT_ONCE: Final = 500


class BuiltinDeadLetters:
    """Looks the queue up at every call, because it may come and go."""

    def __init__(self, queue: Callable[[], Queue | None]) -> None:
        self._queue = queue

    async def browse(
        self, after: str | None, limit: int, reason: str | None = None
    ) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return a page in order of arrival and the cursor of the next one."""
        queue, cursor = self._queue(), _read_cursor(after)
        if queue is None or limit < 1:
            return [], None
        page: list[DeadLetterRecord] = []
        while len(page) < limit and cursor < queue.dead.last_seq:
            letters = queue.dead.page(cursor, limit if reason is None else _AT_ONCE)
            if not letters:
                return page, None
            for letter, record in zip(letters, queue.records(letters), strict=True):
                cursor = letter.seq
                if reason in (None, record.reason.code):
                    page.append(record)
                if len(page) == limit:
                    break
            await asyncio.sleep(0)
        return page, str(cursor) if cursor < queue.dead.last_seq else None

    async def read(self) -> AsyncGenerator[DeadLetterRecord]:
        """Give every letter that is there, the oldest first."""
        after: str | None = None
        while True:
            page, after = await self.browse(after, _AT_ONCE)
            for record in page:
                yield record
            if after is None:
                return

    async def find(self, job_id: str) -> DeadLetterRecord | None:
        """Return one dead letter, the oldest if several share the id."""
        queue = self._queue()
        letters = queue.dead.with_ids((job_id,)) if queue else []
        return queue.records(letters[:1])[0] if queue and letters else None

    async def remove(self, job_ids: Sequence[str]) -> int:
        """Discard these dead letters and return how many there were."""
        queue = self._queue()
        letters = queue.dead.with_ids(job_ids) if queue else []
        if queue and letters:
            await queue.discard(letters)
        return len(letters)

    async def redrive(self, course: Course, patience: float) -> None:  # noqa: ARG002  # one process
        """Send chosen dead letters back, each removed here and added there in one transaction.

        Ends when the queue is full. Letters that arrive meanwhile are left alone, so jobs that
        fail at once do not go round for ever.
        """
        queue = self._queue()
        after, last = 0, queue.dead.last_seq if queue else 0
        while queue and (at_once := min(course.at_once, _AT_ONCE)) > 0:
            letters = [each for each in queue.dead.page(after, at_once) if each.seq <= last]
            if not letters:
                break
            after = letters[-1].seq
            pairs = zip(letters, queue.records(letters), strict=True)
            chosen = [pair for pair in pairs if course.chooses(pair[1])]
            if not await self._move(queue, chosen, course):
                break
            course.came_back(_come_back(queue, last, course.name))
        await course.ended()

    async def _move(
        self, queue: Queue, chosen: list[tuple[Placed, DeadLetterRecord]], course: Course
    ) -> bool:
        """Send these as they may go, and tell whether there was room for all."""
        while chosen:
            allowed = await course.release(len(chosen))
            chosen = [pair for pair in chosen if pair[0] in queue.dead]  # others may be quicker
            if queue.room == 0:
                course.full()
                return False
            room = allowed if queue.room is None else min(allowed, queue.room)
            going, chosen = chosen[:room], chosen[room:]
            if not going:
                continue
            letters, records = zip(*going, strict=True)
            await queue.redrive(letters, [course.sends(record) for record in records])
            course.sent(records)
        return True


def _come_back(queue: Queue, after: int, redrive: str) -> int:
    """Count the letters that arrived since and whose jobs this redrive has sent."""
    found = 0
    while letters := queue.dead.page(after, _AT_ONCE):
        after = letters[-1].seq
        found += sum(record.job.redrive == redrive for record in queue.records(letters))
    return found


def _read_cursor(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit()):
        raise ValueError(f"{after!r} is not a cursor; take the one that the last page ended with")
    return int(after)
