"""Differences between a broker and a NamedQueue that only a person can settle.

Queues and exchanges cannot be changed, only deleted and made anew, and a queue would take its jobs
with it. So a difference in what they were born with is reported with what to do about it.
"""

from collections.abc import Iterator, Mapping

from namedqueue.topology.actions import Conflict
from namedqueue.topology.fifo import HASH_EXCHANGE
from namedqueue.topology.model import Exchange, Queue, Topology

_SETTLE_A_QUEUE = (
    "put the manifest back, or move the jobs away and delete the queue so that it is made anew"
)
_SETTLE_AN_EXCHANGE = (
    "put the manifest back, or delete the exchange while nothing is published so that it is made "
    "anew"
)


def conflicts(observed: Topology, desired: Topology) -> Iterator[Conflict]:
    """Yield what stands in the way of going from one topology to the other."""
    if observed.vhost is not None and desired.vhost not in (None, observed.vhost):
        yield Conflict(
            f"vhost {observed.vhost.name}",
            "is where the queue lives, and it shall live in another one",
            "put the tenancy back, or drain the queue and make a NamedQueue with another name",
        )
    wanted_exchanges = {exchange.name: exchange for exchange in desired.exchanges}
    for exchange in observed.exchanges:
        yield from _born_otherwise(exchange, wanted_exchanges.get(exchange.name))
    wanted_queues = {queue.name: queue for queue in desired.queues}
    for queue in observed.queues:
        yield from _born_otherwise(queue, wanted_queues.get(queue.name))
    yield from _fewer_partitions(observed, desired)


def _born_otherwise(found: Exchange | Queue, wanted: Exchange | Queue | None) -> Iterator[Conflict]:
    if wanted is None or found == wanted:
        return
    queue = isinstance(found, Queue)
    yield Conflict(
        f"{'queue' if queue else 'exchange'} {found.name}",
        f"cannot change: {'; '.join(_differences(_birth(found), _birth(wanted)))}",
        _SETTLE_A_QUEUE if queue else _SETTLE_AN_EXCHANGE,
    )


def _birth(thing: Exchange | Queue) -> dict[str, object]:
    kind = {"type": thing.type} if isinstance(thing, Exchange) else {}
    return {
        **kind,
        "durable": thing.durable,
        "auto-delete": thing.auto_delete,
        **thing.arguments,
    }


def _differences(found: Mapping[str, object], wanted: Mapping[str, object]) -> Iterator[str]:
    for key in sorted({*found, *wanted}):
        if found.get(key) != wanted.get(key):
            yield f"{key} is {found.get(key, 'not set')} and shall be {wanted.get(key, 'not set')}"


def _fewer_partitions(observed: Topology, desired: Topology) -> Iterator[Conflict]:
    """Refuse to take a partition away, which would send groups elsewhere ahead of their own jobs.

    More partitions cannot be told from partitions that were lost, so they are made; the API does
    not let the number change.
    """
    hashing = {it.name for it in desired.exchanges if it.type == HASH_EXCHANGE}
    kept = {binding.destination for binding in desired.bindings}
    for binding in observed.bindings:
        if binding.source in hashing and binding.destination not in kept:
            yield Conflict(
                f"queue {binding.destination}",
                "is a partition of a FIFO queue that shall have fewer of them",
                "put spec.durable.fifo.partitions back, or make a NamedQueue with another name",
            )
