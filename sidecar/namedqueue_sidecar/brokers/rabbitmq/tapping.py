"""A consumer of a stream, on a channel of its own.

An acknowledgement removes nothing from a stream, it is credit for further messages. RabbitMQ 3.10
spends credit by whole chunks, so more may come than there was credit for.

A channel does one thing after the other, and consuming begins with what is there already. So the
answer to anything that is asked afterwards comes behind all that there was credit for: `settled`
is how to know where a stream ends.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Literal, TypeAlias

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection
from pamqp.commands import Basic

from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS, LeanChannel
from namedqueue_sidecar.brokers.rabbitmq.messages import OFFSET
from namedqueue_sidecar.brokers.rabbitmq.subscription import TROUBLE, unused

Start: TypeAlias = int | datetime | Literal["first", "last"]
"""Where to begin: an offset, or the chunk of a time, or the oldest or the newest chunk."""


class Tap:
    """Messages of one stream by one channel."""

    def __init__(self, channel: LeanChannel, prefetch: int) -> None:
        self._channel = channel
        self._prefetch = prefetch
        self._over = asyncio.Event()
        self._acked = 0
        channel.on_consumer_cancel_callbacks.add(lambda _: self._over.set())
        channel.closing.add_done_callback(lambda _: self._over.set())

    async def begin(
        self, queue: str, start: Start, take: Callable[[DeliveredMessage], None]
    ) -> None:
        """Consume from here on."""
        self._channel.on_message = take
        await self.settled()
        await self._channel.basic_consume(
            queue, unused, arguments={OFFSET: start}, timeout=RPC_SECONDS
        )

    async def settled(self) -> None:
        """Return when all that there was credit for has come; ask for something cheap."""
        await self._channel.basic_qos(prefetch_count=self._prefetch, timeout=RPC_SECONDS)

    def credit(self, messages: int) -> None:
        """Let go of this many messages since the beginning, and make room for as many."""
        if messages > self._acked:
            self._acked = messages
            self._channel.send(self._channel.method(Basic.Ack(messages, multiple=True)))

    async def over(self) -> None:
        """Return when nothing more will come."""
        await self._over.wait()


@asynccontextmanager
async def tapping(connection: Connection, prefetch: int) -> AsyncIterator[Tap]:
    """Lend a tap; its channel is closed afterwards."""
    channel = await LeanChannel.opened(connection)
    try:
        yield Tap(channel, prefetch)
    finally:
        with contextlib.suppress(*TROUBLE):
            await channel.close(timeout=RPC_SECONDS)
