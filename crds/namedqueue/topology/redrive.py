"""The redrive stage: what dead letters pass through on their way back to the main stage.

A job that is sent back must be written anew, because its attempts begin again. Whoever publishes it
to the main queue and then removes the dead letter can be killed in between, and nobody could tell
afterwards: a worker may have taken the job already. So it goes in two steps. The first, from the
dead letters to here, may leave a copy in both places, but only redrives read either, so the next
one finds the copy and drops it. The second, from here to main, is the broker's own: a job that is
rejected here is dead-lettered into the main exchange, at least once and in one piece.

One consumer at a time is served, so one redrive at a time sends anything.
"""

from namedqueue.topology.model import (
    Arguments,
    Binding,
    Exchange,
    Queue,
    Stage,
    Topology,
)
from namedqueue.topology.names import Names


def stage(names: Names) -> Topology:
    """Return the exchange and the queue between the dead letters and the main exchange."""
    name = names.redrive
    return Topology(
        exchanges=(
            Exchange(
                name=name,
                type="fanout",
                stage=Stage.REDRIVE,
                purpose="takes dead letters that are sent back",
            ),
        ),
        queues=(
            Queue(
                name=name,
                arguments=_arguments(names),
                stage=Stage.REDRIVE,
                purpose="holds the few jobs that a redrive is moving, then sends them on to main",
            ),
        ),
        bindings=(
            Binding(
                source=name,
                destination=name,
                to="queue",
                stage=Stage.REDRIVE,
                purpose="every job that is sent back",
            ),
        ),
    )


def _arguments(names: Names) -> Arguments:
    return Arguments(
        {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": names.main_exchange,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-single-active-consumer": True,
        }
    )
