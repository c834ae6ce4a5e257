"""The OpenAPI document, made from the table of routes and the calls' own docstrings."""

import inspect
import re
from typing import Any, Final

from namedqueue_sidecar.api.exchange import PROBLEM
from namedqueue_sidecar.api.routes import Route

_MEANINGS: Final = {
    200: "done",
    202: "confirmed by the broker",
    204: "removed",
    207: "some entries failed; `failed` names them",
    400: "the request cannot be understood",
    404: "no such queue, topic or dead letter",
    413: "too large",
    422: "a field is not acceptable",
    429: "the queue is full; wait as Retry-After says",
    503: "not possible right now; wait as Retry-After says",
}
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_HEADERS: Final = ("Idempotency-Key", "NQ-Type", "NQ-Group", "NQ-Priority", "NQ-Delay")
_QUERY: Final = ("reason", "after", "limit")
_FIRST_ERROR = 400


def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the description of these routes."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "NamedQueue data plane", "version": "v1"},
        "paths": paths,
        "components": {"schemas": {"Problem": _problem_schema()}},
    }


def _operation(route: Route) -> dict[str, Any]:
    name = route.call.__name__
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": inspect.getdoc(route.call),
        "parameters": _parameters(route),
        "responses": {str(status): _response(route, status) for status in route.statuses},
    }
    body = _body(name)
    return operation | ({"requestBody": {"content": body}} if body else {})


def _parameters(route: Route) -> list[dict[str, Any]]:
    name = route.call.__name__
    path = [
        {"name": part, "in": "path", "required": True, "schema": _TEXT}
        for part in re.findall(r"\{(\w+)\}", route.path)
    ]
    headers = _HEADERS if name in ("enqueue", "publish") else ()
    query = _QUERY if name == "list_dead_letters" else ()
    return [
        *path,
        *({"name": one, "in": "header", "schema": {"type": "string"}} for one in headers),
        *({"name": one, "in": "query", "schema": {"type": "string"}} for one in query),
    ]


def _body(name: str) -> dict[str, Any]:
    entry = {
        "type": "object",
        "required": ["payload"],
        "properties": {
            **dict.fromkeys(("id", "key", "type", "group", "delay"), _TEXT),
            "priority": {"type": "integer"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "payload": {},
        },
    }
    bodies: dict[str, dict[str, Any]] = {
        "enqueue": {"*/*": {"schema": {}}},
        "publish": {"*/*": {"schema": {}}},
        "enqueue_batch": {
            "application/json": {"schema": {"type": "array", "items": entry}},
            "application/x-ndjson": {"schema": {"type": "string"}},
        },
        "redrive": {"application/json": {"schema": _redrive_schema()}},
    }
    return bodies.get(name, {})


def _redrive_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "limit": {"type": "integer", "minimum": 1},
            "reason": {"type": "string"},
            "ids": {"type": "array", "items": {"type": "string"}},
            "dryRun": {"type": "boolean"},
        },
    }


def _response(route: Route, status: int) -> dict[str, Any]:
    description = _MEANINGS[status]
    if status < _FIRST_ERROR or route.path.startswith("/healthz"):
        return {"description": description}
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {PROBLEM: {"schema": schema}}}


def _problem_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", "status", "code", "detail"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string"},
            "detail": {"type": "string"},
        },
    }
