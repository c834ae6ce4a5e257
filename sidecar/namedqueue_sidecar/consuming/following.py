"""One group's way through a stream: whose turn it is, how far it came, and what it stumbled over.

A group is ours or not; while it is, its entries come ahead of time, and only the first of them, the
head, is ever tried. The head stays until it is done, however often it is tried. What follows from
an attempt is decided by the worker and told here:

    done      the cursor goes past it
    again     it rests, and is the head again
    failed    `onError: skip` goes past it; `halt` stops here until somebody seeks, or the manifest
              changes

The cursor is committed behind the work: at once after a pause, and every COMMIT_EVERY seconds while
the group moves. So a crash repeats what was done since then and skips nothing. When somebody seeks,
or another pod takes the group over, what we know is void. An attempt under way then ends unheard,
and until it has ended the group waits, for its messages come one at a time.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from namedqueue.api.namedqueue import StreamConsumer
from namedqueue.envelope import Job
from namedqueue.history import NO_HISTORY
from namedqueue.positions import position
from namedqueue.retry import DeadLetter
from namedqueue.topics import selects
from namedqueue_sidecar.brokers.port import Delivery, Entry, Hold, Log, QueueKey, Reading
from namedqueue_sidecar.consuming.attempts import Attempt
from namedqueue_sidecar.consuming.tally import GroupTally

AHEAD: Final = 32
"""Entries that are here before their turn."""

COMMIT_EVERY: Final = 0.25
"""Seconds between two commits of a group that moves."""

_TRY_AGAIN: Final = 1.0
_LAST_COMMIT: Final = 5.0
_log = logging.getLogger(__name__)


class Halt(NamedTuple):
    """The message that a group stopped at, and why."""

    offset: int
    job_id: str
    code: str
    message: str


class Following:
    """Follows a stream for one group."""

    def __init__(
        self, key: QueueKey, consumer: StreamConsumer, log: Log, ready: Callable[[], None]
    ) -> None:
        """Call `ready` when there may be something to try."""
        self.name = consumer.group
        self.halt: Halt | None = None
        self.tally = GroupTally(*key, consumer.group)
        self._key = key
        self._consumer = consumer
        self._stream = log
        self._ready = ready
        self._loop = asyncio.get_running_loop()
        self._hold: Hold | None = None
        self._reading: Reading | None = None
        self._entries: deque[Entry] = deque()
        self._job: Job | None = None
        self._attempt: Attempt | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._cursor = self._committed = 0
        self._committing: asyncio.Task[None] | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def update(self, consumer: StreamConsumer) -> None:
        """Follow a changed manifest, in which what made the group halt may have been mended."""
        self._consumer = consumer
        if self.halt is not None:
            self._go_on()
        self._look()

    # Whose turn it is

    @property
    def may_try(self) -> bool:
        return bool(self._entries) and not (self._attempt or self._rest or self.halt)

    @property
    def attempt(self) -> Attempt | None:
        """What the app is working on."""
        return self._attempt

    def begin(self, began_at: int) -> Attempt:
        """Return an attempt at the head."""
        offset, job = self._entries[0]
        if self._job is None:  # what the message says of attempts are another queue's
            self._job = job._replace(attempt=1, throttles=0, history=NO_HISTORY)
        self._attempt = Attempt(Delivery(self._job, offset), self._loop.time(), began_at)
        self._idle.clear()
        return self._attempt

    def land(self) -> None:
        """Know that the attempt under way has ended; after a void one the way is a new one."""
        attempt, self._attempt = self._attempt, None
        self._idle.set()
        if attempt is not None and attempt.delivery is None:
            self._look()

    def done(self) -> None:
        """Go past the head."""
        self._job = None
        self._pass()
        self._look()

    def again(self, job: Job, seconds: float) -> None:
        """Try the head again, as it is now, after a rest."""
        self._job = job
        self._rest = self._loop.call_later(seconds, self._rested)

    def failed(self, reason: DeadLetter) -> None:
        """Skip the head, which failed for good, or halt at it."""
        offset, job = self._entries[0]
        stumbled = Halt(offset, job.id, reason.code, reason.message)
        if self._consumer.on_error == "skip":
            self.tally.skipped()
            self._tell(logging.WARNING, "skip", "skipped", stumbled)
            self.done()
        else:
            self.halt = stumbled
            self.tally.halted(halted=True)
            self._tell(logging.ERROR, "halt", "halts at", stumbled)

    def _rested(self) -> None:
        self._rest = None
        self._ready()

    def _tell(self, level: int, action: str, did: str, stumbled: Halt) -> None:
        _log.log(
            level,
            "group %s of %s %s offset %d, job %s: %s: %s",
            *(self.name, self._key, did, *stumbled),
            extra={"action": action, "queue": str(self._key), "group": self.name},
        )

    def _look(self) -> None:
        """Go past what the filter leaves out."""
        wanted = self._consumer.filter
        while self.may_try and not selects(wanted, self._entries[0].job.topic):
            self._pass()
        if self.may_try:
            self._ready()

    def _pass(self) -> None:
        self._cursor = self._entries.popleft().offset + 1
        if self._reading is not None:
            self._reading.done(1)
        self._commit_soon()

    # How far it came

    def _commit_soon(self) -> None:
        if self._committing is None:
            self._committing = self._loop.create_task(self._commit())

    async def _commit(self) -> None:
        while self._cursor > self._committed:
            cursor, pause = self._cursor, COMMIT_EVERY
            try:
                await self._stream.commit(self.name, cursor)
                if self._committing is not asyncio.current_task():
                    return
                self._committed = cursor
                self.tally.committed(cursor)
            except Exception as error:  # noqa: BLE001  # whatever it is, the cursor waits for it
                self._complain("could not commit", error)
                pause = _TRY_AGAIN
            await asyncio.sleep(pause)
        self._committing = None

    def _complain(self, what: str, error: Exception) -> None:
        _log.warning(
            "group %s of %s %s and tries again: %s",
            *(self.name, self._key, what, error),
            extra={"action": "follow", "queue": str(self._key), "group": self.name},
        )

    # Whose group it is

    def start(self) -> None:
        """Wish for the group, if we do not yet."""
        if self._hold is None:
            self._hold = self._stream.hold(self.name, self)

    def granted(self, cursor: int | None) -> None:
        """Read on, or from where the manifest says."""
        if cursor is None:
            self._run(self._settle_down())
        else:
            self._begin(cursor)

    def moved(self, cursor: int) -> None:
        """Go on elsewhere."""
        self._void()
        self._begin(cursor)

    def revoked(self) -> None:
        """Stop."""
        self._void()

    async def stop(self, patience: float) -> None:
        """Finish what the app has begun, commit, and let another one have the group."""
        self._stop_resting()
        self._close_reading()
        self._entries = deque(tuple(self._entries)[:1] if self._attempt else ())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), patience)
        if self._attempt is not None:
            self.tally.let_go()
            self.land()
        cursor = self._cursor if self._cursor > self._committed else None
        self._void()
        if cursor is not None:
            await self._commit_at_last(cursor)
        hold, self._hold = self._hold, None
        if hold is not None:
            await hold.release()
        if self._errands:
            await asyncio.wait(tuple(self._errands), timeout=_LAST_COMMIT)

    async def _commit_at_last(self, cursor: int) -> None:
        try:
            await asyncio.wait_for(self._stream.commit(self.name, cursor), _LAST_COMMIT)
        except Exception as error:  # noqa: BLE001  # then the next one repeats what we did
            self._complain("could not commit at the end", error)

    async def _settle_down(self) -> None:
        """Give a group that never read its first cursor, so that `next` is the same next time."""
        start = position(self._consumer.start)
        while self._hold is not None:
            try:
                await self._stream.seek(self.name, start)
            except Exception as error:  # noqa: BLE001  # the broker may be back in a moment
                self._complain("could not begin", error)
                await asyncio.sleep(_TRY_AGAIN)
            else:
                return  # for `moved` was called

    def _begin(self, cursor: int) -> None:
        if self._hold is None:
            return
        self._cursor = self._committed = cursor
        self.tally.committed(cursor)
        came = deque[Entry]()
        self._entries = came
        self._reading = self._stream.read(cursor, partial(self._receive, came), AHEAD)

    def _receive(self, into: deque[Entry], entries: Sequence[Entry]) -> None:
        """Take entries in; those of a way that was left come to nothing."""
        into.extend(entries)
        if into is self._entries:
            self._look()

    def _void(self) -> None:
        """Forget everything; whoever holds the group from now on goes by what is committed."""
        if self._attempt is not None:
            self._attempt.delivery = None
        if self._committing is not None:
            self._committing.cancel()
            self._committing = None
        self._stop_resting()
        self._close_reading()
        self._entries = deque()
        self._go_on()

    def _go_on(self) -> None:
        """Try the head as if for the first time."""
        self._job = None
        self.halt = None
        self.tally.halted(halted=False)

    def _stop_resting(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _close_reading(self) -> None:
        if self._reading is not None:
            self._run(self._reading.close())
            self._reading = None

    def _run(self, errand: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
