"""Jobs that come again because a connection was lost.

What was acknowledged just before a loss may not have been heard by the broker, and what the app
was working on is given out again. Both are recognised here, so that neither runs twice. Only jobs
that the broker marks as redelivered are ever looked up, and the time of enqueueing is part of the
comparison: strangers may give all their jobs one id, and dropping a job that only looks like a
copy would lose it.
"""

from collections import deque
from typing import Final, NamedTuple

from namedqueue.envelope import CopyKey, Job
from namedqueue_sidecar.brokers.port import Delivery
from namedqueue_sidecar.consuming.attempts import Attempt

REMEMBERED: Final = 10_000


class _Copy(NamedTuple):
    key: CopyKey
    enqueued_at: int


class Memory:
    """Jobs that need no attempt any more; whoever works on the same queue shares it."""

    def __init__(self) -> None:
        self._done: dict[_Copy, None] = {}

    def remember(self, copy: _Copy) -> None:
        """Expect a job to come again."""
        self._done[copy] = None
        while len(self._done) > REMEMBERED:
            del self._done[next(iter(self._done))]

    def take(self, copy: _Copy) -> bool:
        """Tell whether a job was expected, once."""
        return self._done.pop(copy, True) is None


class Copies:
    """Remembers, for a while, what must not run again, and attempts that fly on as strays."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._recently_acked: deque[_Copy] = deque(maxlen=REMEMBERED)
        self._memory = memory or Memory()
        self._strays: dict[_Copy, Attempt] = {}

    def acked(self, job: Job) -> None:
        """Remember a job whose acknowledgement may still get lost."""
        self._recently_acked.append(_copy(job))

    def connection_lost(self) -> None:
        """Expect what was acknowledged lately to come again."""
        for copy in self._recently_acked:
            self._memory.remember(copy)
        self._recently_acked.clear()

    def done(self, job: Job) -> None:
        """Expect a job to come again that needs no attempt any more."""
        self._memory.remember(_copy(job))

    def take_done(self, job: Job) -> bool:
        """Tell whether this job is done already, once."""
        return self._memory.take(_copy(job))

    def stray(self, job: Job, flight: Attempt) -> None:
        """Expect a job to come again that the app is still working on."""
        self._strays[_copy(job)] = flight

    def forget_stray(self, job: Job) -> None:
        """Expect a job no longer, for its flight has ended."""
        self._strays.pop(_copy(job), None)

    def joined(self, delivery: Delivery) -> bool:
        """Give a job that came again to its flight, if that is still under way."""
        flight = self._strays.pop(_copy(delivery.job), None)
        if flight is None:
            return False
        flight.delivery = delivery
        return True


def _copy(job: Job) -> _Copy:
    return _Copy(job.copy_key, job.enqueued_at)
