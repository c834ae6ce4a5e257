"""A dead letter tells its whole story from its headers alone, and can be sent back."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue import headers as h
from namedqueue.deadletters import (
    DeadLetterRecord,
    bury,
    decode_dead_letter,
    encode_dead_letter,
    redriven,
)
from namedqueue.envelope import Job, encode
from namedqueue.history import AttemptRecord
from namedqueue.outcomes import Kind
from namedqueue.retry import DeadLetter
from unit.jobs import TRACEPARENT, field_values, hostile_names, jobs, moments

NOW = 1_772_107_500_000  # 2026-02-26T12:05:00Z
REASON = DeadLetter("TIMEOUT", "Retries exhausted after 5 attempts: the app did not answer in time")
LAST = AttemptRecord(5, Kind.TRANSIENT, "TIMEOUT", NOW - 30_000, 30_000, "no answer")
JOB = Job(
    id="evt_123",
    queue="courier-events",
    payload=b'{"shipmentId": "shp_456"}',
    enqueued_at=NOW - 60_000,
    time=NOW - 60_000,
    content_type="application/json",
    attempt=5,
    throttles=2,
    idempotency_key="courier-x:evt_123",
    traceparent=TRACEPARENT,
    headers=(("tenant", "acme"),),
)


def read(headers: dict[str, Any], payload: bytes = b"{}") -> DeadLetterRecord:
    return decode_dead_letter(
        {"message_id": "m-1"}, headers, payload, queue="orders", fresh_id="fresh", now=NOW
    )


def test_the_record_has_the_fields_of_the_design() -> None:
    assert bury(JOB, REASON, LAST, NOW).document() == {
        "eventId": "evt_123",
        "queue": "courier-events",
        "idempotencyKey": "courier-x:evt_123",
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
        "attemptCount": 5,
        "terminalReasonCode": "TIMEOUT",
        "terminalReasonMessage": REASON.message,
        "attemptHistory": [
            {
                "attempt": 5,
                "outcome": "transient",
                "errorCode": "TIMEOUT",
                "at": "2026-02-26T12:04:30.000Z",
                "durationMs": 30_000,
                "message": "no answer",
            }
        ],
        "payloadSnapshot": {"shipmentId": "shp_456"},
        "headers": {"tenant": "acme"},
        "deadLetteredAt": "2026-02-26T12:05:00.000Z",
        "redrives": 0,
    }


@given(
    job=jobs,
    code=st.from_regex(r"[A-Z][A-Z0-9_]{0,63}", fullmatch=True),
    message=st.text(max_size=1_000),
    at=moments,
)
def test_a_dead_letter_comes_back_from_the_queue_as_it_was(
    job: Job, code: str, message: str, at: int
) -> None:
    record = bury(job, DeadLetter(code, message), None, at)
    properties, headers = encode_dead_letter(record)
    found = decode_dead_letter(
        properties, headers, job.payload, queue=job.queue, fresh_id="fresh", now=0
    )
    assert found == record


@pytest.mark.parametrize(
    ("why", "code"),
    [("expired", "EXPIRED"), ("delivery_limit", "DELIVERY_LIMIT"), (b"expired", "EXPIRED")],
)
def test_what_the_broker_brought_has_the_brokers_reason_and_time(why: object, code: str) -> None:
    died = datetime(2026, 2, 26, 12, 0, tzinfo=UTC)
    record = read({"x-death": [{"reason": why, "time": died}, {"reason": "rejected"}]})
    assert record.reason.code == code
    assert record.reason.message
    assert record.document()["deadLetteredAt"] == "2026-02-26T12:00:00.000Z"


@pytest.mark.parametrize("deaths", [None, [], {}, "expired", [None], [{}], [{"reason": ["x"]}], 7])
def test_a_death_without_a_reason_is_shown_as_one(deaths: object) -> None:
    record = read({"x-death": deaths})
    assert (record.reason.code, record.dead_lettered_at) == ("UNKNOWN", NOW)


def test_our_reason_comes_before_the_brokers() -> None:
    record = read({h.REASON: "TIMEOUT", "x-death": [{"reason": "expired"}]})
    assert record.reason == DeadLetter("TIMEOUT", "TIMEOUT")


@given(headers=st.dictionaries(hostile_names | st.just("x-death"), field_values))
def test_no_dead_letter_can_make_the_reader_raise(headers: dict[str, Any]) -> None:
    record = read(headers)
    assert json.dumps(record.document())
    assert "x-death" not in encode(redriven(record.job))[1]


def test_a_redrive_begins_anew_and_forgets_nothing() -> None:
    dead = bury(JOB, REASON, LAST, NOW).job
    again = redriven(dead)
    assert (again.attempt, again.throttles, again.redrives) == (1, 0, 1)
    assert again == dead._replace(attempt=1, throttles=0, redrives=1)
    assert again.payload is JOB.payload
    assert again.history.records == (LAST,)


def test_a_redriven_job_is_known_by_its_redrive_when_it_fails_again() -> None:
    again = bury(redriven(JOB, "fix-42"), REASON, LAST, NOW)
    _, headers = encode_dead_letter(again)
    assert read(headers).job.redrive == "fix-42"


def test_a_redriven_job_carries_no_reason_any_more() -> None:
    _, headers = encode_dead_letter(bury(JOB, REASON, LAST, NOW))
    _, again = encode(redriven(read(headers).job))
    assert not again.keys() & {h.REASON, h.REASON_MESSAGE, h.DEAD_LETTERED_AT}


def test_a_redriven_job_is_no_copy_of_its_first_life() -> None:
    assert redriven(JOB).copy_key != JOB._replace(attempt=1, throttles=0).copy_key


@pytest.mark.parametrize(
    ("payload", "encoding", "snapshot"),
    [
        (b'{"a": [1, 2.5, null]}', None, {"a": [1, 2.5, None]}),
        (b"plain words", None, "plain words"),
        (b"\xff\xfe", None, {"base64": "//4="}),
        (b"NaN", None, "NaN"),
        (b"[1e999]", None, "[1e999]"),
        (b"[" * 100_000, None, "[" * 100_000),
        (b'"\\ud800"', None, '"\\ud800"'),
        (b"{}", "gzip", {"base64": "e30="}),
        (b"", None, ""),
    ],
)
def test_a_payload_is_shown_as_json_or_text_or_base64(
    payload: bytes, encoding: str | None, snapshot: object
) -> None:
    job = JOB._replace(payload=payload, content_encoding=encoding)
    assert bury(job, REASON, None, NOW).document()["payloadSnapshot"] == snapshot
