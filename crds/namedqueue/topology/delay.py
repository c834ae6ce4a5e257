"""The delay stage: one exchange and one queue for each level of the ladder.

`namedqueue.ladder` says why a ladder and how a job finds its way down; here its rungs become
objects on the broker.
"""

from namedqueue import ladder
from namedqueue.api.durations import Duration
from namedqueue.api.namedqueue import NamedQueueSpec
from namedqueue.topology.model import (
    Arguments,
    Binding,
    Exchange,
    Queue,
    Stage,
    Topology,
    combine,
)
from namedqueue.topology.names import Names


def has_ladder(spec: NamedQueueSpec) -> bool:
    """Tell whether a queue can delay jobs; to any other a delayed enqueue is refused."""
    return spec.type == "durable" and spec.durable_or_default.fifo is None


def stage(names: Names, levels: int) -> Topology:
    """Return a ladder of so many levels above the main exchange.

    Levels are quorum queues under either storage. Only those dead-letter at least once: a classic
    level would lose its job if the broker died in between, or if the main queue was full.
    """
    return combine(*(_level(names, number) for number in range(levels)))


def _level(names: Names, number: int) -> Topology:
    name, below = names.level(number), names.below(number)
    held = Duration.of_milliseconds(ladder.hold_ms(number))
    return Topology(
        exchanges=(
            Exchange(
                name=name,
                type="topic",
                stage=Stage.DELAY,
                purpose=f"reads bit {number} of the delay",
            ),
        ),
        queues=(
            Queue(
                name=name,
                arguments=_arguments(number, below),
                stage=Stage.DELAY,
                purpose=f"holds a job for {held}, then sends it on to {below}",
            ),
        ),
        bindings=(
            Binding(
                source=name,
                destination=name,
                to="queue",
                routing_key=ladder.wait_pattern(number),
                stage=Stage.DELAY,
                purpose=f"bit {number} is set: wait here",
            ),
            Binding(
                source=name,
                destination=below,
                to="exchange",
                routing_key=ladder.skip_pattern(number),
                stage=Stage.DELAY,
                purpose=f"bit {number} is clear: go on at once",
            ),
        ),
    )


def _arguments(number: int, below: str) -> Arguments:
    """Say what a level is; none of it depends on the retry policy or on other levels."""
    return Arguments(
        {
            "x-queue-type": "quorum",
            "x-message-ttl": ladder.hold_ms(number),
            "x-dead-letter-exchange": below,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
    )
