"""PostgreSQL of the test bed: separate databases, and data that outlives a crash."""

from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from testbed.postgresql import Postgres


def test_a_test_gets_an_empty_database_of_its_own(database: str, postgres: Postgres) -> None:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT current_database(), inet_server_addr()::text").fetchone()
        tables = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone()

    assert row == (urlsplit(database).path.removeprefix("/"), "127.0.0.1/32")
    assert tables == (0,)
    assert urlsplit(database).port == postgres.port


def test_a_wrong_password_is_refused(postgres: Postgres) -> None:
    parts = urlsplit(postgres.url)
    wrong = urlunsplit(parts._replace(netloc=f"nq:wrong@127.0.0.1:{postgres.port}"))
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_the_password_is_not_shown(postgres: Postgres) -> None:
    assert postgres.password not in repr(postgres)


def test_a_killed_server_restarts_on_its_data_and_port(private_postgres: Postgres) -> None:
    url = private_postgres.create_database("kept")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE job AS SELECT 42 AS id")

    private_postgres.kill()
    assert not private_postgres.running
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    private_postgres.start()

    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT id FROM job").fetchone() == (42,)


def test_a_server_stopped_under_open_connections_starts_again(private_postgres: Postgres) -> None:
    with psycopg.connect(private_postgres.url) as connection:
        connection.execute("SELECT 1")
        private_postgres.stop()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    private_postgres.start()
    private_postgres.drop_database("never_there")
