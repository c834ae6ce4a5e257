"""A stream on RabbitMQ: its messages, the cursors of its groups, and who holds a group."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection
from aiormq.exceptions import ChannelNotFoundEntity

from namedqueue.positions import End, Position
from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Entry, Holder, Missing, QueueKey
from namedqueue_sidecar.brokers.rabbitmq import locating
from namedqueue_sidecar.brokers.rabbitmq.connection import SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.cursors import Cursors
from namedqueue_sidecar.brokers.rabbitmq.holding import RabbitMQHold
from namedqueue_sidecar.brokers.rabbitmq.messages import incoming_entry
from namedqueue_sidecar.brokers.rabbitmq.publishing import Publisher
from namedqueue_sidecar.brokers.rabbitmq.reading import StreamReading
from namedqueue_sidecar.brokers.rabbitmq.subscription import TROUBLE

_PATIENCE: Final = 30.0


class RabbitMQLog:
    """One stream."""

    def __init__(
        self, queue: QueueKey, connection: SupervisedConnection, publisher: Publisher
    ) -> None:
        self._names = Names(queue.namespace, queue.name)
        self._connection = connection
        self._publisher = publisher
        self._cursors = Cursors(self._names, connection, publisher)
        self._readings: list[StreamReading] = []
        self._holds: list[RabbitMQHold] = []

    def read(
        self, start: Position, receive: Callable[[Sequence[Entry]], None], ahead: int
    ) -> StreamReading:
        """Give out entries from a position on."""
        name = self._names.name

        async def begin(connection: Connection) -> int:
            if start is End.FIRST:
                return 0  # the broker begins with the oldest one there is
            if isinstance(start, int):
                return start
            return await locating.locate(connection, self._names.main, start)

        def take(messages: Sequence[DeliveredMessage]) -> None:
            receive([incoming_entry(message, name) for message in messages])

        reading = StreamReading(self._connection, self._names.main, begin, take, ahead)
        self._readings = [each for each in self._readings if not each.closed] + [reading]
        return reading

    async def cursor(self, group: str) -> int | None:
        """Return where a group reads on; None if it never committed."""
        return (await self.groups()).get(group)

    async def groups(self) -> dict[str, int]:
        """Return the cursor of each group that has one."""
        async with self._asking():
            return await self._cursors.all()

    async def commit(self, group: str, cursor: int) -> None:
        """Keep how far a group has read."""
        async with self._asking():
            await self._cursors.commit(group, cursor)

    async def seek(self, group: str, to: Position) -> int:
        """Move a group, tell its holder, and return the cursor it has now."""
        offset = await self.locate(to)
        async with self._asking():
            return await self._cursors.seek(group, offset)

    async def locate(self, position: Position) -> int:
        """Return the offset that a position means now: of a message, or of the one to come."""
        async with self._asking():
            connection = await self._connection.standing()
            return await locating.locate(connection, self._names.main, position)

    async def span(self) -> tuple[int, int]:
        """Return the offset of the oldest message there is, and the one that comes next."""
        async with self._asking():
            connection = await self._connection.standing()
            return await locating.span(connection, self._names.main)

    def hold(self, group: str, holder: Holder) -> RabbitMQHold:
        """Wish to be the one reader of a group that the manifest lists among its consumers."""
        hold = RabbitMQHold(
            self._names, group, holder, self._connection, self._publisher, self._cursors
        )
        self._holds = [each for each in self._holds if not each.released] + [hold]
        return hold

    async def close(self) -> None:
        """Let everything go that was not let go before."""
        await asyncio.gather(*(hold.release() for hold in self._holds))
        await asyncio.gather(*(reading.close() for reading in self._readings))
        await self._cursors.close()

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Say in one way that the broker does not answer."""
        try:
            async with asyncio.timeout(_PATIENCE):
                yield
        except ChannelNotFoundEntity:
            raise Missing(
                f"there is no stream {self._names.name} on the broker; the operator makes it, and "
                "so does `nq run`"
            ) from None
        except TROUBLE as error:
            raise ConnectionError(
                f"the broker does not answer for stream {self._names.name}; try again"
            ) from error
