"""The dead-letter stage: where a job that failed for good waits for a person.

It is the floor that all other stages stand on, so it depends on nothing and is made first.
"""

from namedqueue.api.namedqueue import DeadLetter
from namedqueue.topology import versions
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
from namedqueue.topology.versions import Version

_ARGUMENTS = Arguments({"x-queue-type": "quorum", "x-overflow": "reject-publish"})


def stage(names: Names, dead_letter: DeadLetter, version: Version) -> Topology:
    """Return the exchange and the queue of the dead letters.

    The queue is a quorum queue under either storage: these are the jobs that nobody has a second
    copy of. It refuses rather than drops when a limit set by someone else is reached, and reading
    a letter without taking it never counts against it.
    """
    name = names.dead_letters
    definition = {
        "message-ttl": dead_letter.retention.milliseconds,
        **versions.unlimited_deliveries(version),
    }
    return Topology(
        exchanges=(
            Exchange(
                name=name,
                type="fanout",
                stage=Stage.DEAD_LETTER,
                purpose="takes jobs that failed for good, expired or killed their worker",
            ),
        ),
        queues=(
            Queue(
                name=name,
                arguments=_ARGUMENTS,
                stage=Stage.DEAD_LETTER,
                purpose="keeps them until they are redriven or discarded",
            ),
        ),
        bindings=(
            Binding(
                source=name,
                destination=name,
                to="queue",
                stage=Stage.DEAD_LETTER,
                purpose="every dead letter",
            ),
        ),
        policies=(
            Policy(
                name=name,
                pattern=exactly(name),
                definition=Arguments(definition),
                stage=Stage.DEAD_LETTER,
                purpose=f"dead letters are kept for {dead_letter.retention}",
            ),
        ),
    )
