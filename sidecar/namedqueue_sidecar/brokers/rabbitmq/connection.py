"""One connection that comes back by itself.

A task connects, waits for the end, and connects again after a pause that grows with each failure
and is never quite the same, so that a fleet does not come back in step. Whoever needs the
connection waits for it; whoever loses it waits for the next.
"""

import asyncio
import contextlib
import logging
import random
import ssl
from typing import Final

import aiormq
from aiormq.connection import Connection
from aiormq.exceptions import AMQPError, AuthenticationError, ProbableAuthenticationError
from prometheus_client import Counter

from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials, Provider
from namedqueue_sidecar.brokers.rabbitmq.strangers import read_everything
from namedqueue_sidecar.ending import end

logger = logging.getLogger(__name__)

_lost = Counter("namedqueue_broker_connections_lost", "Connections to the broker that ended.")

HEARTBEAT: Final = 10
RECONNECT_SECONDS: Final = 5.0
"""A connection that is back within this time was only interrupted, and not worth a word."""

_CONNECT_SECONDS: Final = 15.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 15.0
_JITTER: Final = 0.5


class Backoff:
    """Pauses that double, each stretched by a random part, until something works."""

    def __init__(self, first: float = _FIRST_PAUSE, longest: float = _LONGEST_PAUSE) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def worked(self) -> None:
        """Begin again with the shortest pause."""
        self._next = self._first

    async def pause(self) -> None:
        """Wait before the next try."""
        seconds, self._next = self._next, min(self._next * 2, self._longest)
        await asyncio.sleep(seconds * (1 + _JITTER * random.random()))  # noqa: S311 - jitter


class SupervisedConnection:
    """A connection for one purpose, kept up from `start` to `close`."""

    def __init__(self, credentials: Provider, vhost: str, name: str) -> None:
        self._credentials = credentials
        self._vhost = vhost
        self._name = name
        self._up = asyncio.Event()
        self._connection: Connection | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._problem = "the connection to the broker has not been opened"
        self._gone_at: float | None = None

    def start(self) -> None:
        """Begin to connect, and go on until `close`."""
        self._problem = "the connection to the broker is being opened"
        self._gone_at = asyncio.get_running_loop().time()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())

    @property
    def current(self) -> Connection | None:
        """The connection, if it stands."""
        return self._connection

    async def standing(self) -> Connection:
        """Wait for the connection and return it."""
        while self._connection is None:
            await self._up.wait()
        return self._connection

    @property
    def lasting_problem(self) -> str | None:
        """Why there is no connection, once it has been so for longer than a reconnect takes."""
        if self._gone_at is None or self._connection is not None:
            return None
        gone_for = asyncio.get_running_loop().time() - self._gone_at
        return self._problem if gone_for > RECONNECT_SECONDS else None

    @property
    def problem(self) -> str | None:
        """Why nothing can be published, as a sentence without any secret."""
        if self._connection is None:
            return self._problem
        if _is_blocked(self._connection):
            return "the broker blocks publishers because it is short of memory or disk space"
        return None

    async def close(self) -> None:
        """Let the connection go for good."""
        if self._supervisor is None:
            return
        await end(self._supervisor)
        self._supervisor = None
        self._problem = "the connection to the broker was closed"

    async def _supervise(self) -> None:
        backoff = Backoff()
        while True:
            try:
                connection = await self._connect()
            except (AMQPError, OSError, TimeoutError, ValueError):
                logger.warning("%s: %s", self._name, self._problem)
                await backoff.pause()
                continue
            logger.info("%s: connected", self._name)
            backoff.worked()
            try:
                await self._hold(connection)
            finally:
                self._connection = None
                self._gone_at = asyncio.get_running_loop().time()
                self._up.clear()
                self._problem = "the connection to the broker was lost"
                with contextlib.suppress(Exception):
                    await connection.close()
            _lost.inc()
            logger.warning("%s: %s", self._name, self._problem)
            await backoff.pause()

    async def _hold(self, connection: Connection) -> None:
        self._connection = connection
        self._up.set()
        await asyncio.wait([connection.closing])

    async def _connect(self) -> Connection:
        try:
            credentials = self._credentials()
        except (OSError, ValueError):
            self._problem = "the broker's credentials cannot be read"
            raise
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await connect(credentials, self._vhost, self._name)
        except (AMQPError, OSError) as error:
            self._problem = _sentence(error, credentials.place, self._vhost)
            raise


async def connect(credentials: Credentials, vhost: str, name: str) -> Connection:
    """Open one connection that does not come back by itself.

    One that ends before a word was said is for aiormq a loop without a next turn, and for uvloop a
    closed handle; here it is a ConnectionError like any other.
    """
    read_everything()
    address = credentials.address(vhost, name, HEARTBEAT)
    try:
        return await aiormq.connect(address, context=credentials.tls_context())
    except (StopAsyncIteration, RuntimeError) as error:
        raise ConnectionError("the broker ended the connection at once") from error


def _is_blocked(connection: Connection) -> bool:
    """Ask aiormq whether it may publish: its `ready` returns at once, or it would have to wait."""
    asking = connection.ready()
    try:
        asking.send(None)
    except StopIteration:
        return False
    finally:
        asking.close()
    return True


def _sentence(error: Exception, place: str, vhost: str) -> str:
    """Say what went wrong in words of our own: what a library says may contain the address."""
    cause = error.__cause__
    match error:
        case ProbableAuthenticationError() | AuthenticationError():
            return f"the broker at {place} refuses our user name or password"
        case aiormq.exceptions.ConnectionNotAllowed() | aiormq.exceptions.ConnectionClosed():
            return f"the broker at {place} does not let us into vhost {vhost}"
        case TimeoutError():
            return f"the broker at {place} does not answer"
        case _ if isinstance(error, ssl.SSLError) or isinstance(cause, ssl.SSLError):
            return f"the certificate of the broker at {place} is not trusted"
        case _:
            return f"the broker at {place} cannot be reached"
