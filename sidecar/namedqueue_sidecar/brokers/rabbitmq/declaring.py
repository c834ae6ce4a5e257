"""Making queues exist, and forgetting them.

In a cluster the operator declares; this is for `nq run --broker` and for tests. The same compiler
says what shall be there and the same order makes it, through AMQP. Policies need the management
API; without it a queue has its stages, its delays and its dead letters, but no limits that change.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity
from pamqp.commands import Queue

from namedqueue import ladder, topology
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.topology.actions import (
    Action,
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeletePolicy,
    SetPolicy,
)
from namedqueue.topology.management import request
from namedqueue.topology.model import Arguments, Binding, Policy
from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Depth
from namedqueue_sidecar.brokers.rabbitmq.channel import RPC_SECONDS, LeanChannel
from namedqueue_sidecar.brokers.rabbitmq.connection import SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.management import Management

logger = logging.getLogger(__name__)

_GLANCE: Final = 0.05


class Declarer:
    """Declares, deletes and counts in one vhost."""

    def __init__(
        self, connection: SupervisedConnection, vhost: str, management: Management | None
    ) -> None:
        self._connection = connection
        self._vhost = vhost
        self._management = management
        self._readers: dict[Names, tuple[str, ...]] = {}

    async def declare(self, queue: NamedQueue) -> None:
        """Make everything that a queue consists of, each thing after what it leads to."""
        connection = await self._connection.standing()
        version = topology.Version.parse(str(connection.server_properties.get("version")))
        broker = topology.Broker(
            version=version, tenancy=topology.Tenancy.SHARED, vhost=self._vhost
        )
        desired = topology.compile(queue, broker)
        names = Names(queue.metadata.namespace, queue.metadata.name)
        groups = queue.spec.stream.consumers if queue.spec.stream else ()
        self._readers[names] = tuple(names.reader(each.group) for each in groups)
        try:
            async with self._channel() as channel:
                for action in topology.diff(topology.NOTHING, desired):
                    await self._apply(channel, action)
        except ChannelAccessRefused:
            raise PermissionError("the broker does not let our account declare queues") from None

    async def undeclare(self, names: Names) -> None:
        """Delete all that a queue may consist of, entrances first.

        The readers of a stream's groups are known only to who declared it.
        """
        levels = [names.level(number) for number in range(ladder.HIGHEST_LEVELS)]
        readers = self._readers.pop(names, ())
        main = await self._main(names)
        async with self._channel() as channel:
            for exchange in (names.redrive, names.main_exchange, *levels, *_lasting(names)):
                await channel.exchange_delete(exchange, timeout=RPC_SECONDS)
            for queue in (names.redrive, *main, *levels, *_lasting(names), *readers):
                await channel.queue_delete(queue, timeout=RPC_SECONDS)
        for policy in (names.main, *_lasting(names)):
            await self._manage(DeletePolicy(Policy(name=policy, pattern="", definition=_NONE)))

    async def depth(self, names: Names, held: Callable[[], int]) -> Depth | None:
        """Count jobs by stage; `held` are those in flight as far as we know ourselves.

        The stages are asked one after another, and jobs move meanwhile. One that has left a stage
        before it came into our hands must not be missed, so we look at them before and after.
        """
        before = held()
        main = await self._main(names)
        if not main:
            return None
        dead = await self._ready(names.dead_letters) or 0
        waiting = await self._waiting(names)
        in_flight = max(await self._unacknowledged(main), before, held())
        return Depth(sum(main.values()), in_flight, waiting, dead)

    async def _main(self, names: Names) -> dict[str, int]:
        """Return what is ready in the main queue, or in each partition; nothing without either."""
        ready = await self._ready(names.main)
        if ready is not None:
            return {names.main: ready}
        found: dict[str, int] = {}
        for number in count():
            ready = await self._ready(names.partition(number))
            if ready is None:
                break
            found[names.partition(number)] = ready
        return found

    async def _apply(self, channel: LeanChannel, action: Action) -> None:
        match action:
            case DeclareExchange(exchange):
                await channel.exchange_declare(
                    exchange.name,
                    exchange_type=exchange.type,
                    durable=exchange.durable,
                    auto_delete=exchange.auto_delete,
                    arguments=_arguments(exchange.arguments),
                    timeout=RPC_SECONDS,
                )
            case DeclareQueue(queue):
                await channel.queue_declare(
                    queue.name,
                    durable=queue.durable,
                    auto_delete=queue.auto_delete,
                    arguments=_arguments(queue.arguments),
                    timeout=RPC_SECONDS,
                )
            case Bind(binding):
                await _bind(channel, binding)
            case SetPolicy():
                await self._manage(action)
            case _:
                raise RuntimeError(f"a data plane may not {action}")

    async def _manage(self, action: SetPolicy | DeletePolicy) -> None:
        call = request(action, self._vhost)
        if self._management is not None and call is not None:
            await self._management.send(call)
        elif isinstance(action, SetPolicy):
            logger.warning(
                "policy %s is not set: the broker's management address is not known",
                action.policy.name,
            )

    async def _waiting(self, names: Names) -> int:
        waiting = 0
        for number in range(ladder.HIGHEST_LEVELS):
            ready = await self._ready(names.level(number))
            if ready is None:
                break
            waiting += ready
        return waiting

    async def consumers(self, names: Names) -> int:
        """Count the consumers of the main queue or of all partitions."""
        found = [await self._found(queue) for queue in await self._main(names)]
        return sum(each.consumer_count or 0 for each in found if each is not None)

    async def _ready(self, queue: str) -> int | None:
        found = await self._found(queue)
        return None if found is None else found.message_count or 0

    async def _found(self, queue: str) -> Queue.DeclareOk | None:
        try:
            async with self._channel() as channel:
                return await channel.queue_declare(queue, passive=True, timeout=RPC_SECONDS)
        except ChannelNotFoundEntity:
            return None

    async def _unacknowledged(self, queues: Iterable[str]) -> int:
        """Ask the management API, if we have it; its figures are some seconds old."""
        if self._management is None:
            return 0
        found = [await self._management.queue(self._vhost, queue) or {} for queue in queues]
        return sum(int(each.get("messages_unacknowledged", 0)) for each in found)

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[LeanChannel]:
        channel = await self._open()
        try:
            yield channel
        finally:
            await channel.close(timeout=RPC_SECONDS)

    async def _open(self) -> LeanChannel:
        """Open a channel, on the next connection if this one is just going."""
        while True:
            connection = await self._connection.standing()
            with contextlib.suppress(ConnectionError):
                return await LeanChannel.opened(connection)
            await asyncio.sleep(_GLANCE)


def _lasting(names: Names) -> tuple[str, ...]:
    """Name what is left when no job is on its way any more."""
    return (names.dead_letters, names.cursors, names.readers)


async def _bind(channel: LeanChannel, binding: Binding) -> None:
    if binding.to == "queue":
        await channel.queue_bind(
            binding.destination, binding.source, binding.routing_key, timeout=RPC_SECONDS
        )
    else:
        await channel.exchange_bind(
            destination=binding.destination,
            source=binding.source,
            routing_key=binding.routing_key,
            timeout=RPC_SECONDS,
        )


def _arguments(arguments: Arguments) -> dict[str, Any]:
    return dict(arguments)


_NONE = Arguments()
