"""How the tables came about, in numbered steps that each run once.

`migrate` is called by every pod that starts, whenever it starts. All of it is one transaction that
only one process at a time can be in: PostgreSQL has a lock for that, and SQLite begins every
writing transaction alone. So the steps may be asked for twice, and by many at once.

A pod of the release before goes on working while its successors migrate, and may start again
meanwhile. So a step only ever adds: tables, indexes, and columns with a default. A table that is
no longer used is dropped one release after the last that used it. An index may be replaced by a
better one at once: statements are right without it.

A step is written as SQL, not made from `schema`, for it must stay what it was when it first ran.
`{bytes}`, `{json}` and `{number}` stand for what the databases call differently.
"""

import logging
import time
from typing import Final, NamedTuple

from sqlalchemy import func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from namedqueue_sidecar.store import schema

_log = logging.getLogger(__name__)

_LOCK: Final = 0x4E51_5354  # NQST
_TYPES: Final = {
    "postgresql": {
        "bytes": "BYTEA",
        "json": "JSONB",
        "number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    },
    "sqlite": {"bytes": "BLOB", "json": "JSON", "number": "INTEGER PRIMARY KEY AUTOINCREMENT"},
}
_TABLE_OF_STEPS: Final = (
    "CREATE TABLE nq_migrations ("
    "number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
)


class Migration(NamedTuple):
    """A step: its number, what it is for, and its statements."""

    number: int
    name: str
    statements: tuple[str, ...]


MIGRATIONS: Final[tuple[Migration, ...]] = (
    Migration(
        1,
        "keys of idempotency",
        (
            """
            CREATE TABLE nq_idempotency (
                namespace TEXT NOT NULL,
                queue TEXT NOT NULL,
                key TEXT NOT NULL,
                state TEXT NOT NULL,
                fence BIGINT NOT NULL,
                job_id TEXT NOT NULL,
                redrives INTEGER NOT NULL,
                lease_until BIGINT NOT NULL,
                expires_at BIGINT NOT NULL,
                PRIMARY KEY (namespace, queue, key)
            )
            """,
            "CREATE INDEX nq_idempotency_expiry ON nq_idempotency (expires_at)",
        ),
    ),
    Migration(
        2,
        "records of dead letters",
        (
            """
            CREATE TABLE nq_dead_letters (
                number {number},
                namespace TEXT NOT NULL,
                queue TEXT NOT NULL,
                letter TEXT NOT NULL,
                job_id TEXT NOT NULL,
                state TEXT NOT NULL,
                reason TEXT NOT NULL,
                message TEXT NOT NULL,
                cause TEXT NOT NULL,
                redrive TEXT,
                dead_lettered_at BIGINT NOT NULL,
                expires_at BIGINT NOT NULL,
                properties TEXT NOT NULL,
                headers TEXT NOT NULL,
                payload {bytes} NOT NULL
            )
            """,
            """
            CREATE UNIQUE INDEX nq_dead_letters_letter
            ON nq_dead_letters (namespace, queue, letter)
            """,
            "CREATE INDEX nq_dead_letters_job ON nq_dead_letters (namespace, queue, job_id)",
            """
            CREATE INDEX nq_dead_letters_state
            ON nq_dead_letters (namespace, queue, state, number)
            """,
            """
            CREATE INDEX nq_dead_letters_reason
            ON nq_dead_letters (namespace, queue, reason, number)
            """,
            """
            CREATE INDEX nq_dead_letters_cause
            ON nq_dead_letters (namespace, queue, cause, number)
            """,
            "CREATE INDEX nq_dead_letters_expiry ON nq_dead_letters (expires_at)",
        ),
    ),
    Migration(
        3,
        "edited jobs, and indexes for pages of one state",
        (
            "ALTER TABLE nq_dead_letters ADD COLUMN edited_to TEXT",
            """
            CREATE INDEX nq_dead_letters_by_reason
            ON nq_dead_letters (namespace, queue, state, reason, number)
            """,
            """
            CREATE INDEX nq_dead_letters_by_cause
            ON nq_dead_letters (namespace, queue, state, cause, number, reason, dead_lettered_at)
            """,
            "DROP INDEX nq_dead_letters_reason",
            "DROP INDEX nq_dead_letters_cause",
        ),
    ),
)


async def migrate(
    connection: AsyncConnection, steps: tuple[Migration, ...] = MIGRATIONS
) -> list[int]:
    """Run the steps that this database has not seen, and return their numbers."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        await connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    seen = await _seen(connection)
    missing = [step for step in steps if step.number not in seen]
    for step in missing:
        for statement in step.statements:
            await connection.execute(text(statement.format_map(_TYPES[dialect])))
        now = time.time_ns() // 1_000_000
        row = {"number": step.number, "name": step.name, "applied_at": now}
        await connection.execute(insert(schema.migrations), row)
        _log.info("the store has %s", step.name, extra={"action": "migrate", "step": step.number})
    return [step.number for step in missing]


async def _seen(connection: AsyncConnection) -> set[int]:
    """Return the steps of a database, whose own table is made first if there is none.

    It is looked for before: an account that may not create tables can still use those there are.
    """
    there = await connection.run_sync(
        lambda sync: sync.dialect.has_table(sync, schema.migrations.name)
    )
    if not there:
        await connection.execute(text(_TABLE_OF_STEPS))
        return set()
    return set((await connection.execute(select(schema.migrations.c.number))).scalars())
