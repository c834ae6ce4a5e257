"""A moment at which to look again."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` at the earliest moment that it was set to; then it can be set anew."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Ring after so many seconds, unless it rings before."""
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._rang)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rang(self) -> None:
        self._timer = None
        self._ring()
