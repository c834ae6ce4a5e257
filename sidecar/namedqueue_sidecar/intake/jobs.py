"""From a request to jobs, within the limits, or to a problem that names the field.

The body of a single enqueue is the payload itself, byte for byte; what belongs to the job beside
it comes in headers. A batch brings the same as fields of each entry, and each payload is passed on
as the same JSON value; one that comes as a line, byte for byte.

Everything that becomes part of a job is checked here to be printable ASCII, but for the payload.
So no broker can fail to write it and no app can be given another header by it.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import orjson
from pydantic_core import from_json

from namedqueue import headers as h
from namedqueue import ladder
from namedqueue.api.durations import Duration
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.edits import Edit
from namedqueue.envelope import DEFAULT_CONTENT_TYPE, DEFAULT_TYPE, LONGEST_TRACESTATE, Job
from namedqueue.handler import USER_HEADER_PREFIX
from namedqueue.keypaths import BODY, extract
from namedqueue.topology.delay import has_ladder
from namedqueue_sidecar.brokers.port import Main, QueueKey
from namedqueue_sidecar.consuming.validation import ProblemWith
from namedqueue_sidecar.intake.problems import Problem, invalid, too_large

LARGEST_PAYLOAD: Final = 1024 * 1024
LARGEST_BATCH: Final = 16 * 1024 * 1024
MOST_ENTRIES: Final = 10_000
NDJSON: Final = "application/x-ndjson"

_USER_PREFIX = USER_HEADER_PREFIX.lower()
_JSON = "application/json"
_PRINTABLE = re.compile(r"[!-~]([ -~]{0,253}[!-~])?")
_VISIBLE = re.compile(r"[!-~]{1,255}")
_DIGITS = re.compile(r"[0-9]{1,3}")
_DIGITS_AS_ZEROS = bytes(ord("0") if chr(byte).isdecimal() else ord(" ") for byte in range(256))
_LONG_NUMBER = b"0" * 19
_NOT_EDITED = ("key", "type", "priority", "delay", "headers")
_ENTRY_FIELDS = dict.fromkeys(
    ("id", "key", "type", "group", "priority", "delay", "headers", "payload")
)


Trace: TypeAlias = tuple[str | None, str | None]
"""The caller's `traceparent` and `tracestate`."""


class Wanted(NamedTuple):
    """What a caller asks for beside the payload; None for what was not said."""

    id: str | None = None
    key: str | None = None
    type: str | None = None
    group: str | None = None
    priority: str | int | None = None
    delay: str | None = None
    headers: h.UserHeaders = ()
    content_type: str = _JSON
    content_encoding: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `NDJSON`, whose payload needs no reading."""

    payload: msgspec.Raw
    id: Any = None
    key: Any = None
    type: Any = None
    group: Any = None
    priority: Any = None
    delay: Any = None
    headers: dict[str, Any] = {}  # msgspec makes a new one each time


_decoded = msgspec.json.Decoder(_Line).decode

Read: TypeAlias = Callable[[], tuple[Wanted, bytes]]
"""Reads one entry of a batch, or raises the problem with it."""


class Intake:
    """Makes jobs for one queue."""

    def __init__(self, queue: NamedQueue, problem_with: ProblemWith) -> None:
        self._key = QueueKey.of(queue)
        self._spec = queue.spec
        self._durable = queue.spec.durable_or_default  # a model that costs as much as a job to make
        self._problem_with = problem_with

    def accept(self, wanted: Wanted, payload: bytes, now: int) -> Main:
        """Return the job and its delay, or raise the problem with it."""
        job = make_job(self._key.name, wanted, payload, now)
        problem = self._problem_with(job)
        if problem is not None:
            raise Problem(422, "SCHEMA_VIOLATION", problem)
        priority, group = self._priority(wanted), self._group(job)
        if priority or group != job.group:
            job = job._replace(priority=priority, group=group)
        persistent = self._spec.type != "ephemeral"
        return Main(self._key, job, self._delay(wanted), persistent)

    def edit(self, headers: Mapping[str, str], payload: bytes) -> Edit:
        """Return what a job of this queue shall hold instead, or raise the problem with it."""
        wanted = wanted_by_headers(headers)
        stays = next((name for name in _NOT_EDITED if getattr(wanted, name)), None)
        if stays is not None:
            raise Problem(
                422,
                "INVALID_FIELD",
                f"an edit gives a job another payload, content type and group; its {stays} stays",
            )
        job = make_job(self._key.name, wanted, payload, now=0)
        problem = self._problem_with(job)
        if problem is not None:
            raise Problem(422, "SCHEMA_VIOLATION", problem)
        fifo = self._spec.durable_or_default.fifo
        in_payload = fifo is not None and fifo.group_by.startswith(BODY)
        group = job.group or (extract(fifo.group_by, job) if fifo and in_payload else None)
        content_type = job.content_type if "content-type" in headers else None
        return Edit(payload, content_type, job.content_encoding, group)

    def _group(self, job: Job) -> str | None:
        """Return the group that the caller named, else the one that a FIFO queue finds."""
        fifo = self._durable.fifo
        if fifo is None or job.group is not None:
            return job.group
        group = extract(fifo.group_by, job)
        if group is None:
            raise Problem(
                422,
                "MISSING_GROUP",
                f"this queue keeps order within groups and finds none at {fifo.group_by}, which "
                "is its spec.durable.fifo.groupBy; put a text or a number there, or send NQ-Group",
            )
        return group

    def _priority(self, wanted: Wanted) -> int:
        if wanted.priority is None:
            return 0
        priority, most = _count(wanted.priority), self._durable.max_priority
        if priority is None or priority > most:
            raise Problem(
                422,
                "INVALID_PRIORITY",
                f"the priority is not a whole number from 0 to {most}, "
                "which is the queue's spec.durable.maxPriority",
            )
        return priority

    @property
    def _no_delay(self) -> str:
        if self._spec.type == "durable":
            return "it keeps the order of its jobs, and a job that waits would be overtaken"
        return f"it is of type {self._spec.type}, and only durable queues can keep a job for later"

    def _delay(self, wanted: Wanted) -> int:
        if wanted.delay is None:
            return 0
        if not has_ladder(self._spec):
            raise Problem(422, "INVALID_DELAY", f"this queue takes no delay: {self._no_delay}")
        try:
            delay = Duration.parse(wanted.delay).milliseconds
        except (TypeError, ValueError):
            raise Problem(
                422, "INVALID_DELAY", "the delay is not a duration; write it as in 90s"
            ) from None
        most = ladder.maximum_ms(ladder.levels_for(self._spec.retry))
        if ladder.round_up(delay) > most:
            raise Problem(
                422,
                "INVALID_DELAY",
                f"a delay of {wanted.delay} is longer than the queue's ladder, which holds jobs "
                f"for up to {most} ms; raise spec.retry (delay, maxAttempts, maxDelay) for more",
            )
        return delay


def make_job(queue: str, wanted: Wanted, payload: bytes, now: int, topic: str | None = None) -> Job:
    """Return a new job with what the caller asked for, checked field by field."""
    if len(payload) > LARGEST_PAYLOAD:
        raise too_large(f"the payload has {len(payload)} bytes; the most is {LARGEST_PAYLOAD}")
    traceparent = wanted.traceparent and h.traceparent(wanted.traceparent)
    return Job(
        id=_id(wanted.id) or new_id(now),
        queue=queue,
        payload=payload,
        enqueued_at=now,
        time=now,
        type=_text("type", wanted.type) or DEFAULT_TYPE,
        content_type=_text("content type", wanted.content_type) or DEFAULT_CONTENT_TYPE,
        content_encoding=_text("content encoding", wanted.content_encoding),
        group=_text("group", wanted.group),
        topic=topic,
        idempotency_key=_text("key", wanted.key),
        traceparent=traceparent,
        tracestate=h.ascii_text(wanted.tracestate, LONGEST_TRACESTATE) if traceparent else None,
        headers=wanted.headers,
    )


def wanted_by_headers(headers: Mapping[str, str]) -> Wanted:
    """Read what the headers of a single enqueue ask for; their names are in lower case."""
    get = headers.get
    return Wanted(
        key=get("idempotency-key"),
        type=get("nq-type"),
        group=get("nq-group"),
        priority=get("nq-priority"),
        delay=get("nq-delay"),
        headers=_user_headers(headers),
        content_type=get("content-type", DEFAULT_CONTENT_TYPE),
        content_encoding=get("content-encoding"),
        traceparent=get("traceparent"),
        tracestate=get("tracestate"),
    )


def entries(headers: Mapping[str, str], body: bytes) -> Iterator[Read]:
    """Yield a reader for each entry of a batch, so that one bad entry fails alone."""
    if len(body) > LARGEST_BATCH:
        raise too_large(f"the batch has {len(body)} bytes; the most is {LARGEST_BATCH}")
    if headers.get("content-type", "").lower().startswith(NDJSON):
        items: Any = [line for line in body.split(b"\n") if line.strip()]
        read: Callable[[Any, Trace], tuple[Wanted, bytes]] = _read_line
    else:
        items, read = parsed(body, "the body"), _read_entry
        if not isinstance(items, list):
            raise invalid(f"the body is neither a JSON array nor {NDJSON}")
    if len(items) > MOST_ENTRIES:
        raise too_large(f"the batch has {len(items)} entries; the most is {MOST_ENTRIES}")
    trace = headers.get("traceparent"), headers.get("tracestate")
    yield from (partial(read, item, trace) for item in items)


def parsed(text: bytes, what: str) -> Any:
    """Read JSON, and every number in it as it is.

    The fast reader takes an integer past 64 bits for a float, which is another number; where
    there could be one the careful reader is asked as well.
    """
    try:
        document = orjson.loads(text)
        long = _LONG_NUMBER in text.translate(_DIGITS_AS_ZEROS)  # ten times as fast as a pattern
        return from_json(text) if long else document
    except ValueError as error:
        raise invalid(f"{what} is not JSON: {str(error)[:200]}") from None


def new_id(now: int) -> str:
    """Return an id that sorts by time of enqueueing and that nobody can guess."""
    return f"{now:012x}{secrets.token_hex(10)}"


def _read_line(line: bytes, trace: Trace) -> tuple[Wanted, bytes]:
    try:
        line.isascii() or line.decode()
        entry = _decoded(line)
    except (ValueError, RecursionError):
        return _read_entry(parsed(line, "the line"), trace)  # which says what is wrong with it
    wanted = Wanted(
        entry.id,
        entry.key,
        entry.type,
        entry.group,
        entry.priority,
        entry.delay,
        _checked_headers(entry.headers) if entry.headers else (),
        traceparent=trace[0],
        tracestate=trace[1],
    )
    return wanted, bytes(entry.payload)


def _read_entry(document: Any, trace: Trace) -> tuple[Wanted, bytes]:
    if not isinstance(document, dict):
        raise invalid("the entry is not a JSON object")
    if not document.keys() <= _ENTRY_FIELDS.keys():
        unknown = next(name for name in document if name not in _ENTRY_FIELDS)
        raise invalid(f"{unknown[:64]} is not a field; the fields are {', '.join(_ENTRY_FIELDS)}")
    if "payload" not in document:
        raise invalid("payload is missing")
    get = document.get
    given = get("headers", {})
    if not isinstance(given, dict):
        raise invalid("headers is not a JSON object")
    wanted = Wanted(
        id=get("id"),
        key=get("key"),
        type=get("type"),
        group=get("group"),
        priority=get("priority"),
        delay=get("delay"),
        headers=_checked_headers(given) if given else (),
        traceparent=trace[0],
        tracestate=trace[1],
    )
    return wanted, _written(document["payload"])


def _written(payload: object) -> bytes:
    """Write a payload as JSON; the fast writer knows neither long numbers nor deep nesting."""
    try:
        return orjson.dumps(payload)
    except TypeError:
        pass
    try:
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError:
        raise invalid("the payload is nested too deeply") from None


def _user_headers(headers: Mapping[str, str]) -> h.UserHeaders:
    cut = len(_USER_PREFIX)
    given = {name[cut:]: value for name, value in headers.items() if name.startswith(_USER_PREFIX)}
    return _checked_headers(given) if given else ()


def _checked_headers(given: Mapping[str, Any]) -> h.UserHeaders:
    kept = h.user_headers(given)
    if len(kept) != len(given):
        refused = next((name for name in given if name.lower() not in dict(kept)), "")
        raise Problem(
            422,
            "INVALID_HEADER",
            f"header {refused[:64]!r} is refused: names are [a-z0-9-] of at most 64, each once "
            "and none of nq-*, x-*, cc and bcc; values are printable ASCII, "
            f"{h.MOST_USER_HEADER_BYTES} bytes in all",
        )
    return kept


def _count(value: object) -> int | None:
    """Read a number of up to three digits, also from a header's text."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return value if type(value) is int and value >= 0 else None


def _id(value: object) -> str | None:
    """Read a job's id, which stays as it is on every wire: without spaces."""
    if value is None:
        return None
    if not isinstance(value, str) or not _VISIBLE.fullmatch(value):
        raise Problem(
            422, "INVALID_FIELD", "id must be 1 to 255 printable ASCII characters without spaces"
        )
    return value


def _text(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _PRINTABLE.fullmatch(value):
        raise Problem(422, "INVALID_FIELD", f"{name} must be 1 to 255 printable ASCII characters")
    return value
