"""Reading streams: messages from a position on, and how far each group has come.

A group's cursor is the offset that it reads next. Reading moves nothing: the same question has the
same answer until somebody commits. Without a group any stretch can be read, as often as one likes.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from namedqueue import batches
from namedqueue.api.durations import Duration
from namedqueue.api.fields import DnsLabel, TopicPattern
from namedqueue.positions import Position, position
from namedqueue_sidecar.api.exchange import Request, Response, known_fields, read_json, reply
from namedqueue_sidecar.api.messages import queue_key
from namedqueue_sidecar.brokers.port import Entry, Log, QueueKey
from namedqueue_sidecar.consuming.following import Halt
from namedqueue_sidecar.consuming.readers import Piece, Wish
from namedqueue_sidecar.consuming.streaming import StreamWorker
from namedqueue_sidecar.intake.jobs import LARGEST_BATCH, MOST_ENTRIES, NDJSON
from namedqueue_sidecar.intake.problems import Problem, invalid
from namedqueue_sidecar.plane import Plane

USUAL_MESSAGES: Final = 100
LONGEST_WAIT: Final = 60.0

_LARGEST_OFFSET: Final = 10**15 - 1
_NUMBER: Final = re.compile(r"[0-9]{1,5}")
_GROUP: Final[TypeAdapter[str]] = TypeAdapter(DnsLabel)
_FILTER: Final[TypeAdapter[str]] = TypeAdapter(TopicPattern)
_IN_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")


async def show_stream(plane: Plane, request: Request) -> Response:
    """Return which offsets there are: from `first` up to, and without, `next`."""
    key = _stream(plane, request)
    first, following = await plane.readers(key).log.span()
    return reply({"queue": key.name, "first": first, "next": following})


async def read_messages(plane: Plane, request: Request) -> Response:
    """Return messages in order: from a group's cursor on, or without a group from `from` on.

    Repeatable: only a commit moves the group. A group that has no cursor yet gets the one that
    `from` means. `last` is the offset to commit when all of this is processed, what the filter
    left out included; `next` is the `from` of whoever reads on without a group. An answer without
    items and with a `last` means that nothing of it passed the filter: commit it, or go on at
    `next`. With `Accept: application/x-ndjson` there is a message a line, and `last` and `next`
    are the headers `NQ-Last-Offset` and `NQ-Next-Offset`.
    """
    key, query = _stream(plane, request), request.query
    known_fields(query, "group", "max", "wait", "from", "filter")
    most, wait = _most(query.get("max")), _wait(query.get("wait"))
    start = _position(query.get("from", "first"))
    only = _checked(_FILTER, "filter", query["filter"]) if "filter" in query else None
    readers = plane.readers(key)
    if "group" in query:
        start = await _cursor(readers.log, _pulled(plane, key, query["group"]), start)
    elif not isinstance(start, int):
        start = await readers.log.locate(start)
    piece = await readers.read(Wish(start, most, LARGEST_BATCH, wait, only))
    last = piece.next - 1 if piece.next != start else None
    if NDJSON in request.headers.get("accept", ""):
        return _lines(piece, last)
    items = [_shown(entry) for entry in piece.entries]
    return reply({"items": items, "last": last, "next": piece.next})


async def list_groups(plane: Plane, request: Request) -> Response:
    """Return how far each group has come, and how many messages are before it."""
    key = _stream(plane, request)
    log = plane.readers(key).log
    cursors, (first, following) = await log.groups(), await log.span()
    pushed = _halts(plane, key)
    items = [
        {
            "group": name,
            "cursor": cursors.get(name),
            "lag": following - max(first, cursors[name]) if name in cursors else None,
            "pushed": name in pushed,
            "halted": halt_document(pushed.get(name)),
        }
        for name in sorted({*cursors, *pushed})
    ]
    return reply({"items": items, "next": None})


async def commit(plane: Plane, request: Request) -> Response:
    """Say that everything up to `offset`, it included, is processed; the answer comes when safe."""
    key, given = _stream(plane, request), read_json(request)
    known_fields(given, "offset")
    group, offset = _pulled(plane, key, request.parameters["group"]), given.get("offset")
    if type(offset) is not int or not 0 <= offset <= _LARGEST_OFFSET:
        raise invalid("offset is not a whole number; commit `last` of what was read")
    readers = plane.readers(key)
    cursor = await readers.log.cursor(group)
    if cursor is not None and offset + 1 < cursor:
        raise Problem(
            409,
            "COMMIT_BACKWARDS",
            f"group {group} is at offset {cursor} already; go back with seek if you mean it",
        )
    if not await readers.has_come_to(offset):
        raise Problem(
            422, "NO_SUCH_OFFSET", f"{key} has no offset {offset} yet; commit what was read"
        )
    await readers.log.commit(group, offset + 1)
    return reply({"group": group, "cursor": offset + 1})


async def seek(plane: Plane, request: Request) -> Response:
    """Move a group, forwards or back: to first, last, next, an offset or a time.

    A group that is pushed goes on from there at once, also one that was halted.
    """
    key, given = _stream(plane, request), read_json(request)
    known_fields(given, "to")
    group = _checked(_GROUP, "group", request.parameters["group"])
    if not isinstance(given.get("to"), str | int) or isinstance(given["to"], bool):
        raise invalid('to is missing; write it as in {"to": "first"}')
    cursor = await plane.readers(key).log.seek(group, _position(given["to"]))
    return reply({"group": group, "cursor": cursor})


def halt_document(halt: Halt | None) -> dict[str, Any] | None:
    """Show what a group halts at."""
    if halt is None:
        return None
    return {
        "offset": halt.offset,
        "id": halt.job_id,
        "code": halt.code,
        "message": halt.message,
    }


def _stream(plane: Plane, request: Request) -> QueueKey:
    key = queue_key(plane, request)
    kind = plane.queues[key].spec.type
    if kind != "stream":
        raise Problem(409, "NOT_A_STREAM", f"{key} is of type {kind}; only streams are read")
    return key


def _halts(plane: Plane, key: QueueKey) -> Mapping[str, Halt | None]:
    """Return the groups that are pushed, each with what it halts at here."""
    named = plane.queues[key].spec.stream_or_default.consumers
    worker = plane.workers.get(key)
    groups = worker.groups if isinstance(worker, StreamWorker) else {}
    return {each.group: groups[each.group].halt if each.group in groups else None for each in named}


def _pulled(plane: Plane, key: QueueKey, name: str) -> str:
    """Return a group's name, unless its cursor is the worker's business."""
    group = _checked(_GROUP, "group", name)
    if group in _halts(plane, key):
        raise Problem(
            409,
            "GROUP_IS_PUSHED",
            f"group {group} of {key} is pushed to the worker (spec.stream.consumers); "
            "read with another group, or without one",
        )
    return group


async def _cursor(log: Log, group: str, start: Position) -> int:
    """Return a group's cursor; one that never read gets its first, so that `next` stays put."""
    cursor = await log.cursor(group)
    return await log.seek(group, start) if cursor is None else cursor


def _position(text: str | int) -> Position:
    try:
        return position(text)
    except ValueError as error:
        raise invalid(str(error)) from None


def _most(text: str | None) -> int:
    if text is None:
        return USUAL_MESSAGES
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MOST_ENTRIES:
        raise invalid(f"max is not a whole number from 1 to {MOST_ENTRIES}")
    return int(text)


def _wait(text: str | None) -> float:
    try:
        return min(Duration.parse(text or "0s").seconds, LONGEST_WAIT)
    except ValueError:
        raise invalid("wait is not a duration; write it as in 30s") from None


def _checked(shape: TypeAdapter[str], name: str, text: str) -> str:
    try:
        return shape.validate_python(text)
    except ValidationError as error:
        raise invalid(f"{name} {text[:64]!r} {error.errors()[0]['msg']}") from None


def _shown(entry: Entry) -> dict[str, object]:
    encoding, payload = batches.shown(entry.job)
    return {
        "offset": entry.offset,
        **batches.described(entry.job),
        "encoding": encoding,
        "payload": orjson.Fragment(payload),
    }


def _lines(piece: Piece, last: int | None) -> Response:
    """Return a message a line; a line break in a JSON payload is only space there."""
    body = b"".join(
        orjson.dumps(_shown(entry), option=orjson.OPT_APPEND_NEWLINE)
        if b"\n" not in entry.job.payload and b"\r" not in entry.job.payload
        else orjson.dumps(_shown(entry)).translate(_IN_ONE_LINE) + b"\n"
        for entry in piece.entries
    )
    headers = {"Content-Type": NDJSON, "NQ-Next-Offset": str(piece.next)}
    if last is not None:
        headers["NQ-Last-Offset"] = str(last)
    return Response(200, body, NDJSON, headers)
