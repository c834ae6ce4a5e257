"""A batch says all that single calls would, and no answer to it can do harm."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue import batches, codes
from namedqueue.api.namedqueue import Retry
from namedqueue.envelope import Job
from namedqueue.outcomes import PROCESSED, Answer, Attempted, Failure, Kind, classify
from unit.jobs import jobs

POLICY = Retry()
NOW = 1_800_000_000_000
IDS = ("a", "b", "c")


def job(payload: bytes, **fields: Any) -> Job:
    return Job("a", "orders", payload, NOW, NOW, **fields)


def read(*given_jobs: Job) -> list[dict[str, Any]]:
    body = batches.body([batches.entry(each, POLICY) for each in given_jobs])
    return list(json.loads(body))


def payload_of(entry: dict[str, Any]) -> bytes:
    """Return the payload as an app would find it."""
    if entry["encoding"] == "base64":
        return base64.b64decode(entry["payload"]["base64"], validate=True)
    return json.dumps(entry["payload"]).encode()


# What the app is sent


@given(st.lists(jobs, max_size=5))
def test_any_jobs_make_a_body_that_any_reader_takes_and_loses_nothing(
    given_jobs: list[Job],
) -> None:
    entries = read(*given_jobs)
    assert [entry["id"] for entry in entries] == [each.id for each in given_jobs]
    for entry, each in zip(entries, given_jobs, strict=True):
        if entry["encoding"] == "base64":
            assert payload_of(entry) == each.payload
        else:
            assert entry["payload"] == json.loads(each.payload)
        assert entry["attempt"] == each.attempt
        assert entry["maxAttempts"] == POLICY.max_attempts
        assert entry["headers"] == dict(each.headers)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(alphabet=st.characters(codec="utf-8")),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(alphabet=st.characters(codec="utf-8")), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_json_stands_there_as_it_is(document: object) -> None:
    [entry] = read(job(json.dumps(document).encode()))
    assert entry["encoding"] == "json"
    assert entry["payload"] == document


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"text",
        b"{",
        b"1}, {",
        b'1}, {"id":"b"',
        b"1,2",
        b"NaN",
        b"Infinity",
        b"\xff",
        b'"\xff"',
        b'"\\ud800"',
        b"1e999",
        b"[-1e400]",
        b"9" * 400,
        b"[" * 5000 + b"]" * 5000,
        b"\xef\xbb\xbf1",
        b"01",
        b"'a'",
        b'{"a":1}x',
        b"\x00",
        b'"\x00"',
    ],
)
def test_what_is_not_json_for_every_reader_is_told_in_base64(payload: bytes) -> None:
    first, second = read(job(payload), job(b"2"))
    assert first["encoding"] == "base64"
    assert payload_of(first) == payload
    assert (second["encoding"], second["payload"]) == ("json", 2)


def test_a_text_that_only_looks_like_a_huge_number_stays_json() -> None:
    [entry] = read(job(b'{"sha":"00e999aa"}'))
    assert (entry["encoding"], entry["payload"]) == ("json", {"sha": "00e999aa"})


def test_a_compressed_payload_is_told_in_base64() -> None:
    [entry] = read(job(b"1", content_encoding="gzip"))
    assert (entry["encoding"], entry["contentEncoding"]) == ("base64", "gzip")
    assert payload_of(entry) == b"1"


# What the app answers


def answered(document: object, **fields: Any) -> dict[str, Attempted]:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return batches.outcomes(Answer(200, body=text, **fields), IDS)


def kinds(said: dict[str, Attempted]) -> dict[str, Kind]:
    return {job_id: classify(each, now=NOW).kind for job_id, each in said.items()}


def test_each_job_hears_its_own_result_and_one_without_is_retried() -> None:
    said = answered(
        {
            "results": [
                {"id": "c", "status": 422, "code": "noStock", "message": "none left"},
                {"id": "a", "status": 200},
            ]
        }
    )
    assert kinds(said) == {"a": Kind.PROCESSED, "b": Kind.TRANSIENT, "c": Kind.PERMANENT}
    missing, refused = (classify(said[job_id], now=NOW) for job_id in ("b", "c"))
    assert missing.code == codes.NO_RESULT
    assert (refused.code, refused.message) == ("NO_STOCK", "none left")


def test_a_result_may_ask_for_patience_or_override_its_status() -> None:
    said = answered(
        {
            "results": [
                {"id": "a", "status": 503, "retryAfter": 7},
                {"id": "b", "status": 500, "outcome": "ack"},
                {"id": "c", "status": 200, "outcome": "dead-letter", "code": "FRAUD"},
            ]
        }
    )
    patient = classify(said["a"], now=NOW)
    assert (patient.retry_after_ms, patient.throttled) == (7000, True)
    assert classify(said["b"], now=NOW) == PROCESSED
    assert classify(said["c"], now=NOW).kind is Kind.PERMANENT


@pytest.mark.parametrize(
    "whole",
    [
        Answer(500),
        Answer(422),
        Answer(503, retry_after="3"),
        Answer(302),
        Failure.TIMEOUT,
        Failure.RESET,
        Failure.REFUSED,
        Answer(200, nq_outcome="ack"),
        Answer(500, nq_outcome="drop"),
    ],
    ids=str,
)
def test_an_answer_that_is_no_success_or_overrides_holds_for_every_job(whole: Attempted) -> None:
    assert batches.outcomes(whole, IDS) == dict.fromkeys(IDS, whole)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"OK",
        b"[]",
        b"null",
        {},
        {"results": None},
        {"results": {}},
        {"results": [1, None, []]},
        {"results": [{"status": 200}]},
        {"results": [{"id": ["a"], "status": 200}]},
        {"results": [{"id": "a"}]},
        {"results": [{"id": "a", "status": "200"}]},
        {"results": [{"id": "a", "status": True}]},
        {"results": [{"id": "a", "status": 999}]},
        {"results": [{"id": "a", "status": 200.0}]},
        {"results": [{"id": "z", "status": 200}]},
        {"results": [{"id": "a", "status": 200}, {"id": "a", "status": 500}]},
        b'{"results":' + b"[" * 100_000,
    ],
    ids=lambda document: str(document)[:50],
)
def test_a_result_that_cannot_be_understood_is_none(document: object) -> None:
    assert answered(document) == dict.fromkeys(IDS, Failure.NO_RESULT)


def test_the_same_result_twice_is_one() -> None:
    twice = [{"id": "a", "status": 200}] * 2
    assert answered({"results": twice})["a"] == Answer(200)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(IDS),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "status", "code", "message", "retryAfter", "outcome", "results"])
            | st.text(max_size=3),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)
hostile = st.builds(lambda results: {"results": results}, st.lists(anything, max_size=10))


@given(hostile | anything | st.binary(max_size=100))
def test_whatever_the_app_answers_each_job_hears_once_and_none_is_processed_unasked(
    document: object,
) -> None:
    said = answered(document)
    assert said.keys() == set(IDS)
    results = document.get("results") if isinstance(document, dict) else None
    for job_id, each in said.items():
        outcome = classify(each, now=NOW)
        if outcome.kind in (Kind.PROCESSED, Kind.DROPPED):
            assert isinstance(results, list)
            assert any(isinstance(one, dict) and one.get("id") == job_id for one in results)
