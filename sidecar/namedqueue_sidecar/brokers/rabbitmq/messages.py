"""Between jobs and AMQP messages: exchanges, keys, properties."""

import time
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import uuid4

from aiormq.abc import DeliveredMessage

from namedqueue import ladder
from namedqueue.deadletters import DeadLetterRecord, decode_dead_letter, encode_dead_letter
from namedqueue.envelope import Job, Table, decode, encode
from namedqueue.topics import routing_key
from namedqueue.topology.names import MQTT_TOPICS, TOPICS, Names
from namedqueue_sidecar.brokers.port import Dead, Entry, Main, Publication, QueueKey
from namedqueue_sidecar.brokers.rabbitmq import frames

OFFSET: Final = "x-stream-offset"
"""The header in which the broker says where a message stands in its stream."""

_READ: Final = (
    "message_id",
    "timestamp",
    "content_type",
    "content_encoding",
    "correlation_id",
    "priority",
)
_COUNTED: Final = frozenset({"x-delivery-count", "x-acquired-count"})
_BY_TOPIC: Final = frozenset({TOPICS, MQTT_TOPICS})


class Address(NamedTuple):
    """Where a message is published."""

    exchange: str
    key: str


class Outgoing(NamedTuple):
    """A publication as the broker takes it."""

    address: Address
    message_id: str
    header: bytes
    body: bytes


def outgoing(publication: Publication) -> Outgoing:
    """Write a publication as a message; a job that AMQP cannot carry is a ValueError."""
    match publication:
        case Main(queue, job, delay_ms, persistent):
            tables = encode(job, persistent=persistent)
            return _message(_main(queue, delay_ms), *tables, job.payload)
        case Dead(queue, record):
            address = Address(_names(queue).dead_letters, "")
            return _message(address, *encode_dead_letter(record), record.job.payload)
        case _:
            job = publication.job
            address = Address(TOPICS, routing_key(job.topic or ""))
            return _message(address, *encode(job), job.payload)


def incoming(message: DeliveredMessage, queue: str) -> Job:
    """Read a job from a delivery, whoever published it."""
    job = _job(message, queue)
    return job if job.id else job._replace(id=uuid4().hex)


def incoming_entry(message: DeliveredMessage, queue: str) -> Entry:
    """Read a job from a stream; one without an id has the same name for all who read it."""
    job = _job(message, queue)
    if not job.id:
        job = job._replace(id=fingerprint(message.body, message.header.properties.headers))
    return Entry(offset_of(message), job)


def offset_of(message: DeliveredMessage) -> int:
    """Return where in its stream a message stands."""
    headers: Table = message.header.properties.headers or {}
    return int(headers[OFFSET])


def incoming_dead_letter(message: DeliveredMessage, queue: str) -> DeadLetterRecord:
    """Read a dead letter; one without an id has the same name each time it is looked at."""
    properties, headers = _tables(message)
    record = decode_dead_letter(
        properties, headers, message.body, queue=queue, fresh_id="", now=_now_ms()
    )
    if record.job.id:
        return record
    return replace(record, job=record.job._replace(id=fingerprint(message.body, headers)))


def _job(message: DeliveredMessage, queue: str) -> Job:
    """Read a job; its id is empty if the message has none."""
    properties, headers = _tables(message)
    topic = _topic(message) if message.exchange in _BY_TOPIC else None
    return decode(
        properties, headers, message.body, queue=queue, fresh_id="", now=_now_ms(), topic=topic
    )


def fingerprint(body: bytes, headers: Table | None) -> str:
    """Name a message by what it holds, without what the broker counts up at each reading."""
    lasting = {name: value for name, value in (headers or {}).items() if name not in _COUNTED}
    return blake2b(body + repr(sorted(lasting.items())).encode(), digest_size=16).hexdigest()


def sent_back(queue: QueueKey, job: Job, marks: Table) -> Outgoing:
    """Write a job for the redrive stage, with marks that only a redrive reads."""
    properties, headers = encode(job)
    address = Address(_names(queue).redrive, "")
    return _message(address, properties, headers | marks, job.payload)


@lru_cache(1024)
def _main(queue: QueueKey, delay_ms: int) -> Address:
    names = _names(queue)
    route = ladder.route(delay_ms)
    if route is None:
        return Address(names.main_exchange, "")
    return Address(names.level(route.level), route.key)


def _names(queue: QueueKey) -> Names:
    return Names(queue.namespace, queue.name)


def _message(address: Address, properties: Table, headers: Table, body: bytes) -> Outgoing:
    header = frames.header(properties, headers, len(body))
    return Outgoing(address, properties["message_id"], header, body)


def _tables(message: DeliveredMessage) -> tuple[Table, Table | None]:
    found = message.header.properties
    properties: Table = {}
    for name in _READ:
        value = getattr(found, name)
        if value is not None:
            properties[name] = value
    if found.message_type is not None:
        properties["type"] = found.message_type
    return properties, found.headers


def _topic(message: DeliveredMessage) -> str:
    return (message.routing_key or "").replace(".", "/")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
