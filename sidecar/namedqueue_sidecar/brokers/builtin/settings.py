"""What a manifest means for keeping jobs, and the messages of a stream. Pure."""

from namedqueue import ladder
from namedqueue.api.namedqueue import NamedQueue, NamedQueueSpec
from namedqueue.topology.delay import has_ladder
from namedqueue_sidecar.brokers.builtin.storage import Retention, Settings


def settings_of(queue: NamedQueue) -> Settings:
    """Return the settings of a queue or a stream."""
    return (_stream if queue.spec.type == "stream" else _queue)(queue.spec)


def _queue(spec: NamedQueueSpec) -> Settings:
    durable = spec.durable_or_default
    longest_delay_ms = ladder.maximum_ms(ladder.levels_for(spec.retry)) if has_ladder(spec) else 0
    return Settings(
        max_length=durable.max_length,
        message_ttl_ms=durable.message_ttl.milliseconds if durable.message_ttl else None,
        max_priority=durable.max_priority,
        longest_delay_ms=longest_delay_ms,
        retention_ms=spec.dead_letter.retention.milliseconds,
        subscriptions=_topics(spec),
        fifo=durable.fifo is not None,
        idle_expiry_ms=_idle_expiry_ms(spec),
    )


def _stream(spec: NamedQueueSpec) -> Settings:
    stream = spec.stream_or_default
    return Settings(
        max_length=None,
        message_ttl_ms=None,
        max_priority=0,
        longest_delay_ms=0,
        retention_ms=0,
        subscriptions=_topics(spec),
        stream=Retention(
            max_age_ms=None if stream.max_age is None else stream.max_age.milliseconds,
            max_bytes=None if stream.max_bytes is None else stream.max_bytes.bytes,
            max_messages=stream.max_messages,
        ),
    )


def _topics(spec: NamedQueueSpec) -> tuple[str, ...]:
    return tuple(subscription.topic for subscription in spec.subscriptions)


def _idle_expiry_ms(spec: NamedQueueSpec) -> int | None:
    if spec.type != "ephemeral":
        return None
    return spec.ephemeral_or_default.idle_expiry.milliseconds
