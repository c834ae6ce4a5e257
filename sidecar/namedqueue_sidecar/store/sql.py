"""The store in a SQL database, and what is swept out of it."""

import asyncio
import logging
import random
import time
from typing import Final

from namedqueue.api.namedqueue import Idempotency
from namedqueue.idempotency import Terms
from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.ending import end
from namedqueue_sidecar.store import letters
from namedqueue_sidecar.store.addresses import Provider
from namedqueue_sidecar.store.away import Away
from namedqueue_sidecar.store.claims import SWEPT_AT_ONCE, Claims, sweep
from namedqueue_sidecar.store.database import Database
from namedqueue_sidecar.store.letters import Letters

_log = logging.getLogger(__name__)

LEASE_MS: Final = 30_000
"""How long a claim outlives the pod that made it: a job waits that long after a kill."""

_SWEEP_SECONDS: Final = 60.0


class SqlStore:
    """What the data plane remembers, in PostgreSQL or SQLite."""

    def __init__(self, provider: Provider, *, lease_ms: int = LEASE_MS) -> None:
        """Ask `provider` for the address before each connection."""
        self.database = Database(provider)
        self._lease_ms = lease_ms
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Look for the database, for as long as it takes, and begin to sweep it."""
        await self.database.open()
        self._sweeping = asyncio.create_task(self._sweep())

    async def found(self) -> bool:
        """Open it if it can be found at once; if not, `unavailable` says why."""
        if await self.database.found():
            await self.open()
        return self.unavailable is None

    async def close(self) -> None:
        """Let go of all connections."""
        if self._sweeping is not None:
            await end(self._sweeping)
        await self.database.close()

    @property
    def unavailable(self) -> str | None:
        """Why there is no store to be had right now, as a sentence; None if there is."""
        return self.database.unavailable

    def claims(self, queue: QueueKey, idempotency: Idempotency) -> Claims:
        """Return the keys of a queue."""
        return Claims(self.database, *queue, Terms(self._lease_ms, idempotency.ttl.milliseconds))

    def letters(self, queue: QueueKey) -> Letters:
        """Return the records of a queue's dead letters."""
        return Letters(self.database, *queue)

    async def _sweep(self) -> None:
        """Remove what has expired, a little at a time; pods take turns by chance."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            try:
                while await sweep(self.database) == SWEPT_AT_ONCE:
                    pass
                while await letters.sweep(self.database, _now_ms()) == letters.SWEPT_AT_ONCE:
                    pass
            except Away as away:
                _log.debug("nothing is swept: %s", away)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
