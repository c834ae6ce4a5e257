"""Requests, responses and problems as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from namedqueue_sidecar.intake.problems import Problem, invalid

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller wants. Header names are in lower case."""

    namespace: str
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """What the caller gets."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def problem_response(problem: Problem) -> Response:
    """Return a problem as `application/problem+json`."""
    document = {
        "type": f"urn:namedqueue:problem:{problem.code.lower().replace('_', '-')}",
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
    }
    wait = problem.retry_after
    headers = {} if wait is None else {"Retry-After": str(wait)}
    return Response(problem.status, orjson.dumps(document), PROBLEM, headers)


def reply(document: Any, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(status, orjson.dumps(document))


def read_json(request: Request) -> dict[str, Any]:
    """Read a JSON object from the body; an empty body is an empty object."""
    if not request.body:
        return {}
    try:
        document = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise invalid(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise invalid("the body is not a JSON object")
    return document


def known_fields(document: Mapping[str, Any], *names: str) -> None:
    """Refuse a field that means nothing here; a typing error must not pass in silence."""
    unknown = [name for name in document if name not in names]
    if unknown:
        raise invalid(f"{unknown[0]} is not a field; the fields are {', '.join(names)}")
