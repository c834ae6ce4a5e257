"""Requests, responses and problems as plain values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from namedqueue_sidecar.intake.jobs import parsed
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
    return Response(problem.status, orjson.dumps(document), PROBLEM, problem.headers)


def reply(document: Any, status: int = 200) -> Response:
    """Return a JSON answer."""
    try:
        body = orjson.dumps(document)
    except TypeError:  # a payload that is shown may hold an integer past 64 bits
        body = json.dumps(document).encode()
    return Response(status, body)


def read_json(request: Request) -> dict[str, Any]:
    """Read a JSON object from the body; an empty body is an empty object."""
    refuse_encoding(request)
    if not request.body:
        return {}
    document = parsed(request.body, "the body")
    if not isinstance(document, dict):
        raise invalid("the body is not a JSON object")
    return document


def refuse_encoding(request: Request) -> None:
    """Refuse a compressed body where we have to read it; a payload is passed on as it is."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise Problem(415, "UNSUPPORTED_ENCODING", "send this body without Content-Encoding")


def known_fields(given: Mapping[str, Any], *names: str) -> None:
    """Refuse a field that means nothing here; a typing error must not pass in silence."""
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise invalid(f"{unknown[:64]} is not a field; the fields are {', '.join(names)}")
