"""Being the one who reads a stream for a group, across all pods.

The group's queue has a single active consumer. Everyone who wishes to read consumes from it and
puts a token into it; the one whom the broker serves gets all tokens, keeps the newest and drops
the rest. So whoever has a token reads for the group, and when his connection ends the broker gives
the token to the next one at once. A token is never gone for good: each of those who wish puts a
new one in every few minutes, which also keeps the broker from finding that one was held too long.

The broker takes a silent connection for dead after two to three heartbeats of 10 s. The holder asks
it for a sign of life every few seconds and gives up within 10 s without one, so he has stopped
before another one begins. Only a process that stands still as a whole for that long, and then goes
on, may believe for a moment that it still holds what another one reads by then.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Holder, Verdict
from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS, LeanChannel
from namedqueue_sidecar.brokers.rabbitmq.connection import Backoff, SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.cursors import Cursors
from namedqueue_sidecar.brokers.rabbitmq.frames import header
from namedqueue_sidecar.brokers.rabbitmq.messages import Address, Outgoing
from namedqueue_sidecar.brokers.rabbitmq.publishing import Publisher
from namedqueue_sidecar.brokers.rabbitmq.subscription import TROUBLE, unused
from namedqueue_sidecar.ending import end

logger = logging.getLogger(__name__)

_SIGN_SECONDS: Final = 5.0
_TOKEN_SECONDS: Final = 300.0
_LONGEST_PAUSE: Final = 5.0
_PREFETCH: Final = 100
_PERSISTENT: Final = 2


class RabbitMQHold:
    """A wish to hold a group, or the hold itself."""

    def __init__(
        self,
        names: Names,
        group: str,
        holder: Holder,
        connection: SupervisedConnection,
        publisher: Publisher,
        cursors: Cursors,
    ) -> None:
        self._queue = names.reader(group)
        self._token = _token(names, group)
        self._group = group
        self._holder = holder
        self._connection = connection
        self._publisher = publisher
        self._cursors = cursors
        self._loop = asyncio.get_running_loop()
        self._tag: int | None = None
        self._token_due = 0.0
        self._granting: asyncio.Task[None] | None = None
        self._turn_away: Callable[[], None] | None = None
        self.released = False
        self._keeper = self._loop.create_task(self._keep())

    async def release(self) -> None:
        """Let another one have it, or wish for it no longer; the token goes back."""
        self.released = True
        await end(self._keeper)

    async def _keep(self) -> None:
        """Stand in line whenever there is a connection."""
        backoff = Backoff(longest=_LONGEST_PAUSE)
        while True:
            connection = await self._connection.standing()
            with contextlib.suppress(*TROUBLE):
                await self._stand_in_line(await LeanChannel.opened(connection), backoff)
            await backoff.pause()

    async def _stand_in_line(self, channel: LeanChannel, backoff: Backoff) -> None:
        """Hold the group when it is our turn, until the broker is gone or silent."""
        over = asyncio.Event()
        channel.on_message = lambda message: self._take(channel, message)
        channel.on_consumer_cancel_callbacks.add(lambda _: over.set())
        channel.closing.add_done_callback(lambda _: over.set())
        self._token_due = self._loop.time()
        try:
            await channel.basic_qos(prefetch_count=_PREFETCH, timeout=_SIGN_SECONDS)
            await channel.basic_consume(self._queue, unused, timeout=_SIGN_SECONDS)
            backoff.worked()
            while not await self._over_soon(over):
                await channel.queue_declare(self._queue, passive=True, timeout=_SIGN_SECONDS)
        except TROUBLE as error:
            logger.warning("%s: the hold is interrupted: %s", self._queue, error)
        finally:
            channel.on_message = _ignore
            await self._step_back()
            with contextlib.suppress(*TROUBLE):
                await channel.close(timeout=RPC_SECONDS)

    async def _over_soon(self, over: asyncio.Event) -> bool:
        """Put a token in if it is time, and wait a little for the end."""
        self._put_token()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SIGN_SECONDS):
                await over.wait()
        return over.is_set()

    def _put_token(self) -> None:
        now = self._loop.time()
        if now >= self._token_due:
            self._token_due = now + _SIGN_SECONDS
            self._publisher.send([self._token], self._token_put)

    def _token_put(self, verdicts: Sequence[Verdict]) -> None:
        if verdicts[0] is Verdict.CONFIRMED:
            self._token_due = self._loop.time() + _TOKEN_SECONDS

    def _take(self, channel: LeanChannel, message: DeliveredMessage) -> None:
        """Keep the newest token; the first one says that the group is ours."""
        if self._tag is not None:
            channel.send(channel.method(Basic.Ack(self._tag)))
        self._tag = message.delivery_tag
        if self._granting is None:
            self._granting = self._loop.create_task(self._grant())

    async def _grant(self) -> None:
        """Find out where the group reads on, and begin."""
        backoff = Backoff(longest=_LONGEST_PAUSE)
        while True:
            try:
                cursors = await self._cursors.all()
                break
            except (*TROUBLE, LookupError) as error:
                logger.warning("%s: the cursor is not known yet: %s", self._queue, error)
            await backoff.pause()
        if self._tag is not None:
            self._turn_away = self._cursors.listen(self._group, self._holder.moved)
            self._holder.granted(cursors.get(self._group))

    async def _step_back(self) -> None:
        """Hold the group no longer."""
        self._tag = None
        if self._turn_away is not None:
            self._turn_away()
            self._turn_away = None
            if not self.released:
                self._holder.revoked()
        if self._granting is not None:
            await end(self._granting)
            self._granting = None


def _token(names: Names, group: str) -> Outgoing:
    empty = header({"delivery_mode": _PERSISTENT}, {}, 0)
    return Outgoing(Address(names.readers, group), "", empty, b"")


def _ignore(_: DeliveredMessage) -> None:
    """Take no notice: it goes back with the channel."""
