"""The tables of the store, as they are after the last migration.

Moments are milliseconds since the epoch, as everywhere. A table that is added or changed here gets
its migration in `migrations.py`; a test holds the two against each other on both databases.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

metadata: Final = MetaData()

migrations: Final = Table(
    "nq_migrations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("applied_at", BigInteger, nullable=False),
)

idempotency: Final = Table(
    "nq_idempotency",
    metadata,
    Column("namespace", Text, primary_key=True),
    Column("queue", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("redrives", Integer, nullable=False),
    Column("lease_until", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("nq_idempotency_expiry", "expires_at"),
)
"""A key and what is known of it: `namedqueue.idempotency.Record`."""

dead_letters: Final = Table(
    "nq_dead_letters",
    metadata,
    Column(
        "number",
        BigInteger().with_variant(Integer, "sqlite"),
        Identity(always=True),
        primary_key=True,
    ),
    Column("namespace", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("letter", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("redrive", Text),
    Column("dead_lettered_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("properties", Text, nullable=False),
    Column("headers", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("edited_to", Text),
    Index("nq_dead_letters_letter", "namespace", "queue", "letter", unique=True),
    Index("nq_dead_letters_job", "namespace", "queue", "job_id"),
    Index("nq_dead_letters_state", "namespace", "queue", "state", "number"),
    Index("nq_dead_letters_by_reason", "namespace", "queue", "state", "reason", "number"),
    Index(
        "nq_dead_letters_by_cause",
        *("namespace", "queue", "state", "cause", "number", "reason", "dead_lettered_at"),
    ),
    Index("nq_dead_letters_expiry", "expires_at"),
)
"""A dead letter as the broker has it, and what people and redrives have done with it.

Every index that a page is read by ends in the number, for pages are in that order, and has the
state before, for most records of an old queue are replayed. The one by cause also holds what groups
are counted from, so that counting reads no payload.
"""
