"""The broker port on RabbitMQ: one vhost, and two connections to it.

Publishing and consuming have a connection each, because a broker in alarm stops reading from those
that publish, and acknowledgements must go on. Each is kept up on its own.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import (
    Depth,
    Publication,
    QueueKey,
    Receiver,
    Settled,
)
from namedqueue_sidecar.brokers.rabbitmq.connection import SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.credentials import Provider
from namedqueue_sidecar.brokers.rabbitmq.dead_letters import RabbitMQDeadLetters
from namedqueue_sidecar.brokers.rabbitmq.declaring import Declarer
from namedqueue_sidecar.brokers.rabbitmq.log import RabbitMQLog
from namedqueue_sidecar.brokers.rabbitmq.management import Management
from namedqueue_sidecar.brokers.rabbitmq.partitions import PartitionedSubscription
from namedqueue_sidecar.brokers.rabbitmq.publishing import DEADLINE, Publisher
from namedqueue_sidecar.brokers.rabbitmq.subscription import WATCH_SECONDS, RabbitMQSubscription


class RabbitMQBroker:
    """A vhost of a RabbitMQ."""

    def __init__(
        self,
        credentials: Provider,
        *,
        vhost: str = "/",
        management_url: str | None = None,
        name: str = "namedqueue",
        deadline: float = DEADLINE,
        watch: float = WATCH_SECONDS,
    ) -> None:
        """Ask `credentials` before each connection; settle each batch within `deadline`."""
        self._credentials = credentials
        self._vhost = vhost
        self._watch = watch
        management = Management(management_url, credentials) if management_url else None
        self._publishing = SupervisedConnection(credentials, vhost, f"{name} publishing")
        self._consuming = SupervisedConnection(credentials, vhost, f"{name} consuming")
        self._publisher = Publisher(self._publishing, deadline)
        self._declarer = Declarer(self._consuming, vhost, management)
        self._logs: dict[QueueKey, RabbitMQLog] = {}
        self._turns: dict[QueueKey, asyncio.Lock] = {}
        self._subscriptions: dict[RabbitMQSubscription, QueueKey] = {}

    async def open(self) -> None:
        """Connect; returns when both connections stand. Why they do not is in `unavailable`."""
        self._publishing.start()
        self._consuming.start()
        self._publisher.start()
        await self._publisher.ready()
        await self._consuming.standing()

    async def close(self) -> None:
        """Settle what is on its way, let the subscriptions go, then the connections."""
        await asyncio.gather(*(log.close() for log in self._logs.values()))
        await self._publisher.close()
        await asyncio.gather(*(each.close() for each in tuple(self._subscriptions)))
        await asyncio.gather(self._publishing.close(), self._consuming.close())

    async def declare(self, queue: NamedQueue) -> None:
        """Make the queue exist as specified."""
        await self._declarer.declare(queue)

    async def undeclare(self, queue: QueueKey) -> None:
        """Forget a queue and all that is in it."""
        names = Names(queue.namespace, queue.name)
        if log := self._logs.pop(queue, None):
            await log.close()
        await self._declarer.undeclare(names)
        self._publisher.forget_all_of(names)

    @property
    def unavailable(self) -> str | None:
        """Why publishing cannot work right now, as a sentence; None if it can."""
        return self._publisher.problem

    def unavailable_for(self, queue: QueueKey | None) -> str | None:  # noqa: ARG002  # all have one fate
        """Why nothing can be sent to a queue, as a sentence; None if it can."""
        return self.unavailable

    @property
    def interrupted(self) -> str | None:
        """Why no job has come for a while, as a sentence; None if they come."""
        return self._consuming.lasting_problem

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        """Send a batch; `settled` gets one verdict for each, in order."""
        self._publisher.publish(batch, settled)

    def subscribe(
        self, queue: QueueKey, receiver: Receiver, prefetch: int, *, partitions: int = 0
    ) -> RabbitMQSubscription:
        """Begin deliveries, and begin them again by itself after each reconnect."""
        names = Names(queue.namespace, queue.name)
        kind = (
            partial(PartitionedSubscription, partitions=partitions)
            if partitions
            else RabbitMQSubscription
        )
        subscription = kind(
            self._consuming,
            names.main,
            queue.name,
            receiver,
            prefetch,
            closed=self._forget,
            watch=self._watch,
        )
        self._subscriptions[subscription] = queue
        return subscription

    def _forget(self, subscription: RabbitMQSubscription) -> None:
        self._subscriptions.pop(subscription, None)

    async def consumers(self, queue: QueueKey) -> int:
        """Return how many consumers the broker knows."""
        return await self._declarer.consumers(Names(queue.namespace, queue.name))

    async def depth(self, queue: QueueKey) -> Depth | None:
        """Return how many jobs are where; None for a queue that does not exist."""

        def held() -> int:
            return sum(each.held for each, of in self._subscriptions.items() if of == queue)

        return await self._declarer.depth(Names(queue.namespace, queue.name), held)

    def dead_letters(self, queue: QueueKey) -> RabbitMQDeadLetters:
        """Return the queue's dead letters."""
        turn = self._turns.setdefault(queue, asyncio.Lock())
        return RabbitMQDeadLetters(queue, self._credentials, self._vhost, turn)

    def log(self, queue: QueueKey) -> RabbitMQLog:
        """Return a stream's messages and cursors."""
        if queue not in self._logs:
            self._logs[queue] = RabbitMQLog(queue, self._consuming, self._publisher)
        return self._logs[queue]
