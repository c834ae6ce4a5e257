"""The OpenAPI document, made from the table of routes and the calls' own docstrings."""

import inspect
import re
from typing import Any, Final, NamedTuple, TypeAlias

from namedqueue import topics
from namedqueue_sidecar.api import schemas
from namedqueue_sidecar.api.exchange import JSON, PROBLEM
from namedqueue_sidecar.api.routes import Route
from namedqueue_sidecar.api.schemas import reference
from namedqueue_sidecar.api.triage import LONGEST_PIECE
from namedqueue_sidecar.intake.jobs import MOST_ENTRIES, NDJSON

Object: TypeAlias = dict[str, Any]

_FIRST_ERROR: Final = 400
_MEANINGS: Final = {
    200: "done",
    202: "confirmed by the broker",
    204: "removed",
    207: "some entries failed; `failed` names them, and whatever is counted as accepted is safe",
    400: "the request cannot be understood",
    403: "not allowed here; `code` says why",
    404: "no such queue, topic, dead letter or lease",
    409: "not for this queue or group as it is; `code` says why",
    410: "the lease has ended; `code` says how",
    413: "too large",
    415: "the body is compressed",
    422: "a field is not acceptable, or the payload does not match the queue's schema",
    429: "the queue is full; wait as Retry-After says",
    503: "not possible right now; wait as Retry-After says",
}
_RETRY_AFTER: Final = {
    "Retry-After": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 0}}
}


def _parameter(place: str, name: str, schema: Object, description: str) -> Object:
    return {"name": name, "in": place, "schema": schema, "description": description}


def _lines(name: str) -> Object:
    return {"type": "string", "description": f"one `{name}` a line"}


_TRACE: Final = (
    _parameter("header", "traceparent", schemas.TEXT, "W3C trace context, handed on to the app"),
    _parameter("header", "tracestate", schemas.TEXT, "W3C trace context, handed on to the app"),
)
_JOB: Final = (
    _parameter("header", "Idempotency-Key", schemas.LINE, "what makes two jobs the same"),
    _parameter("header", "NQ-Type", schemas.LINE, "the job's type, `ce-type` for the app"),
    _parameter("header", "NQ-Group", schemas.LINE, "the group that keeps its order"),
    *_TRACE,
)
_WHEN: Final = (
    _parameter("header", "NQ-Priority", schemas.PRIORITY, "up to the queue's maxPriority"),
    _parameter("header", "NQ-Delay", schemas.DURATION, "how long the job waits first"),
)
_SEARCH: Final = (
    _parameter("query", "reason", schemas.TEXT, "only dead letters of this reason"),
    _parameter("query", "state", schemas.REVIEW, "with a store: of this state; else pending ones"),
    _parameter("query", "group", schemas.TEXT, "with a store: of this group"),
    _parameter("query", "text", schemas.TEXT, "with a store: with this in message, id or reason"),
    _parameter("query", "since", schemas.MOMENT, "with a store: dead-lettered then or later"),
    _parameter("query", "until", schemas.MOMENT, "with a store: dead-lettered before"),
)
_PIECE: Final = _parameter(
    "query",
    "contains",
    {"type": "string", "minLength": 1, "maxLength": LONGEST_PIECE},
    "with a store: with these bytes in the payload. The records are looked at one after another, "
    "for about a second; then a page may be short or empty, and `next` leads on",
)
_PAGE: Final = (
    _parameter("query", "after", schemas.TEXT, "`next` of the page before"),
    _parameter(
        "query", "limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "most"
    ),
)
_GROUP: Final = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_STRETCH: Final = (
    _parameter("query", "group", _GROUP, "read on at its cursor; without it, from `from` on"),
    _parameter(
        "query",
        "from",
        {"type": "string", "maxLength": 40, "default": "first", "examples": ["42"]},
        "first, last, next, an offset, or a time as in 2026-02-26T12:00:00Z; of a group that has "
        "no cursor yet",
    ),
    _parameter(
        "query",
        "max",
        {"type": "integer", "minimum": 1, "maximum": MOST_ENTRIES, "default": 100},
        "the most messages in the answer, which has 16 MiB of payload at the most",
    ),
    _parameter("query", "wait", schemas.DURATION, "for the first message; 60s at the most"),
    _parameter("query", "filter", schemas.TEXT, "only messages of matching topics: `order/+/#`"),
)
_PATH: Final = {
    "group": (_GROUP, "the name of those who read together"),
    "queue": (schemas.TEXT, "the NamedQueue's name"),
    "id": (schemas.ID, "the job's id"),
    "lease": (schemas.TEXT, "`lease` of the item that was leased"),
    "topic": (
        {
            "type": "string",
            "pattern": f"^{topics.LEVEL}(/{topics.LEVEL})*$",
            "maxLength": topics.LONGEST_TOPIC,
            "examples": ["order/eu/created"],
        },
        "levels separated by `/`, which may be percent-encoded or not",
    ),
}


class _Details(NamedTuple):
    """What the route's own row does not tell: parameters, the body, and the answers' schemas."""

    answers: dict[int, str]
    parameters: tuple[Object, ...] = ()
    body: Object | None = None
    body_required: bool = True
    lines_of: str | None = None


_ANY_BODY: Final[Object] = {
    "*/*": {"schema": {}, "examples": {"order": {"value": {"order": 17}}}},
}
_BATCH: Final = _Details(
    {202: "BatchAccepted", 207: "BatchPartlyAccepted"},
    _TRACE,
    {
        JSON: {"schema": reference("Batch")},
        NDJSON: {
            "schema": _lines("Entry"),
            "examples": {"two": {"value": '{"payload":1}\n{"payload":2}\n'}},
        },
    },
)
_DETAILS: Final = {
    "list_queues": _Details({200: "Queues"}),
    "show_queue": _Details({200: "Queue"}),
    "enqueue": _Details({202: "Accepted"}, (*_JOB, *_WHEN), _ANY_BODY, body_required=False),
    "publish": _Details({202: "Published"}, _JOB, _ANY_BODY, body_required=False),
    "enqueue_batch": _BATCH,
    "publish_batch": _BATCH,
    "list_dead_letters": _Details({200: "DeadLetters"}, (*_SEARCH, _PIECE, *_PAGE)),
    "group_dead_letters": _Details({200: "ReasonGroups"}, _SEARCH),
    "review_dead_letter": _Details(
        {200: "DeadLetter"}, (), {JSON: {"schema": reference("ReviewState")}}
    ),
    "show_dead_letter": _Details({200: "DeadLetter"}),
    "discard_dead_letter": _Details({}),
    "edit_dead_letter": _Details(
        {200: "Edited"},
        (_parameter("header", "NQ-Group", schemas.LINE, "else as the payload says, or as it was"),),
        _ANY_BODY,
        body_required=False,
    ),
    "redrive": _Details(
        {200: "Redriven"}, (), {JSON: {"schema": reference("Redrive")}}, body_required=False
    ),
    "show_redrive": _Details({200: "RedriveProgress"}),
    "lease_jobs": _Details(
        {200: "Leases"}, (), {JSON: {"schema": reference("Pull")}}, body_required=False
    ),
    "finish_lease": _Details({200: "Decision"}, (), {JSON: {"schema": reference("Finish")}}),
    "list_in_flight": _Details({200: "InFlights"}),
    "show_stream": _Details({200: "Stream"}),
    "read_messages": _Details({200: "StreamMessages"}, _STRETCH, lines_of="StreamMessage"),
    "list_groups": _Details({200: "StreamGroups"}),
    "commit": _Details({200: "Cursor"}, (), {JSON: {"schema": reference("Commit")}}),
    "seek": _Details({200: "Cursor"}, (), {JSON: {"schema": reference("Seek")}}),
    "drain": _Details({200: "Status"}),
    "wait_for_drain": _Details({200: "Status"}),
    "live": _Details({200: "Status"}),
    "ready": _Details({200: "Readiness", 503: "Readiness"}),
    "metrics": _Details({}),
}


def document(routes: tuple[Route, ...]) -> Object:
    """Return the description of these routes."""
    paths: Object = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "NamedQueue data plane",
            "version": "v1",
            "description": "Any header `NQ-Header-<name>` of a message is the job's own and comes "
            "to the app under the same name. Every error is `application/problem+json` with a "
            "stable `code`.",
        },
        "servers": [{"url": "http://127.0.0.1:3550", "description": "beside the app in its pod"}],
        "paths": paths,
        "components": {"schemas": schemas.SCHEMAS},
    }


def _operation(route: Route) -> Object:
    details = _DETAILS[route.call.__name__]
    operation: Object = {
        "operationId": route.call.__name__,
        "summary": inspect.getdoc(route.call),
        "parameters": [*_path_parameters(route), *details.parameters],
        "responses": {
            **{str(status): _response(details, route, status) for status in route.statuses},
            "default": _problem("anything else that can go wrong"),
        },
    }
    if details.body is not None:
        operation["requestBody"] = {"required": details.body_required, "content": details.body}
    return operation


def _path_parameters(route: Route) -> list[Object]:
    return [
        _parameter("path", name, *_PATH[name]) | {"required": True}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _response(details: _Details, route: Route, status: int) -> Object:
    meaning, schema = _MEANINGS[status], details.answers.get(status)
    if schema is not None:
        content: Object = {JSON: {"schema": reference(schema)}}
        if details.lines_of is not None:
            content[NDJSON] = {"schema": _lines(details.lines_of)}
        return {"description": meaning, "content": content}
    if status >= _FIRST_ERROR:
        return _problem(meaning, retry=status in (429, 503))
    if route.path == "/metrics":
        return {"description": meaning, "content": {"text/plain": {"schema": schemas.TEXT}}}
    return {"description": meaning}


def _problem(meaning: str, *, retry: bool = False) -> Object:
    content = {PROBLEM: {"schema": reference("Problem")}}
    headers = {"headers": _RETRY_AFTER} if retry else {}
    return {"description": meaning, "content": content, **headers}
