"""How fast jobs may start: this replica's share of the queue's rate limit.

A token bucket of one second's worth, at least one job deep, so that a low limit is met on average
and a burst never exceeds what the limit allows in a second. It begins with a single token: a pod
that has just started, or was given another share, has saved nothing yet.
"""

from typing import Self

from namedqueue.api.workers import RateLimit


class Pace:
    """Grants starts; times are seconds of a monotonic clock."""

    def __init__(self, per_second: float | None, now: float) -> None:
        self._per_second = per_second
        self._room = 1.0 if per_second is None else max(1.0, per_second)
        self._tokens = 1.0
        self._at = now

    @classmethod
    def of(cls, limit: RateLimit | None, share: float, now: float) -> Self:
        """Return the pace for a replica that has this share (0 to 1) of the limit."""
        return cls(None if limit is None else limit.requests / limit.per.seconds * share, now)

    def take(self, now: float) -> float:
        """Return 0 if a job may start now, else the seconds until one may."""
        if self._per_second is None:
            return 0.0
        self._tokens = min(self._room, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_second

    def at_most(self, jobs: int) -> int:
        """Return how many jobs it makes sense to hold: no more than can start within a second."""
        return jobs if self._per_second is None else max(1, min(jobs, round(self._per_second)))
