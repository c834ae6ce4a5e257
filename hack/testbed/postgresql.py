"""PostgreSQL servers for tests: start one, kill it, bring it back, remove it.

Each instance is a cluster of its own, on loopback, with scram and a random password. The server
refuses to run as root, so root starts it as the `postgres` user, in namespaces of its own in
which the instance's data is `/var/lib/postgresql`: that user need not be able to reach the state
folder, and shared memory goes away with the server. The data is not synced to disk; it survives
a killed server, not a killed machine.
"""

import os
import secrets
import shutil
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from testbed import instances, processes
from testbed.debian import ensure_packages
from testbed.leases import exclusively
from testbed.ports import free_port
from testbed.processes import TestbedError
from testbed.progress import step

KIND = "postgres"

_SERVER = "postgres"
_USER = "nq"
_START_SECONDS = 60.0
_PROGRAMS = Path("/usr/lib/postgresql")
_PACKAGED_DATA = Path("/var/lib/postgresql")
_CLUSTER_DEFAULTS = Path("/etc/postgresql-common/createcluster.d")
_ENTER = """
set -e
mount --bind "$1" "$2"
shift 2
exec setpriv --reuid=postgres --regid=postgres --init-groups "$@"
"""


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server."""

    name: str
    port: int
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        return self.database_url("postgres")

    @property
    def state(self) -> Path:
        """The instance's folder."""
        return instances.folder(KIND, self.name)

    @property
    def log_file(self) -> Path:
        return self.state / f"{_SERVER}.log"

    @property
    def running(self) -> bool:
        return processes.find(_SERVER, self.state) is not None

    def database_url(self, database: str) -> str:
        return f"postgresql://{_USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Make an empty database and return its URL."""
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Delete a database, cutting off whoever still uses it; none at all is fine."""
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self._execute(statement.format(sql.Identifier(name)))

    def start(self) -> None:
        """Bring the server up on its data and its port, and wait until it answers queries."""
        if self.running:
            return
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "fsync": "off",
            "dynamic_shared_memory_type": "mmap",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        cluster = _data_seen(self.state) / "cluster"
        command: list[str | Path] = [_programs() / "postgres", "-D", cluster, *options]
        server = processes.start(
            _SERVER, _as_server(self.state, command), self.state, env=_environment()
        )
        processes.wait_until(
            self._answers,
            what="PostgreSQL answers queries",
            deadline=_START_SECONDS,
            watching=server,
        )

    def stop(self) -> None:
        """Shut the server down in good order, clients or not; `start` brings its data back."""
        processes.stop(_SERVER, self.state, by=signal.SIGINT)

    def kill(self) -> None:
        """End the server at once, as a crash would; `start` brings its data back."""
        processes.kill(_SERVER, self.state)

    def remove(self) -> None:
        """End the server and delete all that it had."""
        remove(self.name)

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=5) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def prepare() -> None:
    """Install Debian's PostgreSQL where there is none, without a cluster of its own."""
    if _newest() is not None:
        return
    ours = _CLUSTER_DEFAULTS / "namedqueue-testbed.conf"
    _CLUSTER_DEFAULTS.mkdir(parents=True, exist_ok=True)
    ours.write_text("create_main_cluster = false\n")
    try:
        ensure_packages("postgresql")
    finally:
        ours.unlink(missing_ok=True)


def start(name: str = "default") -> Postgres:
    """Start an instance, or return the one that runs under this name.

    An instance of this name that no longer runs is replaced by a fresh one. On failure nothing
    keeps running and the log stays to be read; an interruption leaves nothing.
    """
    prepare()
    with exclusively(f"{KIND}-{name}"):
        there = find(name)
        if there is not None and there.running:
            return there
        _clear(name)
        server = Postgres(name, free_port(), secrets.token_urlsafe(24))
        server.state.mkdir()
        instances.save(server.state, asdict(server))
        try:
            with step(f"starting PostgreSQL as {name}"):
                _make_cluster(server)
                server.start()
        except KeyboardInterrupt:
            _clear(name)
            raise
        except BaseException:
            server.kill()
            raise
        return server


def find(name: str) -> Postgres | None:
    """Return the instance of this name, running or not."""
    record = instances.load(instances.folder(KIND, name))
    return None if record is None else Postgres(**record)


def remove(name: str) -> None:
    """End the instance of this name and delete all that it had; none at all is fine."""
    with exclusively(f"{KIND}-{name}"):
        _clear(name)


def _make_cluster(server: Postgres) -> None:
    data = server.state / "data"
    data.mkdir(mode=0o700)
    instances.write_private(data / "password", server.password)
    if os.geteuid() == 0:
        shutil.chown(data, "postgres", "postgres")
        shutil.chown(data / "password", "postgres", "postgres")
    seen = _data_seen(server.state)
    processes.run(
        _as_server(
            server.state,
            [
                _programs() / "initdb",
                f"--pgdata={seen / 'cluster'}",
                f"--username={_USER}",
                f"--pwfile={seen / 'password'}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ],
        ),
        what=f"initdb for {server.name}",
        env=_environment(),
    )
    (data / "password").unlink()


def _as_server(state: Path, command: Sequence[str | Path]) -> list[str | Path]:
    """Prefix a command so that it runs, by exec all the way, as a user the server accepts."""
    if os.geteuid() != 0:
        return list(command)
    data = state / "data"
    return ["unshare", "--mount", "--ipc", "sh", "-c", _ENTER, "sh", data, _PACKAGED_DATA, *command]


def _data_seen(state: Path) -> Path:
    """Return the data folder as the server sees it."""
    return _PACKAGED_DATA if os.geteuid() == 0 else state / "data"


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/"}


def _programs() -> Path:
    programs = _newest()
    if programs is None:
        raise TestbedError(f"no PostgreSQL server in {_PROGRAMS}; apt-get install postgresql")
    return programs


def _newest() -> Path | None:
    """Return the folder of the newest PostgreSQL's programs."""
    found = [path.parent for path in _PROGRAMS.glob("*/bin/postgres")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


def _clear(name: str) -> None:
    state = instances.folder(KIND, name)
    processes.kill(_SERVER, state)
    instances.remove(state)
