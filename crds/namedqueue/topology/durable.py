"""A durable queue: main, delay ladder and dead letters.

A job stays in the main queue until it is acked. A failed one goes through the ladder and comes
back; a hopeless one goes to the dead letters. What the broker itself takes out of the main queue,
because it expired or was delivered too often, follows the queue's dead-letter exchange.
"""

from namedqueue import ladder
from namedqueue.api.namedqueue import Durable, NamedQueueSpec
from namedqueue.topology import dead_letters, delay, redrive, versions
from namedqueue.topology.model import (
    Arguments,
    Binding,
    Exchange,
    Policy,
    Queue,
    Stage,
    Topology,
    Value,
    combine,
)
from namedqueue.topology.names import Names, exactly
from namedqueue.topology.versions import Version

DELIVERY_LIMIT = 20
"""How often a job may come back without an ack before it is taken for poison.

Attempts are counted by us and begin anew in each copy; this bounds only jobs whose worker dies. It
leaves room for jobs that a pod hands back when it stops, which brokers before 4.3 count as well.
"""

ACK_MARGIN_MS = 60_000
"""What a pod may need beyond the handler's own time: waiting for a slot, a batch, a confirm."""


def stages(names: Names, spec: NamedQueueSpec, version: Version) -> Topology:
    """Return all stages of a durable queue that is not FIFO."""
    return combine(
        dead_letters.stage(names, spec.dead_letter, version),
        _main(names, spec, version),
        delay.stage(names, ladder.levels_for(spec.retry)),
        redrive.stage(names),
    )


def main_policy(
    names: Names, pattern: str, spec: NamedQueueSpec, version: Version, longest_hold_ms: int
) -> Topology:
    """Return the policy of the queues that jobs wait in, FIFO or not."""
    durable = spec.durable_or_default
    timeout, timeout_notes = versions.consumer_timeout(version, longest_hold_ms)
    storage, storage_notes = _by_storage(durable, version)
    policy = Policy(
        name=names.main,
        pattern=pattern,
        definition=Arguments({**_limits(durable), **storage, **timeout}),
        stage=Stage.MAIN,
        purpose="what may change while jobs wait: limits, expiry, time to ack",
    )
    return Topology(policies=(policy,), notes=timeout_notes + storage_notes)


def quorum_arguments(names: Names) -> dict[str, Value]:
    """Return what every quorum queue that jobs wait in is born with.

    The dead-letter exchange is an argument although a policy could name it: the delivery limit
    drops jobs where there is none, and a policy can be edited away.
    """
    return {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": names.dead_letters,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def _main(names: Names, spec: NamedQueueSpec, version: Version) -> Topology:
    exchange = Exchange(
        name=names.main_exchange,
        type="fanout",
        stage=Stage.MAIN,
        purpose="takes new jobs, and jobs whose delay is over",
    )
    queue = Queue(
        name=names.main,
        arguments=Arguments(_main_arguments(names, spec.durable_or_default)),
        stage=Stage.MAIN,
        purpose="jobs wait here for a worker",
    )
    binding = Binding(
        source=exchange.name,
        destination=queue.name,
        to="queue",
        stage=Stage.MAIN,
        purpose="every job",
    )
    objects = Topology(exchanges=(exchange,), queues=(queue,), bindings=(binding,))
    policy = main_policy(names, exactly(names.main), spec, version, _longest_hold_ms(spec))
    return combine(objects, policy)


def _main_arguments(names: Names, durable: Durable) -> dict[str, Value]:
    if durable.storage == "quorum":
        return quorum_arguments(names)
    priorities = {"x-max-priority": durable.max_priority} if durable.max_priority else {}
    return {
        "x-queue-type": "classic",
        "x-dead-letter-exchange": names.dead_letters,
        "x-overflow": "reject-publish",
        **priorities,
    }


def _limits(durable: Durable) -> dict[str, Value]:
    limits: dict[str, Value] = {"overflow": "reject-publish"}
    if durable.max_length is not None:
        limits["max-length"] = durable.max_length
    if durable.message_ttl is not None:
        limits["message-ttl"] = durable.message_ttl.milliseconds
    return limits


def _by_storage(durable: Durable, version: Version) -> tuple[versions.Settings, tuple[str, ...]]:
    """Return what only one kind of storage knows; a foreign key would void the whole policy."""
    if durable.storage == "quorum":
        return {"delivery-limit": DELIVERY_LIMIT}, ()
    return versions.lazy_mode(version) if durable.mode == "lazy" else ({}, ())


def _longest_hold_ms(spec: NamedQueueSpec) -> int:
    """Return how long a healthy worker may keep a job without an ack."""
    if spec.worker is None:
        return 0
    waits = spec.worker.batch.max_wait.milliseconds if spec.worker.batch else 0
    return spec.worker.timeout.milliseconds + waits + ACK_MARGIN_MS
