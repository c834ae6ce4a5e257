"""From a NamedQueue to its topology.

The queue types have separate code paths (`durable`, `fifo`, `stream`, `ephemeral`); what they have
in common is a vhost, what all of its queues share, the topics that lead to their main exchange, and
two users.
"""

from namedqueue.api.namedqueue import NamedQueue, NamedQueueSpec
from namedqueue.topology import (
    durable,
    ephemeral,
    fifo,
    permissions,
    stream,
    subscriptions,
    transit,
)
from namedqueue.topology.broker import Broker, Tenancy
from namedqueue.topology.model import Topology, Vhost, combine
from namedqueue.topology.names import Names
from namedqueue.topology.versions import Version


def compile(queue: NamedQueue, broker: Broker) -> Topology:  # noqa: A001  # «topology.compile»
    """Return everything that shall be on the broker for a NamedQueue.

    The same queue and broker always give an equal topology, and no argument of a queue or an
    exchange depends on the broker's version or on anything that may be edited later.
    """
    names = Names(queue.metadata.namespace, queue.metadata.name)
    shared = broker.tenancy is Tenancy.SHARED
    return combine(
        _stages(names, queue.spec, broker.version),
        subscriptions.bound(names, queue.spec.subscriptions, mqtt_bridge=broker.mqtt_bridge),
        transit.policy(broker.version),
        _in_a_given_vhost(broker.vhost) if shared else permissions.users(names, queue.spec),
        vhost=Vhost(broker.vhost, managed=False) if shared else Vhost(names.vhost),
    )


def _stages(names: Names, spec: NamedQueueSpec, version: Version) -> Topology:
    if spec.type == "stream":
        return stream.stages(names, spec, version)
    if spec.type == "ephemeral":
        return ephemeral.stages(names, spec)
    ordered = spec.durable_or_default.fifo
    if ordered is not None:
        return fifo.stages(names, spec, ordered, version)
    return durable.stages(names, spec, version)


def _in_a_given_vhost(vhost: str) -> Topology:
    note = (
        f"tenancy is shared: the queue lives in vhost {vhost} under the broker account that was "
        "given, so it has no users of its own and shares its topics with the whole vhost"
    )
    return Topology(notes=(note,))
