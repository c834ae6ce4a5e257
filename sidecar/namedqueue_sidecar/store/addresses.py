"""Where the store is and who we are there.

Like a broker's credentials an address is asked for again before each connection, so a rotated
Secret is used from the next connection on. The password is in no representation, and no sentence
of ours is built from the URL that contains it.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

_POSTGRESQL: Final = ("postgresql", "postgres")
_POSTGRESQL_PORT: Final = 5432
_SQLITE: Final = "sqlite:"
_KINDS: Final = "postgresql://user:password@host/database or sqlite:///file"


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """A PostgreSQL database; `authority` is a PEM file to trust."""

    host: str
    port: int = _POSTGRESQL_PORT
    username: str = field(repr=False)
    password: str = field(repr=False)
    database: str
    sslmode: str = "prefer"
    authority: Path | None = None

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.host}:{self.port}/{self.database}"

    @property
    def tls(self) -> ssl.SSLContext | str:
        """How to trust it, read anew; with an authority nothing but a verified host will do."""
        if self.authority is None:
            return self.sslmode
        return ssl.create_default_context(cafile=self.authority)


@dataclass(frozen=True)
class Sqlite:
    """A SQLite file; None is one in memory, which goes with its last connection."""

    file: Path | None = None

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return str(self.file or "in memory")


Address: TypeAlias = Postgres | Sqlite
Provider: TypeAlias = Callable[[], Address]


def from_url(url: str, authority: Path | None = None) -> Address:
    """Read `postgresql://…` or `sqlite:///file`, or raise a ValueError that shows no secret."""
    if url.startswith(_SQLITE):
        return _sqlite(url.removeprefix(_SQLITE))
    try:
        parts = urlsplit(url)
        port = parts.port or _POSTGRESQL_PORT
    except ValueError:
        raise ValueError(f"the store's address cannot be read; write {_KINDS}") from None
    if parts.scheme not in _POSTGRESQL:
        raise ValueError(f"a store's address is {_KINDS}")
    database = unquote(parts.path[1:])
    if not parts.hostname or not database:
        raise ValueError("the store's address names no host or no database")
    return Postgres(
        host=parts.hostname,
        port=port,
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=database,
        sslmode=parse_qs(parts.query).get("sslmode", ["prefer"])[0],
        authority=authority,
    )


def from_folder(folder: Path) -> Address:
    """Read a mounted Secret with the keys of a Service Binding."""
    authority = folder / "ca.crt"
    trusted = authority if authority.exists() else None
    found = _read(folder, "connection_string", "uri", "host", "username", "password", "database")
    whole = found.get("connection_string") or found.get("uri")
    if whole is not None:
        return from_url(whole, trusted)
    missing = {"host", "username", "password", "database"} - found.keys()
    if missing:
        raise ValueError(
            f"{folder} holds neither connection_string nor {', '.join(sorted(missing))}"
        )
    port = _read(folder, "port").get("port", str(_POSTGRESQL_PORT))
    if not port.isdecimal():
        raise ValueError(f"{folder / 'port'} is not a number")
    return Postgres(**found, port=int(port), authority=trusted)


def _sqlite(rest: str) -> Sqlite:
    if rest in {"", "//", "//:memory:"}:
        return Sqlite()
    if not rest.startswith("///"):
        raise ValueError("a SQLite store's address is sqlite:///relative or sqlite:////absolute")
    return Sqlite(Path(unquote(rest.removeprefix("///"))))


def _read(folder: Path, *keys: str) -> Mapping[str, str]:
    """Return those of the keys that are there."""
    return {key: (folder / key).read_text().strip() for key in keys if (folder / key).exists()}
