"""The cursors of a stream's groups: written to a log on the broker, and read back by everyone.

Whoever asks for cursors begins to follow the log and goes on until the end. Before an answer is
given the log is read up to where it ended when the question came, so what one client was told is
kept, every other one knows.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection

from namedqueue.positions import End
from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Missing, Verdict
from namedqueue_sidecar.brokers.rabbitmq.connection import SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.frames import header
from namedqueue_sidecar.brokers.rabbitmq.locating import locate, look
from namedqueue_sidecar.brokers.rabbitmq.marks import Book, Record, decode, encode
from namedqueue_sidecar.brokers.rabbitmq.messages import Address, Outgoing, offset_of
from namedqueue_sidecar.brokers.rabbitmq.publishing import Publisher
from namedqueue_sidecar.brokers.rabbitmq.reading import StreamReading

Told: TypeAlias = Callable[[int], None]
"""Hears where a group was moved to."""

_AHEAD: Final = 1000
_PATIENCE: Final = 15.0
_PERSISTENT: Final = 2


class Cursors:
    """The cursors of one stream."""

    def __init__(
        self, names: Names, connection: SupervisedConnection, publisher: Publisher
    ) -> None:
        self._names = names
        self._connection = connection
        self._publisher = publisher
        self._book = Book()
        self._following: StreamReading | None = None
        self._knows = False
        self._grown = asyncio.Event()
        self._told: dict[str, list[Told]] = {}

    async def all(self) -> dict[str, int]:
        """Return the cursor of each group."""
        await self._catch_up()
        return self._book.cursors

    async def commit(self, group: str, cursor: int) -> None:
        """Keep how far a group has read."""
        if not self._knows:
            await self._catch_up()
        await self._write(self._book.commit(group, cursor))

    async def seek(self, group: str, cursor: int) -> int:
        """Move a group and return where it stands, which another seek may have decided."""
        await self._catch_up()
        await self._write(self._book.seek(group, cursor))
        return self._book.cursors[group]

    def listen(self, group: str, told: Told) -> Callable[[], None]:
        """Tell where a group is moved to from now on, until what is returned is called."""
        listeners = self._told.setdefault(group, [])
        listeners.append(told)
        return partial(listeners.remove, told)

    async def close(self) -> None:
        """Follow the log no longer."""
        if self._following is not None:
            await self._following.close()

    async def _catch_up(self) -> None:
        """Read all that was confirmed before now."""
        async with asyncio.timeout(_PATIENCE):
            await self._read_to_the_end()
        self._knows = True

    async def _read_to_the_end(self) -> None:
        connection = await self._connection.standing()
        end = await locate(connection, self._names.cursors, End.NEXT)
        if self._following is not None and end < self._book.following:
            outdated, self._following = self._following, None
            await outdated.close()  # the log was made anew, and begins again with 0
        if self._following is None:
            self._following = StreamReading(
                self._connection, self._names.cursors, self._begin, self._read, _AHEAD
            )
            self._book.begin(0)
        while self._book.following < end:
            self._grown.clear()
            await self._grown.wait()

    async def _begin(self, connection: Connection) -> int:
        """Return from where on the log says all."""
        newest = await look(connection, self._names.cursors, "last")
        if newest is None:
            return 0
        record = decode(newest.body)
        return 0 if record is None else min(record.since, offset_of(newest))

    def _read(self, messages: Sequence[DeliveredMessage]) -> None:
        for message in messages:
            self._tell(self._book.read(offset_of(message), decode(message.body)))
        if self._following is not None:
            self._following.done(len(messages))
        self._grown.set()

    async def _write(self, record: Record) -> None:
        """Append a record, and wait until it is safe."""
        settled: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._publisher.send([_message(self._names, record)], partial(_settle, settled))
        verdict = await settled
        if verdict is Verdict.UNROUTABLE:
            raise Missing(
                f"stream {self._names.name} has no cursors on the broker; the operator makes them, "
                "and so does `nq run`"
            )
        if verdict is not Verdict.CONFIRMED:
            raise ConnectionError("the broker did not confirm the cursor")
        self._tell(self._book.learn(record))

    def _tell(self, sought: dict[str, int]) -> None:
        for group, cursor in sought.items():
            for told in tuple(self._told.get(group, ())):
                told(cursor)


def _message(names: Names, record: Record) -> Outgoing:
    body = encode(record)
    properties = {"content_type": "application/json", "delivery_mode": _PERSISTENT}
    return Outgoing(Address(names.cursors, ""), "", header(properties, {}, len(body)), body)


def _settle(settled: asyncio.Future[Verdict], verdicts: Sequence[Verdict]) -> None:
    if not settled.done():
        settled.set_result(verdicts[0])
