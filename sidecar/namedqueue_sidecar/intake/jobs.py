"""From a request to jobs, within the limits, or to a problem that names the field.

The body of a single enqueue is the payload itself, byte for byte; what belongs to the job beside
it comes in headers. A batch brings the same as fields of each entry.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from namedqueue import headers as h
from namedqueue import ladder
from namedqueue.api.durations import Duration
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.envelope import DEFAULT_TYPE, Job
from namedqueue.handler import USER_HEADER_PREFIX
from namedqueue_sidecar.brokers.port import Main, QueueKey
from namedqueue_sidecar.consuming.validation import ProblemWith
from namedqueue_sidecar.intake.problems import Problem, invalid

LARGEST_PAYLOAD: Final = 1024 * 1024
LARGEST_BATCH: Final = 16 * 1024 * 1024
MOST_ENTRIES: Final = 10_000

_USER_PREFIX = USER_HEADER_PREFIX.lower()
_PRINTABLE = re.compile(r"[!-~]([ -~]{0,253}[!-~])?")
_ENTRY_FIELDS = ("id", "key", "type", "group", "priority", "delay", "headers", "payload")


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
    content_type: str = "application/json"
    traceparent: str | None = None
    tracestate: str | None = None


Read: TypeAlias = Callable[[], tuple[Wanted, bytes]]
"""Reads one entry of a batch, or raises the problem with it."""


class Intake:
    """Makes jobs for one queue."""

    def __init__(self, queue: NamedQueue, problem_with: ProblemWith) -> None:
        self._key = QueueKey(queue.metadata.namespace, queue.metadata.name)
        self._spec = queue.spec
        self._problem_with = problem_with

    def accept(self, wanted: Wanted, payload: bytes, now: int) -> Main:
        """Return the job and its delay, or raise the problem with it."""
        job = make_job(self._key.name, wanted, payload, now)
        problem = self._problem_with(job)
        if problem is not None:
            raise Problem(422, "SCHEMA_VIOLATION", problem)
        return Main(self._key, job._replace(priority=self._priority(wanted)), self._delay(wanted))

    def _priority(self, wanted: Wanted) -> int:
        if wanted.priority is None:
            return 0
        text, most = str(wanted.priority), self._spec.durable_or_default.max_priority
        if not text.isascii() or not text.isdigit() or len(text) > 3 or int(text) > most:  # noqa: PLR2004
            raise Problem(
                422,
                "INVALID_PRIORITY",
                f"priority {text[:20]!r} is not a number from 0 to {most}, "
                "which is the queue's spec.durable.maxPriority",
            )
        return int(text)

    def _delay(self, wanted: Wanted) -> int:
        if wanted.delay is None:
            return 0
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
        raise Problem(
            413, "PAYLOAD_TOO_LARGE", f"{len(payload)} bytes; the most is {LARGEST_PAYLOAD}"
        )
    return Job(
        id=_text("id", wanted.id) or new_id(now),
        queue=queue,
        payload=payload,
        enqueued_at=now,
        time=now,
        type=_text("type", wanted.type) or DEFAULT_TYPE,
        content_type=_text("content type", wanted.content_type) or "application/json",
        group=_text("group", wanted.group),
        topic=topic,
        idempotency_key=_text("key", wanted.key),
        traceparent=h.traceparent(wanted.traceparent),
        tracestate=wanted.tracestate,
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
        content_type=get("content-type", "application/octet-stream"),
        traceparent=get("traceparent"),
        tracestate=get("tracestate"),
    )


def entries(headers: Mapping[str, str], body: bytes) -> Iterator[Read]:
    """Yield a reader for each entry of a batch, so that one bad entry fails alone."""
    if len(body) > LARGEST_BATCH:
        raise Problem(413, "BATCH_TOO_LARGE", f"{len(body)} bytes; the most is {LARGEST_BATCH}")
    if headers.get("content-type", "").startswith("application/x-ndjson"):
        items: Any = [line for line in body.split(b"\n") if line.strip()]
        read: Callable[[Any, Trace], tuple[Wanted, bytes]] = _read_line
    else:
        items, read = _parsed(body, "the body"), _read_entry
        if not isinstance(items, list):
            raise invalid("the body is neither a JSON array nor application/x-ndjson")
    if len(items) > MOST_ENTRIES:
        raise Problem(413, "BATCH_TOO_LARGE", f"{len(items)} entries; the most is {MOST_ENTRIES}")
    trace = headers.get("traceparent"), headers.get("tracestate")
    yield from (partial(read, item, trace) for item in items)


def new_id(now: int) -> str:
    """Return an id that sorts by time of enqueueing and that nobody can guess."""
    return f"{now:012x}{secrets.token_hex(10)}"


def _parsed(text: bytes, what: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise invalid(f"{what} is not JSON: {error}") from None


def _read_line(line: bytes, trace: Trace) -> tuple[Wanted, bytes]:
    return _read_entry(_parsed(line, "the line"), trace)


def _read_entry(document: Any, trace: Trace) -> tuple[Wanted, bytes]:
    if not isinstance(document, dict):
        raise invalid("the entry is not a JSON object")
    unknown = next((name for name in document if name not in _ENTRY_FIELDS), None)
    if unknown is not None:
        raise invalid(f"{unknown[:64]} is not a field; the fields are {', '.join(_ENTRY_FIELDS)}")
    if "payload" not in document:
        raise invalid("payload is missing")
    get = document.get
    given = get("headers") or {}
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
    return wanted, orjson.dumps(document["payload"])


def _user_headers(headers: Mapping[str, str]) -> h.UserHeaders:
    cut = len(_USER_PREFIX)
    given = {name[cut:]: value for name, value in headers.items() if name.startswith(_USER_PREFIX)}
    return _checked_headers(given) if given else ()


def _checked_headers(given: Mapping[str, Any]) -> h.UserHeaders:
    kept = h.user_headers(given)
    if len(kept) != len(given):
        refused = next(name for name in given if name not in dict(kept))
        raise Problem(
            422,
            "INVALID_HEADER",
            f"header {refused[:64]!r} is refused: names are [a-z0-9-] of at most 64, "
            f"values printable ASCII, {h.MOST_USER_HEADER_BYTES} bytes in all",
        )
    return kept


def _text(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _PRINTABLE.fullmatch(value):
        raise Problem(422, "INVALID_FIELD", f"{name} must be 1 to 255 printable ASCII characters")
    return value
