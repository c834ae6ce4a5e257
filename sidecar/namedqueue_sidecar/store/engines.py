"""Connections to either database, as SQLAlchemy engines that behave alike.

A transaction on SQLite begins by taking the one lock there is for writing, unless it is for
reading: else two that read first and write later would refuse one another. Statements are never
shown with their parameters, because those are other people's data.
"""

import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy import URL, Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from namedqueue_sidecar.store.addresses import Address, Postgres, Provider
from namedqueue_sidecar.store.away import Away, because

READING: Final = "namedqueue_reading"
"""The execution option of a transaction that only reads."""

_CONNECTIONS: Final = 4
_APPLICATION: Final = "namedqueue"


def make_engine(address: Address, provider: Provider, deadline: float) -> AsyncEngine:
    """Return an engine for a kind of database; `provider` is asked before each connection."""
    if isinstance(address, Postgres):
        return create_async_engine(
            "postgresql+asyncpg://",
            async_creator=_connecting(provider, deadline),
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=deadline,
            pool_pre_ping=True,
            hide_parameters=True,
        )
    engine = _sqlite_engine(address.file, deadline)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _connecting(provider: Provider, deadline: float) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def connect() -> Any:
        try:
            address = provider()
        except (OSError, ValueError) as error:
            raise because("of the mounted Secret", error) from None
        if not isinstance(address, Postgres):
            raise Away("the store's address is of another kind now; restart to follow it")
        try:
            return await _connect(address, deadline)
        except TimeoutError:
            raise Away(f"the store {address.place} did not answer within {deadline:g} s") from None
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise because(address.place, error, address.password) from None

    return connect


async def _connect(address: Postgres, deadline: float) -> Any:
    return await asyncpg.connect(
        host=address.host,
        port=address.port,
        user=address.username,
        password=address.password,
        database=address.database,
        ssl=address.tls,
        timeout=deadline,
        server_settings={"application_name": _APPLICATION},
    )


def _sqlite_engine(file: Path | None, deadline: float) -> AsyncEngine:
    """Return an engine for a file, or for a database that lives as long as the engine does.

    The one in memory has a single connection in use, so its transactions wait for each other in
    the pool; another one keeps it alive when SQLAlchemy gives up a connection after a time-out.
    """
    if file is not None:
        url = URL.create("sqlite+aiosqlite", database=str(file))
        size, name = _CONNECTIONS, None
    else:
        name = f"file:/namedqueue-{uuid4().hex}?vfs=memdb"
        url = URL.create("sqlite+aiosqlite", database=name, query={"uri": "true"})
        size = 1
    engine = create_async_engine(
        url,
        connect_args={"isolation_level": None, "timeout": deadline},
        pool_size=size,
        max_overflow=0,
        pool_timeout=deadline,
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "connect", _configure)
    if name is not None:
        kept = sqlite3.connect(name, uri=True)
        event.listen(engine.sync_engine, "engine_disposed", lambda _engine: kept.close())
    return engine


def _configure(connection: Any, _record: object) -> None:
    """Make a SQLite connection survive kill -9 at any moment; in memory that means nothing."""
    cursor = connection.cursor()
    with suppress(sqlite3.OperationalError):
        cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _begin(connection: Connection) -> None:
    reading = connection.get_execution_options().get(READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
