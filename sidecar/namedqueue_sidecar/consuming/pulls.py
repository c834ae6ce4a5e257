"""Workers that wait for jobs, and which of them gets the next one.

Jobs are dealt out one at a time, so that a worker that asks for a thousand does not starve one that
asks for one. A pull is answered when it is full, when no more jobs come after its first, or when
its time is up.

What is asked of the broker and not taken has to be handed back, and some brokers count that
against the job. So a pull gathers for as long as jobs keep coming, and asks for no more than
will fit by what jobs weighed lately.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from namedqueue_sidecar.brokers.port import Delivery

LEAST_WAIT: Final = 0.25
"""Seconds that a pull waits at the least: a broker needs a moment to hand over what it has."""

GATHERING: Final = 0.05
LONGEST_GATHERING: Final = 0.5
"""Seconds that a pull which has a job waits for the next one, and for all of them."""

LARGEST_PULL: Final = 16 * 1024 * 1024
"""A pull ends with the job that brings its payloads to this size."""

_LEARNING: Final = 4


class Wish(NamedTuple):
    """What a pull asks for: so many jobs at the most, for so many seconds each, and for whom."""

    most: int
    wait: float
    visibility: float
    worker: str


class Pull:
    """One worker that waits, and what it got so far."""

    __slots__ = ("first", "got", "last", "most", "size", "timer", "wish")

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.most = wish.most
        self.got: list[Delivery] = []
        self.size = 0
        self.first = self.last = 0.0
        self.timer: asyncio.Handle | None = None

    @property
    def room(self) -> int:
        return 0 if self.size >= LARGEST_PULL else self.most - len(self.got)


P = TypeVar("P", bound=Pull)


class Pulls(Generic[P]):
    """The pulls that wait; `ready` is called with each that is to be answered now."""

    def __init__(self, ready: Callable[[P], None]) -> None:
        self._ready = ready
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[P] = deque()
        self._typical = 1.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def lacking(self) -> int:
        """How many jobs they could still take."""
        return sum(pull.room for pull in self._waiting)

    def add(self, pull: P) -> None:
        """Have a pull wait."""
        pull.most = max(1, min(pull.wish.most, round(LARGEST_PULL / self._typical)))
        self._waiting.append(pull)
        wait = max(pull.wish.wait, LEAST_WAIT)
        pull.timer = self._loop.call_later(wait, self._answer, pull)

    def give(self, delivery: Delivery) -> None:
        """Give a job to the pull whose turn it is."""
        pull, size = self._waiting[0], len(delivery.job.payload)
        pull.got.append(delivery)
        pull.size += size
        pull.last = self._loop.time()
        self._typical = max(1.0, self._typical + (size - self._typical) / _LEARNING)
        if pull.room <= 0:
            self._answer(pull)
            return
        if len(pull.got) == 1:
            pull.first = pull.last
            self._look_in(GATHERING, pull)
        self._waiting.rotate(-1)

    def leave(self, pull: P) -> bool:
        """Let a pull wait no longer; False if it was answered already."""
        if pull not in self._waiting:
            return False
        self._waiting.remove(pull)
        if pull.timer is not None:
            pull.timer.cancel()
        return True

    def leave_all(self) -> list[P]:
        """Let no pull wait any longer, and return them."""
        pulls = list(self._waiting)
        for pull in pulls:
            self.leave(pull)
        return pulls

    def void(self) -> None:
        """Forget what the pulls got so far."""
        for pull in self._waiting:
            pull.got.clear()
            pull.size = 0

    def _look_in(self, seconds: float, pull: P) -> None:
        if pull.timer is not None:
            pull.timer.cancel()
        pull.timer = self._loop.call_later(seconds, self._look_soon, pull)

    def _look_soon(self, pull: P) -> None:
        """Let in what has been read in this turn of the loop."""
        pull.timer = self._loop.call_soon(self._look, pull)

    def _look(self, pull: P) -> None:
        """Answer a pull to which no more jobs come."""
        now = self._loop.time()
        quiet_at = pull.last + GATHERING
        if quiet_at <= now or pull.first + LONGEST_GATHERING <= now:
            self._answer(pull)
        else:
            self._look_in(quiet_at - now, pull)

    def _answer(self, pull: P) -> None:
        self.leave(pull)
        self._ready(pull)
