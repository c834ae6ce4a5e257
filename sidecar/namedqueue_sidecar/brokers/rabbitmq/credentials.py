"""Where the broker is and who we are.

Credentials are asked for again before each connection, so a rotated Secret is used from the next
reconnect on, and connections that stand are left alone. The password is in no representation, and
no sentence of ours is built from the address that contains it.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeAlias
from urllib.parse import quote

from yarl import URL

_AMQP: Final = 5672
_AMQPS: Final = 5671


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The address of a broker and an account on it.

    `authority` is a PEM file to trust; with `tls` alone the system's authorities are trusted.
    """

    host: str
    port: int = _AMQP
    username: str = field(repr=False)
    password: str = field(repr=False)
    tls: bool = False
    authority: Path | None = None

    @classmethod
    def from_url(cls, url: str, authority: Path | None = None) -> Self:
        """Read `amqp://` or `amqps://`; a vhost in it is for the caller to read."""
        try:
            parsed = URL(url)
            tls = {"amqp": False, "amqps": True}[parsed.scheme]
        except (KeyError, ValueError):
            raise ValueError("a broker's address begins with amqp:// or amqps://") from None
        if not parsed.host:
            raise ValueError("the broker's address names no host")
        return cls(
            host=parsed.host,
            port=parsed.explicit_port or (_AMQPS if tls else _AMQP),
            username=parsed.user or "guest",
            password=parsed.password or "guest",
            tls=tls,
            authority=authority,
        )

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Read a mounted Secret with the keys of a Service Binding.

        Without a connection_string TLS is spoken if there is a `ca.crt`, or `tls` says so.
        """
        authority = folder / "ca.crt"
        trusted = authority if authority.exists() else None
        whole = _read(folder / "connection_string")
        if whole is not None:
            return cls.from_url(whole, trusted)
        host, username = _read(folder / "host"), _read(folder / "username")
        password = _read(folder / "password")
        if host is None or username is None or password is None:
            raise ValueError(
                f"{folder} holds neither connection_string nor host, username and password"
            )
        tls = trusted is not None or _read(folder / "tls") == "true"
        return cls(
            host=host,
            port=int(_read(folder / "port") or (_AMQPS if tls else _AMQP)),
            username=username,
            password=password,
            tls=tls,
            authority=trusted,
        )

    @property
    def place(self) -> str:
        """Where the broker is, for people."""
        return f"{self.host}:{self.port}"

    def address(self, vhost: str, name: str, heartbeat: int) -> URL:
        """Return what aiormq connects to. It contains the password: never show it."""
        return URL.build(
            scheme="amqps" if self.tls else "amqp",
            user=self.username,
            password=self.password,
            host=self.host,
            port=self.port,
            path=f"/{quote(vhost, safe='')}",
            query={"name": name, "heartbeat": str(heartbeat)},
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Return how to trust the broker, read anew, or None without TLS."""
        return ssl.create_default_context(cafile=self.authority) if self.tls else None


Provider: TypeAlias = Callable[[], Credentials]


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return None
