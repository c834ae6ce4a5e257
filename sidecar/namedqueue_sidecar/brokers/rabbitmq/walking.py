"""Reading a dead-letter queue without taking anything.

A queue cannot be read in place: letters are delivered, looked at, and go back when the channel is
closed. Where they go back to is the broker's business (RabbitMQ 4.3 puts what was read before at
the end), so nothing here relies on the order of the queue.

The walk has a connection of its own, on which a slow reader holds up nobody else, so however long
the queue only a few letters are in memory. It ends where the queue ended when it began: what fails
again meanwhile is not met twice.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection
from aiormq.exceptions import ChannelNotFoundEntity

from namedqueue.deadletters import DeadLetterRecord
from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS, LeanChannel
from namedqueue_sidecar.brokers.rabbitmq.connection import connect
from namedqueue_sidecar.brokers.rabbitmq.credentials import Provider
from namedqueue_sidecar.brokers.rabbitmq.messages import incoming_dead_letter

_MOST_PREFETCH: Final = 65_535
_LETTERS_IN_MEMORY: Final = 200
_PATIENCE: Final = 1.0
_TRIES: Final = 5
_GLANCES: Final = 100
_GLANCE: Final = 0.01


class Letter(NamedTuple):
    """A dead letter in our hands."""

    record: DeadLetterRecord
    tag: int


class Walk:
    """One pass over a queue of dead letters."""

    def __init__(
        self,
        connection: Connection,
        channel: LeanChannel,
        queue: str,
        name: str,
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._queue, self._name = queue, name
        self._there = 0
        self._arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue(_LETTERS_IN_MEMORY)
        channel.on_message = self._take

    async def letters(self) -> AsyncIterator[Letter]:
        """Yield the letters that are there."""
        left = self._there = await self._ready()
        in_window = 0
        while left > 0:
            if not in_window:
                in_window = min(left, _MOST_PREFETCH)
                await self._consume(in_window)
            message = await self._next()
            if message is None:
                return
            in_window -= 1
            left -= 1
            record = incoming_dead_letter(message, self._name)
            yield Letter(record, message.delivery_tag or 0)

    async def remove(self, letter: Letter) -> None:
        """Discard a letter for good."""
        await self._channel.basic_ack(letter.tag, wait=False)
        self._there -= 1

    async def give_back(self) -> None:
        """Return what was not removed, and wait until it is back for the next one who looks.

        The broker does that when the channel is closed, but in its own time.
        """
        self.look_away()
        await self._channel.close(timeout=RPC_SECONDS)
        self._channel = await LeanChannel.opened(self._connection)
        for _ in range(_GLANCES):
            if await self._ready() >= self._there:
                return
            await asyncio.sleep(_GLANCE)

    def look_away(self) -> None:
        """Read no further, and let what is on its way pass by: it may hold up an answer."""
        self._channel.on_message = _pass_by
        while not self._arrived.empty():
            self._arrived.get_nowait()

    def _take(self, message: DeliveredMessage) -> Awaitable[None]:
        return self._arrived.put(message)

    async def _consume(self, prefetch: int) -> None:
        await self._channel.basic_qos(prefetch_count=prefetch, timeout=RPC_SECONDS)
        await self._channel.basic_consume(self._queue, _unused, timeout=RPC_SECONDS)

    async def _next(self) -> DeliveredMessage | None:
        """Return the next letter, or None if the rest is gone or in other hands."""
        for _ in range(_TRIES):
            try:
                async with asyncio.timeout(_PATIENCE):
                    return await self._arrived.get()
            except TimeoutError:
                if self._channel.is_closed:
                    raise ConnectionError("the broker ended the walk over the letters") from None
                if not await self._ready() and self._arrived.empty():
                    break
        return None

    async def _ready(self) -> int:
        found = await self._channel.queue_declare(self._queue, passive=True, timeout=RPC_SECONDS)
        return found.message_count or 0


@asynccontextmanager
async def walking(credentials: Provider, vhost: str, queue: str, name: str) -> AsyncIterator[Walk]:
    """Lend a walk over the letters of a queue; what was not removed goes back."""
    connection = await connect(credentials(), vhost, f"{name} dead letters")
    try:
        channel = await LeanChannel.opened(connection)
        walk = Walk(connection, channel, queue, name)
        try:
            yield walk
            await walk.give_back()
        finally:
            walk.look_away()
    except ChannelNotFoundEntity:
        raise LookupError(f"there is no queue {name}") from None
    finally:
        with contextlib.suppress(Exception):
            await connection.close()


def _pass_by(_: DeliveredMessage) -> None:
    """Take no notice of a letter: it goes back with the others."""


async def _unused(_: DeliveredMessage) -> None:
    """Satisfy aiormq: deliveries take the lean way."""
