"""The dead letters of one queue, for people: browse, find, discard, redrive.

A cursor is the number of the last letter seen. Numbers only grow, so pages neither repeat nor skip
a letter while others arrive or go.
"""

from collections.abc import Callable, Sequence
from typing import Final

from namedqueue.deadletters import DeadLetterRecord
from namedqueue_sidecar.brokers.builtin.queues import Queue

_AT_ONCE: Final = 500


class BuiltinDeadLetters:
    """Looks the queue up at every call, because it may come and go."""

    def __init__(self, queue: Callable[[], Queue | None]) -> None:
        self._queue = queue

    async def browse(
        self, after: str | None, limit: int
    ) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return a page in order of arrival and the cursor of the next one."""
        queue = self._queue()
        if queue is None or limit < 1:
            return [], None
        letters = queue.dead.page(_read_cursor(after), limit)
        more = bool(letters) and letters[-1].seq < queue.dead.last_seq
        return queue.records(letters), str(letters[-1].seq) if more else None

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

    async def redrive(self, choose: Callable[[DeadLetterRecord], bool], limit: int | None) -> int:
        """Send chosen dead letters back, each removed here and added there in one transaction.

        Ends when the queue is full. Letters that arrive meanwhile are left alone, so jobs that
        fail at once do not go round for ever.
        """
        queue = self._queue()
        if queue is None:
            return 0
        moved, after, last = 0, 0, queue.dead.last_seq
        while letters := [p for p in queue.dead.page(after, _AT_ONCE) if p.seq <= last]:
            after = letters[-1].seq
            pairs = zip(letters, queue.records(letters), strict=True)
            chosen = [(placed, record.job) for placed, record in pairs if choose(record)]
            room = _least(queue.room, None if limit is None else limit - moved)
            sent = chosen if room is None else chosen[:room]
            if sent:
                await queue.redrive(*zip(*sent, strict=True))
                moved += len(sent)
            if len(sent) < len(chosen) or moved == limit:
                break
        return moved


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _read_cursor(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit()):
        raise ValueError(f"{after!r} is not a cursor; take the one that the last page ended with")
    return int(after)
