"""Payloads against a queue's JSON Schema."""

from typing import Any

import pytest

from namedqueue.envelope import Job
from namedqueue_sidecar.consuming.validation import validator

SCHEMA = {
    "type": "object",
    "required": ["order"],
    "properties": {"order": {"$ref": "#/$defs/id"}},
    "$defs": {"id": {"type": "string"}},
}


def job(payload: bytes) -> Job:
    return Job(id="1", queue="orders", payload=payload, enqueued_at=0, time=0)


def test_a_queue_without_a_schema_takes_anything() -> None:
    assert validator(None)(job(b"\xff")) is None


@pytest.mark.parametrize("depth", [255, 256, 1000, 5000])
def test_a_payload_of_any_depth_has_a_problem_and_raises_nothing(depth: int) -> None:
    problem = validator(SCHEMA)(job(b"[" * depth + b"]" * depth))
    assert problem is not None
    assert "payload" in problem


def test_a_payload_that_satisfies_the_schema_has_no_problem() -> None:
    assert validator(SCHEMA)(job(b'{"order": "A-1"}')) is None


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b'{"order": 1}', '/order: 1 is not of type "string"'),
        (b"{}", 'the payload: "order" is a required property'),
        (b"{", "the payload is not JSON"),
    ],
)
def test_a_problem_names_the_place(payload: bytes, problem: str) -> None:
    assert problem in (validator(SCHEMA)(job(payload)) or "")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
    ],
)
def test_a_schema_that_is_none_or_points_elsewhere_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"spec\.schema is not a usable JSON Schema: .+"):
        validator(schema)
