"""Whether the app is there.

While it is not, no job is delivered and no attempt is used. The gate starts closed, so a sidecar
that is up before its app waits for it, and it closes again when a connection is refused.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from namedqueue_sidecar.app.port import Ready
from namedqueue_sidecar.ending import end

LONGEST_ABSENCE: Final = 30.0
"""Seconds that an ordered queue waits here for an app that is away, before another pod has it."""

_PROBE_PAUSE: Final = 0.25
_LONGEST_PROBE_PAUSE: Final = 2.0


class Gate:
    """Open while the app answers; probes it while closed."""

    def __init__(self, app: Ready, moved: Callable[[], None]) -> None:
        """Call `moved` whenever the gate opens or closes."""
        self._app = app
        self._moved = moved
        self._open = False
        self._probing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._open

    def close(self) -> None:
        """Let nothing through until the app answers its probe."""
        was_open, self._open = self._open, False
        if self._probing is None:
            self._probing = asyncio.ensure_future(self._probe())
        if was_open:
            self._moved()

    async def stop(self) -> None:
        """End probing."""
        if self._probing is not None:
            await end(self._probing)

    async def _probe(self) -> None:
        pause = _PROBE_PAUSE
        while not await self._app.ready():
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PROBE_PAUSE)
        self._probing = None
        self._open = True
        self._moved()
