"""An ephemeral queue: best effort, gone when nobody uses it.

One exchange and one queue, with no retries by the broker and no dead letters. Its messages are
published as not persistent and so live in memory and end with the broker. The queue itself is
durable, because RabbitMQ gives up queues that are neither durable nor exclusive; it expires by
policy instead. A delayed enqueue is refused: a delay that a restart forgets is no promise.
"""

from namedqueue.api.namedqueue import NamedQueueSpec
from namedqueue.topology.model import (
    Arguments,
    Binding,
    Exchange,
    Policy,
    Queue,
    Stage,
    Topology,
)
from namedqueue.topology.names import Names, exactly


def stages(names: Names, spec: NamedQueueSpec) -> Topology:
    """Return the queue and the policy that lets it expire."""
    idle_expiry = spec.ephemeral_or_default.idle_expiry
    exchange = Exchange(
        name=names.main_exchange, type="fanout", stage=Stage.MAIN, purpose="takes new jobs"
    )
    queue = Queue(
        name=names.main,
        arguments=Arguments({"x-queue-type": "classic"}),
        stage=Stage.MAIN,
        purpose="jobs wait here, in memory",
    )
    binding = Binding(
        source=exchange.name,
        destination=queue.name,
        to="queue",
        stage=Stage.MAIN,
        purpose="every job",
    )
    policy = Policy(
        name=names.main,
        pattern=exactly(names.main),
        definition=Arguments({"expires": idle_expiry.milliseconds}),
        stage=Stage.MAIN,
        purpose=f"the queue goes when nothing used it for {idle_expiry}",
    )
    return Topology(exchanges=(exchange,), queues=(queue,), bindings=(binding,), policies=(policy,))
