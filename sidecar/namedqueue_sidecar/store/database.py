"""The database behind the store: transactions that end in time, or one exception.

    async with database.transaction() as connection:
        await connection.execute(…)

The transaction is committed at the end of the block and rolled back if it raises. Whatever keeps
the store from answering (no network, a wrong password, a full disk, a lock held for too long) is
`Away` within the deadline, with a sentence for people that holds neither the password nor anybody's
data. A statement that breaks a constraint is the caller's affair and stays an `IntegrityError`.

A store that was found away is looked for in the background. Until it is found everything else is
refused at once with the same sentence, so nothing piles up; then whoever `watch`es is told. It has
its tables before it counts as found. A search that takes too long is `Slow`, and does not mean that
the store is away: jobs must not wait for a person's question.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection

from namedqueue_sidecar.ending import end
from namedqueue_sidecar.store.addresses import Postgres, Provider
from namedqueue_sidecar.store.away import Away, Slow, because
from namedqueue_sidecar.store.engines import READING, make_engine
from namedqueue_sidecar.store.migrations import migrate

_log = logging.getLogger(__name__)

DEADLINE: Final = 5.0
"""Seconds that a transaction may take in all, with the wait for a connection."""

_MIGRATION_DEADLINE: Final = 120.0
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0


class Database:
    """A pool of connections to a store that may come and go."""

    def __init__(self, provider: Provider, *, deadline: float = DEADLINE) -> None:
        """Ask `provider` for the address before each connection."""
        address = provider()
        self.dialect: Final = "postgresql" if isinstance(address, Postgres) else "sqlite"
        self._place = address.place
        self._deadline = deadline
        self._engine = make_engine(address, provider, deadline)
        self._away: str | None = f"the store {address.place} was not asked yet"
        self._watchers: list[Callable[[], None]] = []
        self._standing = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Return when the store was found and has its tables; why not is in `unavailable`."""
        self._look()
        await self._standing.wait()

    async def found(self) -> bool:
        """Look for the store once; why it was not found is in `unavailable`."""
        if await self._found():
            self._stand()
        return self._away is None

    async def close(self) -> None:
        """Let go of all connections."""
        if self._looking is not None:
            await end(self._looking)
        self._away = "the store is closed"
        await self._engine.dispose()

    @property
    def unavailable(self) -> str | None:
        """Why there is no store to be had right now, as a sentence; None if there is."""
        return self._away

    def watch(self, moved: Callable[[], None]) -> None:
        """Call `moved` whenever the store has gone away or has come back."""
        self._watchers.append(moved)

    @asynccontextmanager
    async def transaction(self, *, reading: bool = False) -> AsyncIterator[AsyncConnection]:
        """Give a connection in a transaction of its own, or raise `Away`."""
        if self._away is not None:
            raise Away(self._away)
        try:
            async with self._begun(self._deadline, reading=reading) as connection:
                yield connection
        except Slow:
            raise
        except Away as away:
            self._lose(str(away))
            raise

    @asynccontextmanager
    async def _begun(
        self, deadline: float, *, reading: bool = False
    ) -> AsyncIterator[AsyncConnection]:
        limit = asyncio.timeout(deadline)
        try:
            async with limit, self._engine.connect() as connection:
                await connection.execution_options(**{READING: reading})
                async with connection.begin():
                    yield connection
        except TimeoutError:
            if not limit.expired():
                raise
            kind = Slow if reading else Away
            raise kind(f"the store {self._place} did not answer within {deadline:g} s") from None
        except exc.IntegrityError:
            raise
        except exc.SQLAlchemyError as error:
            raise because(self._place, error) from None

    def _lose(self, why: str) -> None:
        if self._away is None:
            _log.warning("%s", why, extra={"action": "store"})
            self._away = why
            self._look()
            self._tell()

    def _look(self) -> None:
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_for_it())

    async def _look_for_it(self) -> None:
        pause = _FIRST_PAUSE
        while not await self._found():
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        self._looking = None
        self._stand()

    def _stand(self) -> None:
        self._away = None
        self._standing.set()
        self._tell()

    async def _found(self) -> bool:
        try:
            async with self._begun(_MIGRATION_DEADLINE) as connection:
                await migrate(connection)
        except Away as away:
            if self._away != str(away):
                _log.warning("%s", away, extra={"action": "store"})
                self._away = str(away)
            return False
        return True

    def _tell(self) -> None:
        for moved in self._watchers:
            moved()
