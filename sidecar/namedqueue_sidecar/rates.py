"""How many a second, lately: a count over the last seconds, for people who look now and then."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

SPAN: Final = 10
"""Seconds that a rate looks back."""


class Rate:
    """Counts by whole seconds, so that it costs the same however much there is to count."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds: deque[list[int]] = deque(maxlen=SPAN + 1)

    def add(self, count: int = 1) -> None:
        """Count something that happened now."""
        second = int(self._now())
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += count
        else:
            self._seconds.append([second, count])

    @property
    def per_second(self) -> float:
        """What happened in the last whole seconds; the one that is under way does not count."""
        until = int(self._now())
        counted = sum(count for second, count in self._seconds if until - SPAN <= second < until)
        return counted / SPAN
