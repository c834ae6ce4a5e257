"""What the app is told about a job is always safe to put into an HTTP request."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue.api.namedqueue import Retry
from namedqueue.envelope import Job, decode
from namedqueue.handler import handler_headers
from unit.jobs import TRACEPARENT, field_values, hostile_names, jobs, property_names

NOW = 1_772_107_200_123
JOB = Job("m-1", "orders", b"{}", NOW, NOW, type="order.created", content_type="application/json")


def told(job: Job) -> dict[str, str]:
    return handler_headers(job, Retry())


def test_a_plain_job_has_these_headers() -> None:
    assert told(JOB) == {
        "Content-Type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": "m-1",
        "ce-source": "/queues/orders",
        "ce-type": "order.created",
        "ce-time": "2026-02-26T12:00:00.123Z",
        "NQ-Queue": "orders",
        "NQ-Attempt": "1",
        "NQ-Max-Attempts": "5",
        "NQ-Retry-Count": "0",
        "NQ-Redrives": "0",
    }


def test_a_job_with_everything_has_these_besides() -> None:
    job = JOB._replace(
        source="/shop/eu",
        attempt=3,
        redrives=1,
        content_encoding="gzip",
        group="customer 7",
        topic="order/eu/created",
        idempotency_key='"8e03978e"',
        traceparent=TRACEPARENT,
        tracestate="a=b",
        headers=(("tenant", "acme"), ("content-length", "999")),
    )
    assert (
        told(job).items()
        >= {
            "ce-source": "/shop/eu",
            "NQ-Attempt": "3",
            "NQ-Retry-Count": "2",
            "NQ-Redrives": "1",
            "Content-Encoding": "gzip",
            "NQ-Group": "customer 7",
            "NQ-Topic": "order/eu/created",
            "Idempotency-Key": '"8e03978e"',
            "traceparent": TRACEPARENT,
            "tracestate": "a=b",
            "NQ-Header-tenant": "acme",
            "NQ-Header-content-length": "999",
        }.items()
    )


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"),
        ('say "hi"', "say%20%22hi%22"),
        ("100%", "100%25"),
        ("a-b_c.d~e!f/g:h", "a-b_c.d~e!f/g:h"),
    ],
)
def test_cloudevents_attributes_are_encoded_as_the_http_binding_says(
    value: str, encoded: str
) -> None:
    headers = told(JOB._replace(type=value, source=value))
    assert headers["ce-type"] == headers["ce-source"] == encoded


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("customer 7", "customer 7"),
        (" padded ", "%20padded%20"),
        ("50%", "50%25"),
        ("é", "%C3%A9"),
        ("a\r\nX-Evil: 1", "a%0D%0AX-Evil: 1"),
    ],
)
def test_other_texts_change_only_where_http_could_not_carry_them(value: str, encoded: str) -> None:
    assert told(JOB._replace(group=value))["NQ-Group"] == encoded


@given(job=jobs)
def test_what_was_encoded_can_be_decoded(job: Job) -> None:
    headers = told(job)
    assert unquote(headers["ce-id"]) == job.id
    assert unquote(headers["ce-type"]) == job.type
    assert unquote(headers.get("NQ-Group", "")) == (job.group or "")
    assert unquote(headers.get("Idempotency-Key", "")) == (job.idempotency_key or "")


@given(
    properties=st.dictionaries(property_names, field_values),
    headers=st.dictionaries(hostile_names, field_values),
)
def test_no_message_can_break_out_of_its_header_line(
    properties: dict[str, object], headers: dict[str, object]
) -> None:
    job = decode(properties, headers, b"", queue="orders", fresh_id="fresh", now=NOW)
    for name, value in told(job).items():
        assert name.isascii()
        assert name.replace("-", "").isalnum()
        assert value.isascii()
        assert value.isprintable()
