"""Groups of a FIFO queue that rest between two attempts at their head."""

import asyncio
from collections.abc import Callable

from namedqueue_sidecar.consuming.groups import Group


class Resting:
    """Calls `rested` with each group whose rest is over; they are busy until then."""

    def __init__(self, rested: Callable[[Group], None]) -> None:
        self._rested = rested
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Group, asyncio.TimerHandle] = {}

    def begin(self, group: Group, seconds: float) -> None:
        """Let a group rest."""
        self._timers[group] = self._loop.call_later(seconds, self._over, group)

    def stop(self) -> None:
        """Let no group rest any longer, and none be busy because it did."""
        for group, timer in self._timers.items():
            timer.cancel()
            group.busy = False
        self._timers.clear()

    def _over(self, group: Group) -> None:
        del self._timers[group]
        self._rested(group)
