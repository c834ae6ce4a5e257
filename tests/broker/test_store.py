"""The ground that the store stands on: addresses, transactions, migrations, on every database."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Column, MetaData, inspect, select, text
from sqlalchemy.exc import IntegrityError

from broker.port.play import eventually
from fixtures.stores import AnotherPod
from namedqueue_sidecar.store import schema
from namedqueue_sidecar.store.addresses import Address, Postgres, Sqlite, from_folder, from_url
from namedqueue_sidecar.store.away import Away
from namedqueue_sidecar.store.database import Database
from namedqueue_sidecar.store.migrations import MIGRATIONS, Migration, migrate
from testbed.ports import free_ports
from testbed.postgresql import Postgres as Server

SECRET = "s3cret/%"


# Addresses


def test_an_address_is_read_from_its_url_and_shows_no_account() -> None:
    address = from_url("postgresql://nq:s3cret%2F%25@db:6432/shop?sslmode=require")
    assert isinstance(address, Postgres)
    assert (address.password, address.place, address.tls) == (SECRET, "db:6432/shop", "require")
    assert SECRET not in repr(address)
    assert from_url("sqlite:///shop.db") == Sqlite(Path("shop.db"))
    assert from_url("sqlite:////var/shop.db") == Sqlite(Path("/var/shop.db"))
    assert from_url("sqlite://") == Sqlite(None)


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://nq:{SECRET}@db/shop",
        f"postgresql://nq:{SECRET}@db",
        f"postgresql://nq:{SECRET}@db:port/shop",
        f"postgresql:///{SECRET}",
        f"sqlite:{SECRET}",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="address") as refused:
        from_url(url)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_mounted_secret_is_read_whole_or_by_its_parts(tmp_path: Path) -> None:
    parts = {"host": "db", "username": "nq", "password": SECRET, "database": "shop"}
    for key, value in parts.items():
        (tmp_path / key).write_text(f"{value}\n")
    assert from_folder(tmp_path) == Postgres(
        host="db", username="nq", password=SECRET, database="shop"
    )
    (tmp_path / "port").write_text("6432")
    assert from_folder(tmp_path).place == "db:6432/shop"
    (tmp_path / "connection_string").write_text("postgresql://a:b@other/shop")
    assert from_folder(tmp_path).place == "other:5432/shop"


def test_a_mounted_secret_that_lacks_something_is_told_what(tmp_path: Path) -> None:
    (tmp_path / "host").write_text("db")
    with pytest.raises(ValueError, match="neither connection_string nor database, password, user"):
        from_folder(tmp_path)


# Transactions


async def make_table(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("CREATE TABLE notes (id INTEGER PRIMARY KEY)"))


async def note(database: Database, number: int) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("INSERT INTO notes VALUES (:n)"), {"n": number})


async def notes(database: Database) -> list[int]:
    async with database.transaction(reading=True) as connection:
        return list((await connection.execute(text("SELECT id FROM notes ORDER BY id"))).scalars())


async def test_a_transaction_is_committed_at_its_end_and_undone_if_it_raises(
    store: Database,
) -> None:
    await make_table(store)
    await note(store, 1)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tried
        async with store.transaction() as connection:
            await connection.execute(text("INSERT INTO notes VALUES (2)"))
            raise ZeroDivisionError
    assert await notes(store) == [1]


async def test_a_broken_constraint_is_the_callers_affair(store: Database) -> None:
    await make_table(store)
    await note(store, 1)
    with pytest.raises(IntegrityError):
        await note(store, 1)
    assert store.unavailable is None


async def test_many_transactions_at_once_all_have_their_turn(store: Database) -> None:
    await make_table(store)
    await asyncio.gather(*(note(store, number) for number in range(50)))
    assert await notes(store) == list(range(50))


async def test_a_transaction_that_takes_too_long_ends_and_the_store_is_there_again(
    shared_address: Address,
) -> None:
    blocked = Database(lambda: shared_address, deadline=2)
    free = Database(lambda: shared_address, deadline=60)
    await blocked.open()
    await free.open()
    await make_table(free)
    began = time.monotonic()
    async with free.transaction() as connection:
        await connection.execute(text("INSERT INTO notes VALUES (1)"))
        with pytest.raises(Away):
            await note(blocked, 1)
        assert time.monotonic() - began < 30
        assert blocked.unavailable is not None
    await eventually(lambda: blocked.unavailable is None, "the store is there again")
    await note(blocked, 2)
    assert await notes(free) == [1, 2]
    await blocked.close()
    await free.close()


# Stores that are away


@asynccontextmanager
async def opening(address: Address) -> AsyncIterator[Database]:
    """Give a database that is being opened, and end that in any case."""
    database = Database(lambda: address, deadline=20)
    task = asyncio.create_task(database.open())
    try:
        yield database
    finally:
        task.cancel()
        await asyncio.wait({task})
        await database.close()


async def test_a_store_that_is_not_there_is_told_in_a_sentence() -> None:
    port = free_ports(1)[0]
    address = from_url(f"postgresql://nq:hidden@127.0.0.1:{port}/shop")
    async with opening(address) as database:
        await eventually(lambda: "Connect" in str(database.unavailable), "it was tried")
        with pytest.raises(Away, match=f"the store 127.0.0.1:{port}/shop cannot be used"):
            await note(database, 1)


async def test_no_sentence_and_no_log_shows_the_password(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    right = cast("Postgres", from_url(postgres.url))
    wrong = replace(right, password="wrong-one")
    absent = replace(right, database="absent")

    async def look_for(address: Postgres, why: str) -> None:
        async with opening(address) as database:
            await eventually(lambda: why in str(database.unavailable), "it is told why")
            assert address.password not in str(database.unavailable)
            with pytest.raises(Away) as away:
                await note(database, 1)
            assert address.password not in repr(away.value)
            assert away.value.__cause__ is None

    with caplog.at_level(logging.DEBUG):
        await look_for(wrong, "password")
        await look_for(absent, "does not exist")
    for secret in (wrong.password, right.password):
        assert secret not in caplog.text


async def test_a_server_that_dies_and_comes_back_is_found_again(private_postgres: Server) -> None:
    address = from_url(private_postgres.create_database("shop"))
    database = Database(lambda: address, deadline=20)
    await database.open()
    await make_table(database)
    moves: list[str | None] = []
    database.watch(lambda: moves.append(database.unavailable))
    await note(database, 1)
    await asyncio.to_thread(private_postgres.kill)
    with pytest.raises(Away):
        await note(database, 2)
    with pytest.raises(Away):
        await note(database, 2)
    await asyncio.to_thread(private_postgres.start)
    await eventually(lambda: database.unavailable is None, "the store is there again")
    await note(database, 3)
    assert await notes(database) == [1, 3]
    assert [move is None for move in moves] == [False, True]
    await database.close()


async def test_a_rotated_password_is_used_from_the_next_connection_on(
    private_postgres: Server,
) -> None:
    right = cast("Postgres", from_url(private_postgres.url))
    mounted = replace(right, password="of-yesterday")
    database = Database(lambda: mounted, deadline=20)
    task = asyncio.create_task(database.open())
    await eventually(lambda: "password" in str(database.unavailable), "it is refused")
    mounted = right
    await asyncio.wait_for(task, 60)
    await database.close()


# Migrations

ADDED = Migration(
    9001,
    "a table of a later release",
    (
        "CREATE TABLE later (id {number}, body {bytes}, story {json})",
        "INSERT INTO later (body) VALUES (NULL)",
    ),
)


async def reflected(database: Database) -> MetaData:
    found = MetaData()
    async with database.transaction(reading=True) as connection:
        await connection.run_sync(found.reflect)
    return found


def described(metadata: MetaData) -> dict[str, object]:
    """Return what matters of tables: columns with what they hold, keys and indexes."""
    return {
        table.name: (
            [
                (column.name, column.type._type_affinity, _optional(column), column.primary_key)
                for column in table.columns
            ],
            sorted(
                (str(index.name), [column.name for column in index.columns], index.unique)
                for index in table.indexes
            ),
        )
        for table in metadata.sorted_tables
    }


def _optional(column: Column[Any]) -> bool:
    """Tell whether a column may be empty; SQLite says so of keys."""
    return bool(column.nullable) and not column.primary_key


async def test_the_migrations_end_in_the_tables_that_the_code_knows(store: Database) -> None:
    there, known = described(await reflected(store)), described(schema.metadata)
    assert {name: there.get(name) for name in known} == known


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


async def test_migrations_run_once_however_often_and_by_how_many_they_are_asked_for(
    another_pod: AnotherPod,
) -> None:
    pods = [another_pod() for _ in range(4)]
    await asyncio.gather(*(pod.open() for pod in pods))

    async def step(pod: Database) -> list[int]:
        async with pod.transaction() as connection:
            return await migrate(connection, (*MIGRATIONS, ADDED))

    assert sorted(await asyncio.gather(*(step(pod) for pod in pods))) == [[], [], [], [9001]]
    assert await step(pods[0]) == []
    async with pods[0].transaction() as connection:
        rows = await connection.execute(select(schema.migrations.c.number))
        assert sorted(rows.scalars()) == [*(each.number for each in MIGRATIONS), 9001]
        assert (await connection.execute(text("SELECT count(*) FROM later"))).scalar() == 1


async def test_a_migration_that_fails_leaves_nothing_behind(store: Database) -> None:
    broken = Migration(9002, "half a step", ("CREATE TABLE half (id INTEGER)", "NONSENSE"))
    with pytest.raises(Away):
        async with store.transaction() as connection:
            await migrate(connection, (broken,))
    await eventually(lambda: store.unavailable is None, "the store is there again")
    async with store.transaction(reading=True) as connection:
        tables = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    assert "half" not in tables


async def test_a_release_that_knows_fewer_migrations_starts_all_the_same(
    another_pod: AnotherPod,
) -> None:
    newer, older = another_pod(), another_pod()
    await newer.open()
    async with newer.transaction() as connection:
        await migrate(connection, (ADDED,))
    await asyncio.wait_for(older.open(), 60)
    assert older.unavailable is None
