"""Batches on their way to the broker, and what it says of them.

The broker numbers the publishes of a channel and answers each number with an ack or a nack, often
many at once; a job that no queue takes comes back as a return before its ack. One timer and one
callback serve a whole batch.

An exchange that does not exist closes the channel, and all that is under way on it with it. So
before the first publish to an exchange the broker is asked whether it is there.
"""

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from aiormq.abc import ConfirmationFrameType, DeliveredMessage
from aiormq.connection import Connection
from aiormq.exceptions import AMQPError, ChannelNotFoundEntity
from pamqp.commands import Basic

from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Publication, Settled, Verdict
from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS, LeanChannel
from namedqueue_sidecar.brokers.rabbitmq.connection import Backoff, SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.frames import content, publish
from namedqueue_sidecar.brokers.rabbitmq.messages import Address, Outgoing, outgoing
from namedqueue_sidecar.ending import end

logger = logging.getLogger(__name__)

DEADLINE: Final = 10.0
_GLANCE: Final = 0.01


class Batch:
    """A batch until each of its publications has a verdict, or its time is over."""

    __slots__ = ("_left", "_settled", "_timer", "_under_way", "_verdicts")

    def __init__(
        self, size: int, settled: Settled, deadline: float, under_way: set["Batch"]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._verdicts: list[Verdict | None] = [None] * size
        self._left = size
        self._settled = settled
        self._under_way = under_way
        self._timer = loop.call_later(deadline if size else 0.0, self.give_up)
        under_way.add(self)

    def judge(self, index: int, verdict: Verdict) -> None:
        """Note what the broker said of a publication; the first word counts."""
        if self._verdicts[index] is None:
            self._verdicts[index] = verdict
            self._left -= 1
            if not self._left:
                self.give_up()

    def give_up(self) -> None:
        """Settle, once; what has no verdict may have arrived or not."""
        if self in self._under_way:
            self._under_way.remove(self)
            self._timer.cancel()
            self._settled([verdict or Verdict.UNKNOWN for verdict in self._verdicts])


class _Sent(NamedTuple):
    batch: Batch
    place: int
    address: Address
    message_id: str


class Line:
    """One channel of numbered publishes, from its opening to its end."""

    def __init__(self, channel: LeanChannel, connection: Connection) -> None:
        self.connection = connection
        self.known: set[str] = set()
        self._channel = channel
        self._number = 0
        self._lowest = 1
        self._sent: dict[int, _Sent] = {}
        self._returned: set[int] = set()
        channel.on_confirm = self._confirmed
        channel.on_return = self._came_back

    def send(self, batch: Batch, messages: Sequence[Outgoing | None]) -> None:
        """Write a batch; what cannot be written, or has nowhere to go, is unroutable."""
        for index, message in enumerate(messages):
            if message is None or message.address.exchange not in self.known:
                batch.judge(index, Verdict.UNROUTABLE)
            else:
                self._publish(batch, index, message)

    def _publish(self, batch: Batch, index: int, message: Outgoing) -> None:
        channel = self._channel
        try:
            method = publish(channel.number, *message.address)
        except ValueError:
            logger.exception("a job cannot be written as an AMQP message")
            batch.judge(index, Verdict.UNROUTABLE)
            return
        self._number += 1
        self._sent[self._number] = _Sent(batch, index, message.address, message.message_id)
        rest = content(channel.number, message.header, message.body, channel.max_content_size)
        channel.send(method + rest)

    def abandon(self) -> None:
        """Settle what is under way: nobody will ever say what became of it."""
        reason = self._reason()
        for sent in self._sent.values():
            missing = f"'{sent.address.exchange}'" in reason
            sent.batch.judge(sent.place, Verdict.UNROUTABLE if missing else Verdict.UNKNOWN)
        self._sent.clear()

    def _reason(self) -> str:
        """Return the broker's words if it ended the channel for an exchange that is not there."""
        closing = self._channel.closing
        if not closing.done() or closing.cancelled():
            return ""
        reason = closing.exception()
        return str(reason) if isinstance(reason, ChannelNotFoundEntity) else ""

    def _confirmed(self, frame: ConfirmationFrameType) -> None:
        verdict = Verdict.CONFIRMED if isinstance(frame, Basic.Ack) else Verdict.FULL
        last = frame.delivery_tag or 0
        first = self._lowest if frame.multiple else last  # type: ignore[union-attr]  # never a reject
        for number in range(first, last + 1):
            sent = self._sent.pop(number, None)
            if sent is None:
                continue
            if number in self._returned:
                self._returned.discard(number)
                sent.batch.judge(sent.place, Verdict.UNROUTABLE)
            else:
                sent.batch.judge(sent.place, verdict)
        if first == self._lowest:
            self._lowest = last + 1

    def _came_back(self, message: DeliveredMessage) -> None:
        """Mark the publish that a return belongs to.

        A return has no number. Publishes to one address under one id share their fate, and returns
        come in the order of publishes, so the first of them is the one that is meant.
        """
        address = Address(message.exchange or "", message.routing_key or "")
        message_id = message.header.properties.message_id or ""
        for number, sent in self._sent.items():
            if (
                sent.message_id == message_id
                and sent.address == address
                and number not in self._returned
            ):
                self._returned.add(number)
                return


class Publisher:
    """Publishes on a connection of its own, which an alarm may block without hurting acks."""

    def __init__(self, connection: SupervisedConnection, deadline: float = DEADLINE) -> None:
        self._connection = connection
        self._deadline = deadline
        self._line: Line | None = None
        self._opened = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._under_way: set[Batch] = set()
        self._checks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def ready(self) -> None:
        """Wait until something can be published."""
        await self._opened.wait()

    @property
    def problem(self) -> str | None:
        """Why nothing can be published, as a sentence."""
        problem = self._connection.problem
        if problem is None and self._line is None:
            return "the broker has not yet opened a channel for publishing"
        return problem

    def forget_all_of(self, names: Names) -> None:
        """Ask again about a queue's exchanges before the next publish to one of them."""
        if self._line is not None:
            self._line.known = {each for each in self._line.known if not names.own(each)}

    def publish(self, publications: Sequence[Publication], settled: Settled) -> None:
        """Send a batch of publications; see `send`."""
        self.send([_written(publication) for publication in publications], settled)

    def send(self, messages: Sequence[Outgoing | None], settled: Settled) -> None:
        """Send a batch, or settle it as unknown if that cannot work now.

        While the broker blocks publishers nothing is written: it would arrive after all, long
        after its sender was told otherwise and sent it again.
        """
        loop = asyncio.get_running_loop()
        line = self._line
        if line is None or self.problem is not None:
            loop.call_soon(settled, [Verdict.UNKNOWN] * len(messages))
            return
        batch = Batch(len(messages), settled, self._deadline, self._under_way)
        asked = {message.address.exchange for message in messages if message} - line.known
        if not asked:
            line.send(batch, messages)
            return
        check = loop.create_task(self._check_and_send(line, batch, messages, asked))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)

    async def close(self) -> None:
        """Wait for what is under way, at most for its deadline, and let go."""
        while self._under_way:  # noqa: ASYNC110 - a glance at the end, not a cost for each batch
            await asyncio.sleep(_GLANCE)
        if self._keeper is not None:
            await end(self._keeper)

    async def _check_and_send(
        self, line: Line, batch: Batch, messages: Sequence[Outgoing | None], asked: set[str]
    ) -> None:
        try:
            for exchange in asked:
                if await _exists(line.connection, exchange):
                    line.known.add(exchange)
        except (AMQPError, OSError, RuntimeError, TimeoutError):
            batch.give_up()  # the connection is on its way out
        else:
            line.send(batch, messages)

    async def _keep(self) -> None:
        """Keep a channel open for as long as there is a connection."""
        backoff = Backoff()
        while True:
            connection = await self._connection.standing()
            try:
                channel = await LeanChannel.opened(connection, confirms=True)
            except (AMQPError, OSError, RuntimeError, TimeoutError):
                await backoff.pause()
                continue
            self._line = line = Line(channel, connection)
            self._opened.set()
            backoff.worked()
            try:
                await asyncio.wait([channel.closing])
            finally:
                self._line = None
                self._opened.clear()
                line.abandon()
            if connection is self._connection.current:
                await backoff.pause()  # the broker ended the channel alone


async def _exists(connection: Connection, exchange: str) -> bool:
    channel = await LeanChannel.opened(connection)
    try:
        await channel.exchange_declare(exchange, passive=True, timeout=RPC_SECONDS)
    except ChannelNotFoundEntity:
        return False
    finally:
        await channel.close()
    return True


def _written(publication: Publication) -> Outgoing | None:
    """Return the message of a publication, or None if AMQP cannot carry it."""
    try:
        return outgoing(publication)
    except (ValueError, TypeError, OverflowError, struct.error):
        logger.exception("a job cannot be written as an AMQP message")
        return None
