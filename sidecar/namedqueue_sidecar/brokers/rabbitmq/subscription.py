"""A worker's hold on a queue: deliveries in, acknowledgements out, and back again after a loss.

One task sees to everything that needs an answer of the broker: it opens a channel, keeps its
consumers at the wanted prefetch, and begins anew when the channel or the connection is gone. The
rest are plain calls. What arrives, and what is settled, within one turn of the event loop goes on
together.

A delivery's tag names the channel it came by, so a late acknowledgement of a delivery that is void
is recognised and does nothing.

The broker may end a consumer on its own (its queue was deleted, or it found the consumer too
slow) and takes back what that one held, so the channel is given up as a whole. Now and then the
broker is also asked whether it still knows our consumers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection
from aiormq.exceptions import AMQPError
from pamqp.commands import Basic

from namedqueue_sidecar.brokers.port import Delivery, Receiver
from namedqueue_sidecar.brokers.rabbitmq.acks import LowWater
from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS, LeanChannel
from namedqueue_sidecar.brokers.rabbitmq.connection import Backoff, SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.messages import incoming
from namedqueue_sidecar.brokers.rabbitmq.shares import NO_CHANGE, change
from namedqueue_sidecar.ending import end

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 30.0
MOST_PREFETCH: Final = 65_535
_LONGEST_PAUSE: Final = 5.0
_GENERATION: Final = 1 << 48
TROUBLE = (AMQPError, OSError, RuntimeError, TimeoutError)


class Consumer:
    """A consumer on the broker: its share of the prefetch and what it gave us."""

    __slots__ = ("held", "share")

    def __init__(self, share: int) -> None:
        self.share = share
        self.held = 0


class Hold:
    """One channel of a subscription, from its opening to its end."""

    def __init__(self, channel: LeanChannel, generation: int) -> None:
        self.channel = channel
        self.base = generation * _GENERATION
        self.consumers: dict[str, Consumer] = {}
        self.orphans = 0
        self.given_up = False
        self.arrived: list[Delivery] = []
        self._water = LowWater()
        self._givers: dict[int, tuple[str, Consumer]] = {}
        self._nacks: list[int] = []
        self._saying = False

    def __len__(self) -> int:
        return len(self._water)

    def __contains__(self, tag: int) -> bool:
        return tag in self._water

    def took(self, tag: int, consumer_tag: str) -> None:
        """Note a delivery that is now in our hands."""
        consumer = self.consumers.get(consumer_tag)
        if consumer is None:
            self.orphans += 1
        else:
            consumer.held += 1
            self._givers[tag] = (consumer_tag, consumer)
        self._water.delivered(tag)

    def ack(self, tag: int) -> None:
        if self._water.done(tag):
            self._settled(tag)

    def hand_back(self, tag: int) -> None:
        if self._water.returned(tag):
            self._nacks.append(tag)
            self._settled(tag)

    def ended(self, consumer_tag: str) -> None:
        """Note that a consumer is gone; what it gave us stays in our hands."""
        consumer = self.consumers.pop(consumer_tag, None)
        if consumer is not None:
            self.orphans += consumer.held

    def say(self) -> None:
        """Tell the broker what was settled, returns first."""
        self._saying = False
        frames = [
            self.channel.method(Basic.Nack(delivery_tag=tag, requeue=True)) for tag in self._nacks
        ]
        frames += [
            self.channel.method(Basic.Ack(delivery_tag=tag, multiple=multiple))
            for tag, multiple in self._water.take()
        ]
        self._nacks.clear()
        if frames:
            self.channel.send(b"".join(frames))

    def _settled(self, tag: int) -> None:
        consumer_tag, consumer = self._givers.pop(tag, ("", None))
        if consumer is None or consumer_tag not in self.consumers:
            self.orphans -= 1
        else:
            consumer.held -= 1
        if not self._saying:
            self._saying = True
            asyncio.get_running_loop().call_soon(self.say)


class RabbitMQSubscription:
    """Deliveries of one queue to one receiver."""

    def __init__(
        self,
        connection: SupervisedConnection,
        queue: str,
        name: str,
        receiver: Receiver,
        prefetch: int,
        closed: Callable[["RabbitMQSubscription"], None],
        watch: float = WATCH_SECONDS,
    ) -> None:
        """Subscribe to the queue that the broker calls `queue` and we call `name`."""
        self._connection = connection
        self._queue, self._name = queue, name
        self._receiver = receiver
        self._prefetch = min(max(0, prefetch), MOST_PREFETCH)
        self._closed = closed
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._hold: Hold | None = None
        self._generation = 0
        self._asked = False
        self._number = 0
        self._stopped = False
        self._called = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._keeper = self._loop.create_task(self._keep())

    @property
    def held(self) -> int:
        """How many jobs are in our hands."""
        return 0 if self._hold is None else len(self._hold)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Remove these jobs."""
        hold = self._hold
        if hold is not None:
            orphans = hold.orphans
            for delivery in deliveries:
                hold.ack(delivery.tag - hold.base)
            self._look_again(hold, orphans)

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return these jobs to the queue."""
        hold = self._hold
        if hold is not None:
            orphans = hold.orphans
            for delivery in deliveries:
                hold.hand_back(delivery.tag - hold.base)
            self._look_again(hold, orphans)

    def set_prefetch(self, jobs: int) -> None:
        """Bound how many jobs may be in our hands."""
        self._prefetch = min(max(0, jobs), MOST_PREFETCH)
        self._asked = True
        self._called.set()

    async def stop(self) -> None:
        """End deliveries for good; the channel stays for acknowledgements."""
        self._stopped = True
        self._called.set()
        await self._quiet.wait()

    async def close(self) -> None:
        """Let go; the broker takes back what is still in our hands."""
        self._stopped = True
        hold = self._hold
        if hold is not None:
            hold.say()
            with contextlib.suppress(*TROUBLE):
                async with asyncio.timeout(RPC_SECONDS):
                    await hold.channel.flush()
        await end(self._keeper)
        self._closed(self)

    @property
    def _wanted(self) -> int:
        return 0 if self._stopped else self._prefetch

    def _look_again(self, hold: Hold, orphans: int) -> None:
        """See whether there is room for a consumer now that fewer jobs have none."""
        if hold.orphans != orphans:
            self._called.set()

    async def _keep(self) -> None:
        """Hold a channel whenever there is a connection."""
        backoff = Backoff(longest=_LONGEST_PAUSE)
        while not self._stopped:
            connection = await self._connection.standing()
            try:
                hold = await self._open(connection)
            except TROUBLE:
                await backoff.pause()
                continue
            try:
                await self._serve(hold, backoff)
            except TROUBLE as error:
                logger.warning("%s: the subscription is interrupted: %s", self._queue, error)
            except asyncio.CancelledError:
                await self._let_go(hold)
                raise
            self._receiver.lost()
            await self._let_go(hold)
            await backoff.pause()

    async def _open(self, connection: Connection) -> Hold:
        channel = await LeanChannel.opened(connection)
        self._generation += 1
        hold = Hold(channel, self._generation)
        channel.on_message = lambda message: self._arrived(hold, message)
        channel.on_consumer_cancel_callbacks.add(lambda _: self._give_up(hold))
        channel.closing.add_done_callback(lambda _: self._called.set())
        self._hold = hold
        return hold

    async def _let_go(self, hold: Hold) -> None:
        self._hold = None
        self._quiet.set()
        with contextlib.suppress(*TROUBLE):
            await hold.channel.close(timeout=RPC_SECONDS)

    async def _serve(self, hold: Hold, backoff: Backoff) -> None:
        """Keep the consumers as wanted until the channel is gone."""
        while not (hold.channel.is_closed or hold.given_up):
            self._called.clear()
            await self._converge(hold)
            backoff.worked()
            try:
                async with asyncio.timeout(self._watch):
                    await self._called.wait()
            except TimeoutError:
                await self._check(hold)

    async def _converge(self, hold: Hold) -> None:
        asked = False
        while True:
            shares = [consumer.share for consumer in hold.consumers.values()]
            asked, self._asked = asked or self._asked, False
            step = change(self._wanted, shares, hold.orphans, asked=asked)
            if step == NO_CHANGE:
                break
            for consumer_tag in list(hold.consumers)[len(shares) - step.ended :]:
                await hold.channel.basic_cancel(consumer_tag, timeout=RPC_SECONDS)
                hold.ended(consumer_tag)
            if step.begun:
                await self._begin(hold, step.begun)
        if hold.consumers:
            self._quiet.clear()
        else:
            self._quiet.set()

    async def _begin(self, hold: Hold, share: int) -> None:
        self._quiet.clear()
        self._number += 1
        consumer_tag = f"nq-{self._number}"
        await hold.channel.basic_qos(prefetch_count=share, timeout=RPC_SECONDS)
        hold.consumers[consumer_tag] = Consumer(share)
        await hold.channel.basic_consume(
            self._queue, unused, consumer_tag=consumer_tag, timeout=RPC_SECONDS
        )

    async def _check(self, hold: Hold) -> None:
        """Give the channel up if the broker has fewer consumers than we have here."""
        declared = await hold.channel.queue_declare(self._queue, passive=True, timeout=RPC_SECONDS)
        if (declared.consumer_count or 0) < len(hold.consumers):
            logger.warning("%s: the broker has forgotten our consumer", self._queue)
            self._give_up(hold)

    def _give_up(self, hold: Hold) -> None:
        """Have the keeper end this channel and open the next."""
        hold.given_up = True
        self._called.set()

    def _arrived(self, hold: Hold, message: DeliveredMessage) -> None:
        tag = message.delivery_tag or 0
        hold.took(tag, message.consumer_tag or "")
        if not self._wanted:
            hold.hand_back(tag)
            return
        job = incoming(message, self._name)
        if not hold.arrived:
            self._loop.call_soon(self._pass_on, hold)
        hold.arrived.append(Delivery(job, hold.base + tag, bool(message.redelivered)))

    def _pass_on(self, hold: Hold) -> None:
        arrived, hold.arrived = hold.arrived, []
        if hold is self._hold:
            self._receiver.deliver(arrived)


async def unused(_: DeliveredMessage) -> None:
    """Satisfy aiormq: deliveries take the lean way."""
