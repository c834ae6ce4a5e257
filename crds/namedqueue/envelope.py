"""The job as it travels: a frozen value on our side, properties and headers on the wire.

`namedqueue.headers` has the table of names. Decoding takes any AMQP message, also one that knows
nothing of us: it is attempt 1 of a job named by its message id. Encoding writes only what a job
holds, so whatever else came in with a message (`x-death`, `CC`, a stranger's `expiration`) ends
here, on every publish.

Both are on the path of every job. The payload is passed on by reference, the history stays
unread, and `Job` is a named tuple because making a frozen dataclass of this many fields takes
several times as long.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from namedqueue import headers as h
from namedqueue.headers import UserHeaders, user_headers
from namedqueue.history import NO_HISTORY, AttemptRecord, History, read_history
from namedqueue.moments import read_milliseconds, read_timestamp
from namedqueue.retry import Retry

DEFAULT_TYPE: Final = "job"
DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
HIGHEST_PRIORITY: Final = 255
LONGEST_TRACESTATE: Final = 512

Table: TypeAlias = dict[str, Any]
"""AMQP properties or headers by name, as the wire and aio-pika give and take them."""

_Field: TypeAlias = tuple[str, Callable[[object], object]]
"""The field of a job that a property or header fills, and how its value is read."""


class CopyKey(NamedTuple):
    """What makes two deliveries copies of one another.

    A redrive starts again at attempt 1, and a retry that used no attempt keeps its number, so id
    and attempt alone would take a job that comes back for a copy of itself and drop it.
    """

    id: str
    redrives: int
    attempt: int
    throttles: int


class Job(NamedTuple):
    """A unit of work; moments are milliseconds since the epoch."""

    id: str
    queue: str
    payload: bytes
    enqueued_at: int
    time: int
    type: str = DEFAULT_TYPE
    source: str | None = None
    content_type: str = DEFAULT_CONTENT_TYPE
    content_encoding: str | None = None
    correlation_id: str | None = None
    attempt: int = 1
    throttles: int = 0
    redrives: int = 0
    redrive: str | None = None
    edited_from: str | None = None
    priority: int = 0
    group: str | None = None
    topic: str | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    history: History = NO_HISTORY
    headers: UserHeaders = ()

    @property
    def copy_key(self) -> CopyKey:
        return CopyKey(self.id, self.redrives, self.attempt, self.throttles)

    @property
    def trace_id(self) -> str | None:
        return self.traceparent[3:35] if self.traceparent else None

    def retried(self, retry: Retry, record: AttemptRecord) -> "Job":
        """Return the job as it comes back after a failed attempt."""
        return self._replace(
            attempt=retry.next_attempt,
            throttles=self.throttles + (not retry.counted),
            history=self.history.with_record(record),
        )


def decode(
    properties: Mapping[str, Any],
    headers: Mapping[str, Any] | None,
    payload: bytes,
    *,
    queue: str,
    fresh_id: str,
    now: int,
    topic: str | None = None,
) -> Job:
    """Read a job from a message, whoever published it.

    `fresh_id` names a job whose message has no usable id, and `now` dates one without a time.
    `topic` is where the message came from if it was delivered through the topic exchange; it is
    known from the routing key and so beats what the message says of itself.
    """
    fields: Table = {"id": fresh_id, "queue": queue, "payload": payload}
    _read(properties, _PROPERTIES, fields)
    if headers:
        strangers = _read(headers, _HEADERS, fields)
        if strangers:
            fields["headers"] = user_headers(headers)
    sent_at = fields.pop("sent_at", now)
    enqueued_at = fields.setdefault("enqueued_at", sent_at)
    fields.setdefault("time", enqueued_at)
    if topic:
        fields["topic"] = h.text(topic)
    if "tracestate" in fields and "traceparent" not in fields:
        del fields["tracestate"]
    return Job(**fields)


def _read(table: Mapping[str, Any], readers: Mapping[str, _Field], into: Table) -> int:
    """Read the entries that are ours, and return how many are not."""
    strangers = 0
    for name, value in table.items():
        reader = readers.get(name)
        if reader is None:
            strangers += 1
            continue
        field, read = reader
        found = read(value)
        if found is not None:
            into[field] = found
    return strangers


def encode(job: Job, *, persistent: bool = True) -> tuple[Table, Table]:
    """Write a job as AMQP properties and headers, with nothing in them that is not the job's."""
    properties: Table = {
        "message_id": job.id,
        "type": job.type,
        "timestamp": job.time // 1000,
        "content_type": job.content_type,
        "delivery_mode": 2 if persistent else 1,
    }
    if job.content_encoding:
        properties["content_encoding"] = job.content_encoding
    if job.correlation_id:
        properties["correlation_id"] = job.correlation_id
    if job.priority:
        properties["priority"] = job.priority
    return properties, _headers(job)


def _headers(job: Job) -> Table:
    headers: Table = {h.ATTEMPT: job.attempt, h.ENQUEUED_AT: job.enqueued_at}
    if job.time != job.enqueued_at:
        headers[h.TIME] = job.time
    for name, value in (
        (h.THROTTLES, job.throttles),
        (h.REDRIVES, job.redrives),
        (h.REDRIVE, job.redrive),
        (h.EDITED_FROM, job.edited_from),
        (h.SOURCE, job.source),
        (h.GROUP, job.group),
        (h.TOPIC, job.topic),
        (h.IDEMPOTENCY_KEY, job.idempotency_key),
        (h.TRACEPARENT, job.traceparent),
        (h.TRACESTATE, job.tracestate),
    ):
        if value:
            headers[name] = value
    if job.history and (story := job.history.encoded()):
        headers[h.HISTORY] = story
    if job.headers:
        headers.update(user_headers(dict(job.headers)))
    return headers


def _priority(value: object) -> int:
    return min(h.count(value, least=0), HIGHEST_PRIORITY)


def _attempt(value: object) -> int:
    return h.count(value, least=1)


def _times(value: object) -> int:
    return h.count(value, least=0)


def _tracestate(value: object) -> str | None:
    return h.ascii_text(value, LONGEST_TRACESTATE)


_PROPERTIES: Final[Mapping[str, _Field]] = {
    "message_id": ("id", h.job_id),
    "type": ("type", h.text),
    "timestamp": ("sent_at", read_timestamp),
    "content_type": ("content_type", h.ascii_text),
    "content_encoding": ("content_encoding", h.ascii_text),
    "correlation_id": ("correlation_id", h.text),
    "priority": ("priority", _priority),
}
_HEADERS: Final[Mapping[str, _Field]] = {
    h.ATTEMPT: ("attempt", _attempt),
    h.THROTTLES: ("throttles", _times),
    h.REDRIVES: ("redrives", _times),
    h.REDRIVE: ("redrive", h.text),
    h.EDITED_FROM: ("edited_from", h.job_id),
    h.ENQUEUED_AT: ("enqueued_at", read_milliseconds),
    h.TIME: ("time", read_milliseconds),
    h.SOURCE: ("source", h.text),
    h.GROUP: ("group", h.text),
    h.TOPIC: ("topic", h.text),
    h.IDEMPOTENCY_KEY: ("idempotency_key", h.text),
    h.HISTORY: ("history", read_history),
    h.TRACEPARENT: ("traceparent", h.traceparent),
    h.TRACESTATE: ("tracestate", _tracestate),
}
