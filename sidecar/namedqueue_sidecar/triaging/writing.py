"""Many small things to write, a few transactions: what piles up meanwhile is the next one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from namedqueue_sidecar.store.away import Away

_log = logging.getLogger(__name__)

T = TypeVar("T")
MOST_AT_ONCE: Final = 500


class Writing(Generic[T]):
    """Writes what it is given, in order; what the store does not take is told and let go."""

    def __init__(self, write: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: list[tuple[Sequence[T], Callable[[], None]]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, things: Sequence[T], done: Callable[[], None] = lambda: None) -> None:
        """Write these, and call `done` when they are written or cannot be."""
        self._waiting.append((things, done))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def flush(self) -> None:
        """Wait for what is on its way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _write_all(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            together = [thing for things, _ in taken for thing in things]
            try:
                for start in range(0, len(together), MOST_AT_ONCE):
                    await self._write(together[start : start + MOST_AT_ONCE])
            except Away as away:
                _log.warning("not written: %s", away, extra={"action": "record"})
            for _, done in taken:
                done()
        self._task = None
