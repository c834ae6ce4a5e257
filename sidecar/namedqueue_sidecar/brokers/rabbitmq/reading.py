"""A way through a stream: messages in order from an offset on, across reconnects.

Where it begins is asked for once, when there is a connection. From then on it knows which offset
comes next, and begins there again after each loss. So nothing is missed and nothing comes twice.

No more is passed on than there is room for. What the broker sent beyond that waits here, and is
forgotten with its channel.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection

from namedqueue_sidecar.brokers.rabbitmq.connection import Backoff, SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.messages import offset_of
from namedqueue_sidecar.brokers.rabbitmq.subscription import MOST_PREFETCH, TROUBLE
from namedqueue_sidecar.brokers.rabbitmq.tapping import Tap, tapping
from namedqueue_sidecar.ending import end

logger = logging.getLogger(__name__)

Beginning: TypeAlias = Callable[[Connection], Awaitable[int]]
"""Finds the offset to begin with."""

_LONGEST_PAUSE: Final = 5.0


class StreamReading:
    """The messages of one stream to one receiver."""

    def __init__(
        self,
        connection: SupervisedConnection,
        queue: str,
        begin: Beginning,
        receive: Callable[[Sequence[DeliveredMessage]], None],
        ahead: int,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._begin = begin
        self._receive = receive
        self._ahead = self._room = max(1, ahead)
        self._next: int | None = None
        self._tap: Tap | None = None
        self._arrived: deque[DeliveredMessage] = deque()
        self._given = 0
        self._turning = False
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._keeper = self._loop.create_task(self._keep())

    def done(self, entries: int) -> None:
        """Make room for as many more to come."""
        self._room += entries
        self._soon()

    async def close(self) -> None:
        """Read no further."""
        self.closed = True
        await end(self._keeper)

    async def _keep(self) -> None:
        backoff = Backoff(longest=_LONGEST_PAUSE)
        while True:
            connection = await self._connection.standing()
            try:
                await self._follow(connection, backoff)
            except TROUBLE as error:
                logger.warning("%s: the reading is interrupted: %s", self._queue, error)
            await backoff.pause()

    async def _follow(self, connection: Connection, backoff: Backoff) -> None:
        """Read on until the channel is gone."""
        if self._next is None:
            self._next = await self._begin(connection)
        self._given = 0
        async with tapping(connection, min(self._ahead, MOST_PREFETCH)) as tap:
            self._tap = tap
            try:
                await tap.begin(self._queue, self._next, self._take)
                backoff.worked()
                await tap.over()
            finally:
                self._tap = None
                self._arrived.clear()

    def _take(self, message: DeliveredMessage) -> None:
        self._arrived.append(message)
        self._soon()

    def _soon(self) -> None:
        """Pass on and give credit once for all that happens in this turn of the event loop."""
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        if self.closed or self._tap is None:
            return
        count = min(self._room, len(self._arrived))
        if count > 0:
            given = [self._arrived.popleft() for _ in range(count)]
            self._next = offset_of(given[-1]) + 1
            self._room -= count
            self._given += count
            self._receive(given)
        # Some of what is not done yet may have come by an earlier channel; that is done first.
        self._tap.credit(self._given - max(0, self._ahead - self._room))
