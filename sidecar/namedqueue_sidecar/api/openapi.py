"""The OpenAPI document, made from the table of routes and the calls' own docstrings."""

import inspect
import re
from typing import Any, Final, NamedTuple, TypeAlias

from namedqueue import topics
from namedqueue_sidecar.api import schemas
from namedqueue_sidecar.api.exchange import JSON, PROBLEM
from namedqueue_sidecar.api.routes import Route
from namedqueue_sidecar.api.schemas import reference

Object: TypeAlias = dict[str, Any]

_FIRST_ERROR: Final = 400
_MEANINGS: Final = {
    200: "done",
    202: "confirmed by the broker",
    204: "removed",
    207: "some entries failed; `failed` names them, and whatever is counted as accepted is safe",
    400: "the request cannot be understood",
    404: "no such queue, topic, dead letter or lease",
    409: "the queue is not of a kind that can be leased from",
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
_PAGE: Final = (
    _parameter("query", "reason", schemas.TEXT, "only dead letters of this reason"),
    _parameter("query", "after", schemas.TEXT, "`next` of the page before"),
    _parameter(
        "query", "limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "most"
    ),
)
_PATH: Final = {
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


_ANY_BODY: Final[Object] = {
    "*/*": {"schema": {}, "examples": {"order": {"value": {"order": 17}}}},
}
_DETAILS: Final = {
    "list_queues": _Details({200: "Queues"}),
    "show_queue": _Details({200: "Queue"}),
    "enqueue": _Details({202: "Accepted"}, (*_JOB, *_WHEN), _ANY_BODY, body_required=False),
    "publish": _Details({202: "Published"}, _JOB, _ANY_BODY, body_required=False),
    "enqueue_batch": _Details(
        {202: "BatchAccepted", 207: "BatchPartlyAccepted"},
        _TRACE,
        {
            JSON: {"schema": reference("Batch")},
            "application/x-ndjson": {
                "schema": {"type": "string", "description": "one `Entry` a line"},
                "examples": {"two": {"value": '{"payload":1}\n{"payload":2}\n'}},
            },
        },
    ),
    "list_dead_letters": _Details({200: "DeadLetters"}, _PAGE),
    "group_dead_letters": _Details({200: "ReasonGroups"}),
    "show_dead_letter": _Details({200: "DeadLetter"}),
    "discard_dead_letter": _Details({}),
    "redrive": _Details(
        {200: "Redriven"}, (), {JSON: {"schema": reference("Redrive")}}, body_required=False
    ),
    "lease_jobs": _Details(
        {200: "Leases"}, (), {JSON: {"schema": reference("Pull")}}, body_required=False
    ),
    "finish_lease": _Details({200: "Decision"}, (), {JSON: {"schema": reference("Finish")}}),
    "list_in_flight": _Details({200: "InFlights"}),
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
        return {"description": meaning, "content": {JSON: {"schema": reference(schema)}}}
    if status >= _FIRST_ERROR:
        return _problem(meaning, retry=status in (429, 503))
    if route.path == "/metrics":
        return {"description": meaning, "content": {"text/plain": {"schema": schemas.TEXT}}}
    return {"description": meaning}


def _problem(meaning: str, *, retry: bool = False) -> Object:
    content = {PROBLEM: {"schema": reference("Problem")}}
    headers = {"headers": _RETRY_AFTER} if retry else {}
    return {"description": meaning, "content": content, **headers}
