"""A worker's hold on a FIFO queue: one channel with a consumer for each partition.

A partition has one active consumer, so its jobs are in one pod at a time. RabbitMQ keeps their
order only if they come back to it all at once, by the end of their channel: a single nack puts a
job behind those that are still held, and to cancel a consumer lets the next pod begin while this
one is still at work. So neither is ever done. What is handed back stays on the channel, what
arrives after it joins it unseen, and when nothing else is held the channel is closed and the next
one opened. A pause and a changed prefetch take the same way.

All pods together spread the partitions by giving each pair of pod and partition a priority that
looks random. From RabbitMQ 4.0 the pod with the highest gets the partition, also when it comes
later: the broker waits until the other has finished what it holds. Before 4.0 a partition stays
where it is until its pod lets go, so a pod that comes later only stands by.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection

from namedqueue_sidecar.brokers.port import Delivery
from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS
from namedqueue_sidecar.brokers.rabbitmq.subscription import (
    TROUBLE,
    Consumer,
    Hold,
    RabbitMQSubscription,
    logger,
    unused,
)

_HIGHEST_PRIORITY = 1 << 30


class PartitionedSubscription(RabbitMQSubscription):
    """Deliveries of all partitions of one queue to one receiver."""

    def __init__(self, *arguments: Any, partitions: int, **named: Any) -> None:
        """Subscribe to this many partitions of a queue; the rest is as for any subscription."""
        self._partitions = partitions
        self._priorities = [random.randrange(_HIGHEST_PRIORITY) for _ in range(partitions)]  # noqa: S311 - no secret
        self._begun_with = 0
        self._turning = False
        self._returned: set[int] = set()
        super().__init__(*arguments, **named)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Remove these jobs."""
        super().ack(deliveries)
        if self._hold is not None and self._turning:
            self._turn(self._hold)

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return these jobs to their old place, together with all that is still held."""
        hold = self._hold
        if hold is not None:
            tags = [delivery.tag - hold.base for delivery in deliveries]
            self._returned.update(tag for tag in tags if tag in hold)
            self._turn(hold)

    async def stop(self) -> None:
        """End deliveries for good; what arrives from now on goes back when the channel ends."""
        self._stopped = True

    def _turn(self, hold: Hold) -> None:
        """Take nothing more in; end the channel as soon as all that it holds may go back."""
        self._turning = True
        self._returned.update(delivery.tag - hold.base for delivery in hold.arrived)
        hold.arrived.clear()
        if len(hold) == len(self._returned) and not self._stopped:
            self._give_up(hold)

    async def _open(self, connection: Connection) -> Hold:
        hold = await super()._open(connection)
        self._begun_with = 0
        self._turning = False
        self._returned = set()
        return hold

    async def _let_go(self, hold: Hold) -> None:
        """Have the broker hear what was settled before the channel ends."""
        hold.say()
        with contextlib.suppress(*TROUBLE):
            async with asyncio.timeout(RPC_SECONDS):
                await hold.channel.flush()
        with contextlib.suppress(*TROUBLE):
            async with asyncio.timeout(RPC_SECONDS):
                await super()._let_go(hold)

    async def _converge(self, hold: Hold) -> None:
        if self._stopped or self._turning:
            return
        wanted = self._wanted
        if self._begun_with and wanted != self._begun_with:
            self._turn(hold)
        elif wanted and not self._begun_with:
            self._begun_with = wanted
            await self._begin(hold, -(-wanted // self._partitions))

    async def _begin(self, hold: Hold, share: int) -> None:
        """Consume from all partitions, in any order: pods that start together share them."""
        await hold.channel.basic_qos(prefetch_count=share, timeout=RPC_SECONDS)
        for number in random.sample(range(self._partitions), self._partitions):
            consumer_tag = f"nq-{number}"
            hold.consumers[consumer_tag] = Consumer(share)
            await hold.channel.basic_consume(
                self._partition(number),
                unused,
                consumer_tag=consumer_tag,
                arguments={"x-priority": self._priorities[number]},
                timeout=RPC_SECONDS,
            )

    async def _check(self, hold: Hold) -> None:
        """Give the channel up if a partition has no consumer at all."""
        if not self._begun_with:
            return
        for number in range(self._partitions):
            partition = self._partition(number)
            declared = await hold.channel.queue_declare(
                partition, passive=True, timeout=RPC_SECONDS
            )
            if not declared.consumer_count:
                logger.warning("%s: the broker has forgotten our consumer", partition)
                self._give_up(hold)
                return

    def _arrived(self, hold: Hold, message: DeliveredMessage) -> None:
        if self._wanted and not self._turning:
            super()._arrived(hold, message)
            return
        tag = message.delivery_tag or 0
        hold.took(tag, message.consumer_tag or "")
        self._returned.add(tag)
        self._turn(hold)

    def _pass_on(self, hold: Hold) -> None:
        if hold.arrived:
            super()._pass_on(hold)

    def _partition(self, number: int) -> str:
        return f"{self._queue}.{number}"
