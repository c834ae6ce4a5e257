"""Queues that no manifest defines: a job for an unknown name makes one, where that is allowed.

Such a queue is ephemeral: a convenience on a laptop, and a net for data that may be lost. What
matters is defined by a NamedQueue. It goes, its exchange included, when nobody has sent to it or
pulled from it for a while, and at the latest when this process ends.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final, Protocol

from namedqueue.api import API_VERSION
from namedqueue.api.namedqueue import Ephemeral, NamedQueue
from namedqueue.api.reading import Invalid, read
from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.ending import end
from namedqueue_sidecar.intake.problems import Problem

MOST: Final = 1_000
"""How many of them callers may make, for each costs the broker something."""

PATIENCE: Final = 10.0
"""Seconds in which the broker has to make or remove one."""

_LOOKS: Final = 4
_log = logging.getLogger(__name__)


class Home(Protocol):
    """Where these queues are served."""

    async def take_in(self, queue: NamedQueue) -> None:
        """Make a queue exist, and serve it."""

    async def put_out(self, key: QueueKey) -> None:
        """Serve a queue no longer, and remove it with all that is in it."""

    def is_busy(self, key: QueueKey) -> bool:
        """Tell whether somebody waits for jobs of a queue, or has some."""


class Impromptu:
    """Makes queues for unknown names, and lets them go."""

    def __init__(self, home: Home, kind: Ephemeral | None) -> None:
        """Make queues of this kind; None for none."""
        self._home, self._kind = home, kind
        self._used: dict[QueueKey, float] = {}
        self._turn = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def keys(self) -> frozenset[QueueKey]:
        """The queues that there are by now."""
        return frozenset(self._used)

    def used(self, key: QueueKey) -> None:
        """Let a queue live on, if it is one of these."""
        if key in self._used:
            self._used[key] = asyncio.get_running_loop().time()

    async def make(self, key: QueueKey) -> bool:
        """Make a queue of this name unless there is one; False where that is not allowed."""
        if self._kind is None:
            return False
        queue = _named(key, self._kind)
        async with self._turn, asyncio.timeout(PATIENCE):
            if key in self._used:
                return True
            if len(self._used) >= MOST:
                raise Problem(
                    429,
                    "TOO_MANY_QUEUES",
                    f"{MOST} queues were made by sending to unknown names, which is the most; "
                    "define a NamedQueue, or wait until some have expired",
                    {"Retry-After": "60"},
                )
            await self._home.take_in(queue)
            self._used[key] = asyncio.get_running_loop().time()
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(self._kind.idle_expiry.seconds))
        _log.info("%s was made for a job", key, extra={"action": "make", "queue": str(key)})
        return True

    async def drop(self, key: QueueKey) -> None:
        """Let go of a queue, if it is one of these: it expired, or is defined by now."""
        async with self._turn:
            if self._used.pop(key, None) is not None:
                await self._home.put_out(key)

    async def close(self) -> None:
        """Let go of all of them, as far as the broker takes part in it."""
        if self._sweeper is not None:
            await end(self._sweeper)
        for key in self.keys:
            await _tried(key, self.drop(key))

    async def _sweep(self, idle_expiry: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(idle_expiry / _LOOKS)
            for key in self.keys:
                if self._home.is_busy(key):
                    self.used(key)
                elif loop.time() - self._used.get(key, loop.time()) >= idle_expiry:
                    await _tried(key, self.drop(key))
                    _log.info("%s expired", key, extra={"action": "expire", "queue": str(key)})


def _named(key: QueueKey, kind: Ephemeral) -> NamedQueue:
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "NamedQueue",
        "metadata": {"namespace": key.namespace, "name": key.name},
        "spec": {"type": "ephemeral", "ephemeral": {"idleExpiry": str(kind.idle_expiry)}},
    }
    try:
        queue = read(manifest)
    except Invalid as error:
        raise Problem(422, "INVALID_NAME", str(error)) from None
    if not isinstance(queue, NamedQueue):
        raise TypeError(f"{key} was read as something else")
    return queue


async def _tried(key: QueueKey, removing: Awaitable[None]) -> None:
    """Remove what can be removed; RabbitMQ lets the queue itself expire in any case."""
    try:
        async with asyncio.timeout(PATIENCE):
            await removing
    except (OSError, TimeoutError) as error:
        _log.warning("%s was not removed: %s", key, error, extra={"action": "expire"})
