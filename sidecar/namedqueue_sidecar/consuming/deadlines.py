"""Moments that something ends at, kept by one timer for all of them."""

import asyncio
import heapq
from collections.abc import Callable

_SPARE = 64


class Deadlines:
    """Calls `passed` with each key whose moment has come; moments are the event loop's time."""

    def __init__(self, passed: Callable[[str], None]) -> None:
        self._passed = passed
        self._loop = asyncio.get_running_loop()
        self._moments: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None

    def set(self, key: str, moment: float) -> None:
        """Set or move a deadline."""
        self._moments[key] = moment
        heapq.heappush(self._heap, (moment, key))
        if len(self._heap) > 2 * len(self._moments) + _SPARE:
            self._heap = [(at, name) for name, at in self._moments.items()]
            heapq.heapify(self._heap)
        self._watch()

    def drop(self, key: str) -> None:
        """Forget a deadline; what is not set is not missed."""
        self._moments.pop(key, None)

    def close(self) -> None:
        """Call no more."""
        self._moments.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        first = self._heap[0][0]
        if self._timer is not None:
            if self._timer.when() <= first:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(first, self._rang)

    def _rang(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            moment, key = heapq.heappop(self._heap)
            if self._moments.get(key) == moment:
                del self._moments[key]
                self._passed(key)
        if self._heap:
            self._watch()
