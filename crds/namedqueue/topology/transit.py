"""The policy of the stages that jobs only pass through: the delay ladder and the redrive stage.

Neither needs a setting that changes, but a queue without a policy would fall to somebody's
catch-all, whose time-to-live or length limit would break it. RabbitMQ refuses an empty policy.

One policy serves all queues of a vhost, because policies are dear: to set one, RabbitMQ holds every
queue of the vhost against every policy of it. It is there for every queue, whether it has such
stages or not, so that all queues of a vhost agree on what they share.
"""

from namedqueue.topology import versions
from namedqueue.topology.model import Arguments, Policy, Stage, Topology
from namedqueue.topology.names import TRANSIT
from namedqueue.topology.versions import Version


def policy(version: Version) -> Topology:
    """Return the one policy; redrives that are cut short do not count as deliveries."""
    return Topology(
        policies=(
            Policy(
                name=TRANSIT,
                pattern=r"^nq\.[^.]+\.[^.]+\.(delay\.[0-9]+|redrive)$",
                definition=Arguments(
                    {"overflow": "reject-publish", **versions.unlimited_deliveries(version)}
                ),
                stage=Stage.REDRIVE,
                purpose="keeps catch-all policies off the ladders and redrives of the whole vhost",
            ),
        )
    )
