"""A FIFO queue: partitions that keep the order of jobs within a group.

A consistent-hash exchange sends all jobs of a group to the same partition, and each partition has
one active consumer at a time, so a group is worked on in one place in the order of its arrival.

There is no delay ladder. A failed job is retried in place while its group waits, because a job
that went away and came back would have been overtaken. For the same reason a delayed enqueue
(`NQ-Delay`) to a FIFO queue is refused with 422: «in order» and «later» contradict each other.
`delay.has_ladder` is the one answer to whether a queue takes delayed jobs.
"""

from typing import Final

from namedqueue import ladder
from namedqueue.api.namedqueue import Fifo, NamedQueueSpec
from namedqueue.topology import dead_letters, durable, redrive
from namedqueue.topology.model import (
    Arguments,
    Binding,
    Exchange,
    Queue,
    Stage,
    Topology,
    combine,
)
from namedqueue.topology.names import GROUP_HEADER, Names, quote
from namedqueue.topology.versions import Version

HASH_EXCHANGE = "x-consistent-hash"

LOOK_AHEAD: Final = 32
"""How many jobs of a partition its consumer holds, so that one blocked group stops no other.

A constant, the same in every pod and for ever. A broker gives back in order what one consumer
held, but puts it behind what an earlier one gave back and nobody has taken yet. A consumer that
takes as many as any other takes all of that at once, so there is nothing to fall behind.
"""


def stages(names: Names, spec: NamedQueueSpec, fifo: Fifo, version: Version) -> Topology:
    """Return the partitions and the dead letters of a FIFO queue."""
    pattern = rf"^{quote(names.main)}\.[0-9]+$"
    return combine(
        dead_letters.stage(names, spec.dead_letter, version),
        _main_exchange(names),
        *(_partition(names, number) for number in range(fifo.partitions)),
        durable.main_policy(names, pattern, spec, version, _longest_hold_ms(spec)),
        redrive.stage(names),
    )


def _main_exchange(names: Names) -> Topology:
    exchange = Exchange(
        name=names.main_exchange,
        type=HASH_EXCHANGE,
        arguments=Arguments({"hash-header": GROUP_HEADER}),
        stage=Stage.MAIN,
        purpose=f"sends all jobs of a group (header {GROUP_HEADER}) to the same partition",
    )
    return Topology(exchanges=(exchange,))


def _partition(names: Names, number: int) -> Topology:
    queue = Queue(
        name=names.partition(number),
        arguments=Arguments({**durable.quorum_arguments(names), "x-single-active-consumer": True}),
        stage=Stage.MAIN,
        purpose="jobs of some groups wait here, for one consumer at a time",
    )
    binding = Binding(
        source=names.main_exchange,
        destination=queue.name,
        to="queue",
        routing_key="1",
        stage=Stage.MAIN,
        purpose="an equal share of the groups",
    )
    return Topology(queues=(queue,), bindings=(binding,))


def _longest_hold_ms(spec: NamedQueueSpec) -> int:
    """Return how long a healthy worker may keep a job without an ack.

    All attempts happen in place, and all jobs that are held of a partition may be of one group,
    each waiting for the one before it.
    """
    if spec.worker is None:
        return 0
    once = spec.worker.timeout.milliseconds + ladder.longest_backoff_ms(spec.retry)
    return LOOK_AHEAD * spec.retry.max_attempts * once + durable.ACK_MARGIN_MS
