"""Reading a dead-letter queue without taking anything.

A queue cannot be read in place: letters are delivered, looked at, and go back when the channel is
closed. The broker gives out first what was read before, in no order to rely on, and after it what
never was, in the order of its arrival. `Letter.fresh` tells the two apart.

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
from namedqueue_sidecar.brokers.port import Missing
from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS, LeanChannel
from namedqueue_sidecar.brokers.rabbitmq.connection import connect
from namedqueue_sidecar.brokers.rabbitmq.credentials import Provider
from namedqueue_sidecar.brokers.rabbitmq.messages import fingerprint, incoming_dead_letter

_MOST_PREFETCH: Final = 65_535
_LETTERS_IN_MEMORY: Final = 200
_PATIENCE: Final = 1.0
_TRIES: Final = 5
_GLANCE: Final = 0.01

_BACK_WITHIN: Final = 5.0
_BACK_BESIDE_OTHERS: Final = 1.0
"""Seconds that letters may take to be back: a broker whose disk is slow needs some. Those that
others have in hand, or have removed, are never back."""


class Letter(NamedTuple):
    """A dead letter in our hands."""

    record: DeadLetterRecord
    message: DeliveredMessage

    @property
    def tag(self) -> int:
        return self.message.delivery_tag or 0

    @property
    def fresh(self) -> bool:
        """Whether nobody has read it before; then so are all that follow."""
        return not self.message.redelivered

    @property
    def named(self) -> bool:
        """Whether its job has an id of its own; two of those that have none may be alike."""
        return bool(self.message.header.properties.message_id)

    @property
    def key(self) -> str:
        """Name the letter by what it holds."""
        headers = self.message.header.properties.headers or {}
        return fingerprint(self.message.body, {**headers, "": self.record.job.id})


class Walk:
    """One pass over a queue of dead letters.

    The broker gives out `window` letters at first, and more as the walk goes on. A `steady` walk
    keeps to that window and holds what comes in memory; any other lets the broker wait.
    """

    def __init__(
        self,
        connection: Connection,
        channel: LeanChannel,
        queue: str,
        name: str,
        *,
        window: int,
        steady: bool,
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._queue, self._name = queue, name
        self._window, self._steady = window, steady
        self._there = 0
        self._left = 0
        self._granted = 0
        self._coming = 0
        self._to_the_end = False
        self._arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
        self._room = asyncio.Event()
        self._asking = False
        self.others_read = False
        channel.on_message = self._take

    async def letters(self) -> AsyncIterator[Letter]:
        """Yield the letters that are there."""
        self._there, readers = await self._count()
        self._left, self.others_read = self._there, readers > 0
        while self._left > 0 or self._to_the_end:
            if self._coming <= 0:
                await self._consume()
            message = await self._next()
            if message is None:
                return
            self._coming -= 1
            self._left -= 1
            yield Letter(incoming_dead_letter(message, self._name), message)

    async def remove(self, letter: Letter) -> None:
        """Discard a letter for good."""
        await self._channel.basic_ack(letter.tag, wait=False)
        self._there -= 1
        self._coming += 1

    async def arrivals(self) -> int:
        """Return how many letters have come since the walk began, once removals are done.

        The broker does what a channel asks for in order, so the answer follows the removals.
        """
        ready, _ = await self._count()
        if ready:
            return max(0, ready + self._granted - self._there)
        return max(0, self._arrived.qsize() - self._left)

    def go_on_to_the_end(self) -> None:
        """Meet what has come since the walk began as well."""
        self._to_the_end = True

    async def give_back(self) -> None:
        """Return what was not removed, and wait until it is back for the next one who looks.

        The broker does that when the channel is closed, but in its own time.
        """
        self.look_away()
        await self._channel.close(timeout=RPC_SECONDS)
        self._channel = await LeanChannel.opened(self._connection)
        loop = asyncio.get_running_loop()
        ends = loop.time() + (_BACK_BESIDE_OTHERS if self.others_read else _BACK_WITHIN)
        while loop.time() < ends:
            if (await self._count())[0] >= self._there:
                return
            await asyncio.sleep(_GLANCE)

    def look_away(self) -> None:
        """Read no further, and let what is on its way pass by: it may hold up an answer."""
        self._channel.on_message = _pass_by
        self._room.set()
        while not self._arrived.empty():
            self._arrived.get_nowait()

    def _take(self, message: DeliveredMessage) -> Awaitable[None] | None:
        self._arrived.put_nowait(message)
        if self._steady or self._asking or self._arrived.qsize() < _LETTERS_IN_MEMORY:
            return None
        self._room.clear()
        return self._wait_for_room()

    async def _wait_for_room(self) -> None:
        await self._room.wait()

    async def _consume(self) -> None:
        """Let the broker give out another window of letters."""
        prefetch = min(self._window, _MOST_PREFETCH)
        await self._channel.basic_qos(prefetch_count=prefetch, timeout=RPC_SECONDS)
        await self._channel.basic_consume(self._queue, _unused, timeout=RPC_SECONDS)
        self._granted += prefetch
        self._coming += prefetch
        if not self._steady:
            self._window *= 4

    async def _next(self) -> DeliveredMessage | None:
        """Return the next letter, or None if the rest is gone or in other hands.

        A broker that has letters and gives none out is no end: a page must not be short for that.
        """
        for _ in range(_TRIES):
            try:
                async with asyncio.timeout(_PATIENCE):
                    message = await self._arrived.get()
            except TimeoutError:
                if self._channel.is_closed:
                    raise ConnectionError("the broker ended the walk over the letters") from None
                if not (await self._count())[0] and self._arrived.empty():
                    return None
            else:
                if self._arrived.qsize() < _LETTERS_IN_MEMORY:
                    self._room.set()
                return message
        raise ConnectionError(f"the broker gives out no more dead letters of {self._name}")

    async def _count(self) -> tuple[int, int]:
        """Return how many letters nobody holds, and how many consumers there are.

        The answer comes behind the letters that are on their way, so those are let in meanwhile.
        """
        self._asking = True
        self._room.set()
        try:
            found = await self._channel.queue_declare(
                self._queue, passive=True, timeout=RPC_SECONDS
            )
        finally:
            self._asking = False
        return found.message_count or 0, found.consumer_count or 0


@asynccontextmanager
async def walking(
    credentials: Provider, vhost: str, queue: str, name: str, *, window: int, steady: bool = False
) -> AsyncIterator[Walk]:
    """Lend a walk over the letters of a queue; what was not removed goes back."""
    connection = await connect(credentials(), vhost, f"{name} dead letters")
    try:
        channel = await LeanChannel.opened(connection)
        walk = Walk(connection, channel, queue, name, window=window, steady=steady)
        try:
            yield walk
            await walk.give_back()
        finally:
            walk.look_away()
    except ChannelNotFoundEntity:
        raise Missing(
            f"{name} has no dead-letter queue; the operator makes one, and so does `nq run`"
        ) from None
    finally:
        with contextlib.suppress(Exception):
            await connection.close()


def _pass_by(_: DeliveredMessage) -> None:
    """Take no notice of a letter: it goes back with the others."""


async def _unused(_: DeliveredMessage) -> None:
    """Satisfy aiormq: deliveries take the lean way."""
