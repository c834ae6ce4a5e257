"""A stream: a log that any number of groups read at their own pace.

Nothing is retried or dead-lettered by the broker, so the log is one exchange and one queue; beside
it is what its groups need (`groups`). A delayed enqueue to a stream is refused: the order of a log
is the order of its arrival.
"""

import math

from namedqueue.api.namedqueue import NamedQueueSpec, Stream
from namedqueue.topology import groups
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

ASSUMED_MESSAGE_BYTES = 1024
"""What a message is taken to weigh where a count has to be kept by size."""

_LARGEST_SEGMENT = 500_000_000
_DEFAULT_SEGMENT = 64 * 1024**2
_SMALLEST_SEGMENT = 1024**2
_SEGMENTS = 16


def stages(names: Names, spec: NamedQueueSpec, version: Version) -> Topology:
    """Return the log with its retention, and what its groups need."""
    stream = spec.stream_or_default
    return combine(_log(names, stream), groups.stage(names, stream, version))


def _log(names: Names, stream: Stream) -> Topology:
    exchange = Exchange(
        name=names.main_exchange,
        type="fanout",
        stage=Stage.MAIN,
        purpose="takes new messages",
    )
    queue = Queue(
        name=names.main,
        arguments=Arguments({"x-queue-type": "stream"}),
        stage=Stage.MAIN,
        purpose="the log; each group reads it from its own position",
    )
    binding = Binding(
        source=exchange.name,
        destination=queue.name,
        to="queue",
        stage=Stage.MAIN,
        purpose="every message",
    )
    policy = Policy(
        name=names.main,
        pattern=exactly(names.main),
        definition=Arguments(_retention(stream)),
        stage=Stage.MAIN,
        purpose="how long the log keeps its messages",
    )
    return Topology(
        exchanges=(exchange,),
        queues=(queue,),
        bindings=(binding,),
        policies=(policy,),
        notes=_notes(stream),
    )


def _retention(stream: Stream) -> dict[str, Value]:
    """Say how much is kept.

    RabbitMQ drops whole segments and always keeps the last one. With its default of 500 MB a small
    log would never lose a message, so the segments follow the size that was asked for.
    """
    most = _most_bytes(stream)
    segment = _DEFAULT_SEGMENT if most is None else most // _SEGMENTS
    segment = min(max(segment, _SMALLEST_SEGMENT), _LARGEST_SEGMENT)
    retention: dict[str, Value] = {"stream-max-segment-size-bytes": segment}
    if stream.max_age is not None:
        retention["max-age"] = f"{math.ceil(stream.max_age.seconds)}s"
    if most is not None:
        retention["max-length-bytes"] = most
    return retention


def _most_bytes(stream: Stream) -> int | None:
    limits = []
    if stream.max_bytes is not None:
        limits.append(stream.max_bytes.bytes)
    if stream.max_messages is not None:
        limits.append(stream.max_messages * ASSUMED_MESSAGE_BYTES)
    return min(limits, default=None)


def _notes(stream: Stream) -> tuple[str, ...]:
    if stream.max_messages is None:
        return ()
    approximated = stream.max_messages * ASSUMED_MESSAGE_BYTES
    note = (
        f"spec.stream.maxMessages ({stream.max_messages}) is approximated: RabbitMQ counts no "
        f"messages in a stream, so it keeps {approximated} bytes, "
        f"{ASSUMED_MESSAGE_BYTES} for each message"
    )
    return (note,)
