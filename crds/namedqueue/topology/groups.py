"""What a stream's groups need beside its log: where they keep their cursors, and who reads.

The cursors are a log of their own. Whoever commits appends to it and everyone follows it, so any
number of groups comes and goes without a new object on the broker.

A pushed group is read by one pod at a time. Each has a queue with a single active consumer, in
which lies a token: the pod that is given the token reads for the group, and when its connection
ends the broker gives the token to the next one.

Neither holds jobs, so neither keeps a stream from being deleted (`names.holds_jobs`).
"""

from typing import Final

from namedqueue.api.namedqueue import Stream
from namedqueue.topology import versions
from namedqueue.topology.model import (
    Arguments,
    Binding,
    Exchange,
    Policy,
    Queue,
    Stage,
    Topology,
    combine,
)
from namedqueue.topology.names import Names, exactly, quote
from namedqueue.topology.versions import Version

CURSOR_BYTES: Final = 16 * 1024**2
"""How much of the log of cursors is kept; all groups are written down anew far more often."""

_CURSOR_SEGMENT: Final = 1024**2


def stage(names: Names, stream: Stream, version: Version) -> Topology:
    """Return the cursors of all groups and the tokens of the pushed ones."""
    if not stream.consumers:
        return _cursors(names)
    tokens = [_token(names, consumer.group) for consumer in stream.consumers]
    return combine(_cursors(names), _readers(names, version), *tokens)


def _cursors(names: Names) -> Topology:
    """Return the log of cursors.

    Its retention never changes, so it is born with it; the policy keeps catch-all policies off,
    one of which might drop cursors by age.
    """
    name = names.cursors
    return Topology(
        exchanges=(
            Exchange(
                name=name,
                type="fanout",
                stage=Stage.GROUPS,
                purpose="takes how far each group has read",
            ),
        ),
        queues=(
            Queue(
                name=name,
                arguments=Arguments(
                    {
                        "x-queue-type": "stream",
                        "x-max-length-bytes": CURSOR_BYTES,
                        "x-stream-max-segment-size-bytes": _CURSOR_SEGMENT,
                    }
                ),
                stage=Stage.GROUPS,
                purpose="the log of cursors, followed by whoever reads the stream",
            ),
        ),
        bindings=(
            Binding(
                source=name,
                destination=name,
                to="queue",
                stage=Stage.GROUPS,
                purpose="every cursor",
            ),
        ),
        policies=(
            Policy(
                name=name,
                pattern=exactly(name),
                definition=Arguments({"max-length-bytes": CURSOR_BYTES}),
                stage=Stage.GROUPS,
                purpose="keeps catch-all policies off the cursors",
            ),
        ),
    )


def _readers(names: Names, version: Version) -> Topology:
    definition = {"overflow": "reject-publish", **versions.unlimited_deliveries(version)}
    return Topology(
        exchanges=(
            Exchange(
                name=names.readers,
                type="direct",
                stage=Stage.GROUPS,
                purpose="takes the tokens of pods that wish to read for a group",
            ),
        ),
        policies=(
            Policy(
                name=names.readers,
                pattern=rf"^{quote(names.readers)}\.[a-z0-9-]+$",
                definition=Arguments(definition),
                stage=Stage.GROUPS,
                purpose="keeps catch-all policies off, and tokens however often they change hands",
            ),
        ),
    )


def _token(names: Names, group: str) -> Topology:
    queue = Queue(
        name=names.reader(group),
        arguments=Arguments({"x-queue-type": "quorum", "x-single-active-consumer": True}),
        stage=Stage.GROUPS,
        purpose=f"whoever holds its token reads for group {group}",
    )
    binding = Binding(
        source=names.readers,
        destination=queue.name,
        to="queue",
        routing_key=group,
        stage=Stage.GROUPS,
        purpose=f"tokens of group {group}",
    )
    return Topology(queues=(queue,), bindings=(binding,))
