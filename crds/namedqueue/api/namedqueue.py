"""The `NamedQueue` resource: what a team writes to get a queue.

The attribute docstrings are the field reference; the CRD and the docs are made from this file.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from namedqueue.api.durations import Duration
from namedqueue.api.fields import (
    DnsLabel,
    ErrorCode,
    KeyPath,
    ObjectName,
    Opaque,
    StartPosition,
    TopicPattern,
)
from namedqueue.api.metadata import ObjectMeta, name_rule
from namedqueue.api.quantities import Quantity
from namedqueue.api.rules import Between, ChangeRule, Model, Rule, Unique
from namedqueue.api.status import NamedQueueStatus
from namedqueue.api.workers import Scaling, Worker

QueueType: TypeAlias = Literal["durable", "ephemeral", "stream"]
Storage: TypeAlias = Literal["quorum", "classic"]
Mode: TypeAlias = Literal["default", "lazy"]

LONGEST = "3650d"


class SecretRef(Model):
    """A Secret in the queue's own namespace."""

    name: ObjectName
    """The Secret's name."""


class Fifo(Model):
    """Makes a durable queue an ordered one: jobs of one group run one after another."""

    group_by: KeyPath
    """Where a job's group is: `body.<field>`, `header.<name>` or `messageId`; `NQ-Group` wins."""

    partitions: int = Field(default=8, ge=1, le=64)
    """How many queues share the groups. One pod at a time works on each, so more pods only wait."""


class Durable(Model):
    """A work queue: a job stays until it was processed or dead-lettered."""

    storage: Storage = "quorum"
    """`quorum` replicates; `classic` is lighter and knows lazy mode and priorities. Immutable."""

    mode: Mode = "default"
    """`lazy` keeps jobs on disk; classic only. Changes live."""

    max_length: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """The most jobs that may wait. Past it producers get 429; nothing is dropped."""

    message_ttl: Annotated[Duration, Between("1s", LONGEST)] | None = Field(
        default=None, alias="messageTTL"
    )
    """How long a job may wait. An expired one is dead-lettered with reason `EXPIRED`."""

    max_priority: int = Field(default=0, ge=0, le=255)
    """The highest priority a job may have; classic only, 0 for none. Immutable."""

    fifo: Fifo | None = None
    """Keeps the order of jobs within a group, which waits while one is retried. Immutable."""

    rules = (
        Rule(
            cel="self.mode == 'default' || self.storage == 'classic'",
            holds=lambda self: self.mode == "default" or self.storage == "classic",
            says="{at}.mode (lazy) needs {at}.storage classic; "
            "quorum queues keep their jobs on disk anyway",
        ),
        Rule(
            cel="self.maxPriority == 0 || self.storage == 'classic'",
            holds=lambda self: self.max_priority == 0 or self.storage == "classic",
            says="{at}.maxPriority ({self.maxPriority}) needs {at}.storage classic; "
            "quorum queues have no such priorities",
        ),
        Rule(
            cel="!has(self.fifo) || self.storage == 'quorum'",
            holds=lambda self: self.fifo is None or self.storage == "quorum",
            says="{at}.fifo needs {at}.storage quorum; remove storage or write quorum",
        ),
    )


class StreamConsumer(Model):
    """A group that the worker is pushed the stream for."""

    group: DnsLabel
    """The group's name; its position in the stream is kept under it."""

    start: StartPosition = Field(default="first", alias="from")
    """Where a group without a position begins: `first`, `last`, `next`, an offset or a time."""

    on_error: Literal["halt", "skip"] = "halt"
    """What follows a message that fails for good: wait for a person, or go on."""

    filter: TopicPattern | None = None
    """Only messages of matching topics are pushed."""


class Stream(Model):
    """A log: messages stay by policy, and any number of groups read it at their own pace."""

    max_age: Annotated[Duration, Between("1s", LONGEST)] | None = None
    """Messages older than this may go."""

    max_bytes: Quantity | None = None
    """The oldest messages go past this size."""

    max_messages: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """The oldest messages go past this count; approximated by size on RabbitMQ."""

    consumers: Annotated[tuple[StreamConsumer, ...], Unique("group")] = Field(
        default=(), max_length=16
    )
    """Groups that are pushed to the worker; any other group pulls over HTTP."""

    rules = (
        Rule(
            # A part of a byte is rounded up to a whole one, so all above 0 is at least 1.
            cel="!has(self.maxBytes) || (quantity(string(self.maxBytes))"
            ".isGreaterThan(quantity('0')) && !quantity(string(self.maxBytes))"
            ".isGreaterThan(quantity('4Ei')))",
            holds=lambda self: self.max_bytes is None or 1 <= self.max_bytes.bytes <= 4 * 1024**6,
            says="{at}.maxBytes ({self.maxBytes}) is out of range; write a size from 1 to 4Ei",
        ),
    )


class Ephemeral(Model):
    """A best-effort queue in memory."""

    idle_expiry: Annotated[Duration, Between("1s", "24h")] = Duration.parse("5m")
    """The queue goes when nothing used it for this long."""


class Subscription(Model):
    """Topics that the queue gets its own copy of."""

    topic: TopicPattern
    """A pattern: `+` is one level, a final `#` the rest."""


class Retry(Model):
    """What happens after a failed attempt."""

    max_attempts: int = Field(default=5, ge=1, le=100)
    """Deliveries in all, the first included."""

    delay: Annotated[Duration, Between("0ms", "30d")] = Duration.parse("1s")
    """The delay before the second attempt."""

    multiplier: float = Field(default=2, ge=1, le=100)
    """Each further delay is this many times the one before."""

    max_delay: Annotated[Duration, Between("0ms", "30d")] = Duration.parse("60s")
    """No delay is longer, jitter aside."""

    jitter: float = Field(default=0.2, ge=0, le=1)
    """The delay is stretched by a random part of itself, up to this."""

    rules = (
        Rule(
            cel="ms(self.maxDelay) >= ms(self.delay)",
            holds=lambda self: self.max_delay >= self.delay,
            says="{at}.maxDelay ({self.maxDelay}) is below {at}.delay ({self.delay}); "
            "raise maxDelay or lower delay",
        ),
    )


class Errors(Model):
    """Error codes whose class differs from the built-in table."""

    permanent: Annotated[tuple[ErrorCode, ...], Unique()] = Field(default=(), max_length=64)
    """Never retried: straight to the dead letters."""

    transient: Annotated[tuple[ErrorCode, ...], Unique()] = Field(default=(), max_length=64)
    """Retried."""

    rules = (
        Rule(
            cel="!self.permanent.exists(code, code in self.transient)",
            holds=lambda self: not set(self.permanent) & set(self.transient),
            says="{at}.permanent and {at}.transient share a code; keep it in one of them",
        ),
    )


class DeadLetter(Model):
    """What happens to a job that failed for good."""

    retention: Annotated[Duration, Between("1m", LONGEST)] = Duration.parse("90d")
    """How long a dead letter and its record are kept."""


class Idempotency(Model):
    """Runs a job's effect once per key, however often it is sent or delivered."""

    key: KeyPath
    """Where the key is: `body.<field>`, `header.<name>` or `messageId`."""

    ttl: Annotated[Duration, Between("1m", LONGEST)] = Duration.parse("30d")
    """How long a finished key is remembered."""


def _only_with_type(block: str) -> Rule:
    return Rule(
        cel=f"self.type == '{block}' || !has(self.{block})",
        holds=lambda self: self.type == block or getattr(self, block) is None,
        says=f"{{at}}.{block} does not go with {{at}}.type {{self.type}}; "
        f"remove it or write type {block}",
    )


def _immutable(field: str, path: str, default: str) -> ChangeRule:
    """Hold a field below `durable` fixed, whether the block is written or not."""

    def value(spec: "NamedQueueSpec") -> object:
        return getattr(spec.durable_or_default, field)

    def in_cel(whose: str) -> str:
        return f"(has({whose}.durable) ? {whose}.durable.{path} : {default})"

    return ChangeRule(
        cel=f"{in_cel('self')} == {in_cel('oldSelf')}",
        holds=lambda new, old: value(new) == value(old),
        says=f"{{at}}.durable.{path} cannot change; make a NamedQueue with another name",
    )


class NamedQueueSpec(Model):
    """What the queue shall be."""

    type: QueueType = "durable"
    """`durable` for work, `stream` for replay, `ephemeral` for what may be lost. Immutable."""

    broker_secret_ref: SecretRef | None = None
    """Another broker than the operator's own, as a Service Binding Secret."""

    durable: Durable | None = None
    """Only with type durable."""

    stream: Stream | None = None
    """Only with type stream."""

    ephemeral: Ephemeral | None = None
    """Only with type ephemeral."""

    subscriptions: Annotated[tuple[Subscription, ...], Unique("topic")] = Field(
        default=(), max_length=64
    )
    """Topics that the queue gets its own copy of."""

    payload_schema: Opaque | None = Field(default=None, alias="schema")
    """A JSON Schema that every payload must satisfy."""

    retry: Retry = Retry()
    """What happens after a failed attempt."""

    errors: Errors = Errors()
    """Error codes whose class differs from the built-in table."""

    dead_letter: DeadLetter = DeadLetter()
    """What happens to a job that failed for good."""

    idempotency: Idempotency | None = None
    """Runs a job's effect once per key."""

    worker: Worker | None = None
    """The app that does the work. Without it jobs are pulled by leases."""

    replicas: int = Field(default=0, ge=0, le=1000)
    """The least number of worker replicas, whatever the load; `kubectl scale` sets it.

    Without `scaling`, 0 leaves the number to whoever sets it on the Deployment.
    """

    scaling: Scaling | None = None
    """How many replicas follow how many jobs. Without it nothing is scaled."""

    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """`Retain` leaves the broker's objects; `Delete` removes them once no job is left."""

    rules = (
        _only_with_type("durable"),
        _only_with_type("stream"),
        _only_with_type("ephemeral"),
        Rule(
            cel="!has(self.scaling) || has(self.worker)",
            holds=lambda self: self.scaling is None or self.worker is not None,
            says="{at}.scaling needs {at}.worker; say which app to scale",
        ),
        Rule(
            cel="!has(self.scaling) || self.replicas <= self.scaling.maxReplicas",
            holds=lambda self: self.scaling is None or self.replicas <= self.scaling.max_replicas,
            says="{at}.replicas ({self.replicas}) is above {at}.scaling.maxReplicas "
            "({self.scaling.maxReplicas}); raise maxReplicas or lower replicas",
        ),
        Rule(
            cel="!has(self.stream) || size(self.stream.consumers) == 0 || has(self.worker)",
            holds=lambda self: (
                self.stream is None or not self.stream.consumers or self.worker is not None
            ),
            says="{at}.stream.consumers needs {at}.worker; say which app they are pushed to",
        ),
        Rule(
            cel="!has(self.durable) || !has(self.durable.fifo) || !has(self.worker) "
            "|| !has(self.worker.batch)",
            holds=lambda self: (
                self.durable_or_default.fifo is None
                or self.worker is None
                or self.worker.batch is None
            ),
            says="{at}.worker.batch does not go with {at}.durable.fifo; "
            "order needs one job at a time",
        ),
        Rule(
            cel="self.type != 'stream' || !has(self.worker) || !has(self.worker.batch)",
            holds=lambda self: (
                self.type != "stream" or self.worker is None or self.worker.batch is None
            ),
            says="{at}.worker.batch does not go with {at}.type stream; "
            "its groups are given one message at a time",
        ),
        Rule(
            cel="self.type != 'stream' || !has(self.idempotency)",
            holds=lambda self: self.type != "stream" or self.idempotency is None,
            says="{at}.idempotency does not go with {at}.type stream; "
            "every group reads every message, and NQ-Offset tells them apart",
        ),
        Rule(
            cel="self.type != 'ephemeral' || !has(self.idempotency)",
            holds=lambda self: self.type != "ephemeral" or self.idempotency is None,
            says="{at}.idempotency does not go with {at}.type ephemeral; "
            "a key would outlive its job, which may be lost; write type durable",
        ),
    )
    change_rules = (
        ChangeRule(
            cel="self.type == oldSelf.type",
            holds=lambda new, old: new.type == old.type,
            says="{at}.type cannot change; make a NamedQueue with another name",
        ),
        _immutable("storage", "storage", "'quorum'"),
        _immutable("max_priority", "maxPriority", "0"),
        ChangeRule(
            cel="(has(self.durable) && has(self.durable.fifo)) == "
            "(has(oldSelf.durable) && has(oldSelf.durable.fifo)) && "
            "(!has(self.durable) || !has(self.durable.fifo) || "
            "self.durable.fifo == oldSelf.durable.fifo)",
            holds=lambda new, old: new.durable_or_default.fifo == old.durable_or_default.fifo,
            says="{at}.durable.fifo cannot change; make a NamedQueue with another name",
        ),
    )

    @property
    def least_replicas(self) -> int:
        """How many worker replicas there are at least, whatever the load."""
        return max(self.replicas, self.scaling.min_replicas if self.scaling else 0)

    @property
    def durable_or_default(self) -> Durable:
        """What holds for a durable queue, written or not."""
        return self.durable or Durable()

    @property
    def stream_or_default(self) -> Stream:
        """What holds for a stream, written or not."""
        return self.stream or Stream()

    @property
    def ephemeral_or_default(self) -> Ephemeral:
        """What holds for an ephemeral queue, written or not."""
        return self.ephemeral or Ephemeral()


class NamedQueue(Model):
    """A queue with retries, dead letters, ordering and workers that follow the load."""

    api_version: Literal["namedqueue.io/v1alpha1"] = "namedqueue.io/v1alpha1"
    kind: Literal["NamedQueue"] = "NamedQueue"
    metadata: ObjectMeta
    spec: NamedQueueSpec = NamedQueueSpec()
    status: NamedQueueStatus | None = None

    rules = (name_rule(40),)
