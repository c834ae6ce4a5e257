"""A job survives the wire whole, and nothing hostile survives with it."""

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fixtures.scale import scaled
from namedqueue import headers as h
from namedqueue.envelope import Job, decode, encode
from namedqueue.history import AttemptRecord
from namedqueue.moments import LATEST
from namedqueue.outcomes import Kind
from namedqueue.retry import Retry
from unit.jobs import TRACEPARENT, field_values, hostile_names, jobs, property_names

NOW = 1_772_107_200_123
FRESH = "fresh-id"


def read(
    properties: dict[str, Any] | None = None,
    headers: dict[str, Any] | None = None,
    payload: bytes = b"{}",
    topic: str | None = None,
) -> Job:
    return decode(
        properties or {}, headers, payload, queue="orders", fresh_id=FRESH, now=NOW, topic=topic
    )


@given(job=jobs)
def test_a_job_comes_back_from_the_wire_as_it_was(job: Job) -> None:
    properties, headers = encode(job)
    assert read(properties, headers, job.payload) == job


@given(
    properties=st.dictionaries(property_names, field_values),
    headers=st.none() | st.dictionaries(hostile_names, field_values),
)
@settings(max_examples=scaled(2_000))
@example(properties={}, headers={"x-death": [{"count": 3, "queue": "q"}], "CC": ["other"]})
def test_nothing_hostile_survives_and_nothing_raises(
    properties: dict[str, Any], headers: dict[str, Any] | None
) -> None:
    job = read(properties, headers)
    sent, out = encode(job)
    assert sent.keys() <= {
        *("message_id", "type", "timestamp", "content_type", "content_encoding"),
        *("correlation_id", "priority", "delivery_mode"),
    }
    assert re.fullmatch(r"[!-~]{1,255}", sent["message_id"])
    assert 1 <= job.attempt <= h.LARGEST_COUNT
    assert 0 <= job.throttles <= h.LARGEST_COUNT
    assert 0 <= job.redrives <= h.LARGEST_COUNT
    assert 0 <= sent["timestamp"] <= LATEST // 1000
    for name, value in out.items():
        assert re.fullmatch(r"[a-z0-9-]{1,64}", name)
        assert name not in ("cc", "bcc", "nq-reason", "nq-forged")
        assert not name.startswith("x-") or name in h.X_HEADERS_THAT_PASS
        assert type(value) is int or (isinstance(value, str) and value.isprintable())
    assert sum(len(name) + len(value) for name, value in job.headers) <= 8 * 1024
    for value in sent.values():
        if isinstance(value, str):
            assert len(value.encode()) <= 255
    assert read(sent, out) == job


def test_a_job_from_a_stranger_is_attempt_1_named_by_its_message_id() -> None:
    job = read({"message_id": "m-1", "timestamp": datetime(2026, 2, 26, 12, tzinfo=UTC)})
    assert (job.id, job.attempt, job.redrives, job.throttles) == ("m-1", 1, 0, 0)
    assert job.time == job.enqueued_at == 1_772_107_200_000
    assert not job.history.records


@pytest.mark.parametrize("message_id", [None, "", 7, b"", "é" * 100, "x" * 256, ["m"]])
def test_a_job_without_a_usable_id_gets_the_fresh_one(message_id: object) -> None:
    assert read({"message_id": message_id}).id == FRESH


@pytest.mark.parametrize(
    ("message_id", "job_id"),
    [("order 7", "order%207"), ("a\r\nb", "a%0D%0Ab"), ("é", "%C3%A9"), (b"\xff1", "%FF1")],
)
def test_a_strangers_id_is_made_visible_and_stays_distinct(message_id: object, job_id: str) -> None:
    assert read({"message_id": message_id}).id == job_id


@pytest.mark.parametrize(
    ("forged", "attempt"),
    [(0, 1), (-7, 1), (10**30, 1_000), (True, 1), ("3", 1), (2.0, 1), (None, 1), ([3], 1), (3, 3)],
)
def test_a_forged_attempt_is_never_below_1_nor_beyond_bounds(forged: object, attempt: int) -> None:
    assert read(headers={h.ATTEMPT: forged}).attempt == attempt


def test_the_topic_by_which_a_job_came_beats_what_it_says_of_itself() -> None:
    assert read(headers={h.TOPIC: "order/us"}, topic="order/eu").topic == "order/eu"
    assert read(headers={h.TOPIC: "order/us"}).topic == "order/us"


@pytest.mark.parametrize(
    "forged",
    ["", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", TRACEPARENT.upper(), TRACEPARENT + "\n", 7],
)
def test_a_broken_trace_is_dropped_whole(forged: object) -> None:
    job = read(headers={h.TRACEPARENT: forged, h.TRACESTATE: "a=b"})
    assert (job.traceparent, job.tracestate, job.trace_id) == (None, None, None)


def test_the_trace_id_is_that_of_the_trace_parent() -> None:
    job = read(headers={h.TRACEPARENT: TRACEPARENT})
    assert job.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_users_header_is_kept_as_plain_text() -> None:
    job = read(
        headers={
            "Tenant": "acme",
            "tenant": "second",
            "shard": 7,
            "dry-run": True,
            "ratio": 0.5,
            "raw": b"abc",
            "x-request-id": "r-1",
        }
    )
    assert dict(job.headers) == {
        "tenant": "acme",
        "shard": "7",
        "dry-run": "true",
        "ratio": "0.5",
        "raw": "abc",
        "x-request-id": "r-1",
    }


@pytest.mark.parametrize(
    "value", [None, [], {}, Decimal(1), datetime.now(UTC), "é", "a\nb", b"\xff", math.nan, 2**70]
)
def test_a_users_header_without_a_plain_form_is_dropped(value: object) -> None:
    assert read(headers={"tenant": value}).headers == ()


def test_users_headers_past_8_kib_are_left_behind() -> None:
    job = read(headers={f"h{i}": "v" * 1000 for i in range(20)})
    assert len(job.headers) == 8


def test_encoding_strips_again_what_a_caller_put_into_a_job() -> None:
    job = read()._replace(headers=(("x-death", "1"), ("CC", "other"), ("tenant", "acme")))
    assert encode(job)[1].keys() == {h.ATTEMPT, h.ENQUEUED_AT, "tenant"}


def test_properties_that_could_close_the_channel_or_cut_a_delay_are_not_copied() -> None:
    job = read({"user_id": "guest", "reply_to": "amq.rabbitmq.reply-to", "expiration": "1"})
    assert encode(job)[0].keys() == {
        *("message_id", "type", "timestamp", "content_type", "delivery_mode"),
    }


def test_jobs_are_persistent_unless_said_otherwise() -> None:
    assert encode(read())[0]["delivery_mode"] == 2
    assert encode(read(), persistent=False)[0]["delivery_mode"] == 1


def test_the_payload_is_passed_on_and_not_copied() -> None:
    payload = b"x" * 1024
    assert read(payload=payload).payload is payload


def test_a_clock_in_milliseconds_is_understood() -> None:
    assert read({"timestamp": 1_772_107_200_123}).time == 1_772_107_200_123


def test_a_retry_counts_its_attempt_and_remembers_it() -> None:
    record = AttemptRecord(1, Kind.TRANSIENT, "TIMEOUT", NOW, 30_000)
    job = read().retried(Retry(1000, 2, counted=True), record)
    assert (job.attempt, job.throttles, job.history.records) == (2, 0, (record,))


def test_a_retry_for_free_counts_as_a_throttle_and_is_no_copy_of_the_job_before() -> None:
    before = read()
    record = AttemptRecord(1, Kind.TRANSIENT, "HTTP_429", NOW, 5)
    after = before.retried(Retry(1000, 1, counted=False), record)
    assert (after.attempt, after.throttles) == (1, 1)
    assert after.copy_key != before.copy_key


def test_a_redelivered_message_is_a_copy_of_the_one_before() -> None:
    message = {"message_id": "m-1"}
    assert read(message).copy_key == read(message).copy_key


@given(value=field_values)
def test_texts_of_ours_are_printable_and_short_whatever_came(value: object) -> None:
    found = h.text(value)
    assert found is None or (found.isprintable() and 0 < len(found.encode()) <= h.LONGEST_TEXT)


def test_texts_that_differ_only_in_what_cannot_be_printed_stay_different() -> None:
    assert h.text("a\x00b") == "a%00b"
    assert h.text("a\x01b") == "a%01b"


def test_every_header_of_ours_is_in_the_table_of_the_docs() -> None:
    ours = {value for name, value in vars(h).items() if name.isupper() and isinstance(value, str)}
    assert len(ours) > 10
    assert h.__doc__ is not None
    assert all(name in h.__doc__ for name in ours)
