"""Where a key is found in a job, whatever the job holds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.port.play import job
from namedqueue import headers as h
from namedqueue.envelope import Job, decode, encode
from namedqueue.keypaths import extract
from unit.jobs import jobs, texts

PATHS = ("body.id", "body.a.b.c", "header.tenant", "messageId")


def found(payload: Any, path: str = "body.id") -> str | None:
    return extract(path, job(json.dumps(payload).encode()))


def test_a_field_of_the_body_is_found_at_any_depth() -> None:
    assert found({"id": "t-1"}) == "t-1"
    assert found({"order": {"customer": {"id": "c-9"}}}, "body.order.customer.id") == "c-9"


def test_a_header_and_the_message_id_are_found() -> None:
    sent = job(headers=(("tenant", "acme"),))
    assert extract("header.tenant", sent) == "acme"
    assert extract("header.other", sent) is None
    assert extract("messageId", sent) == sent.id


@pytest.mark.parametrize(
    ("value", "text"),
    [(17, "17"), (1.5, "1.5"), (True, "true"), (False, "false"), (0, "0"), (-3, "-3")],
)
def test_numbers_and_booleans_are_their_json_text(value: object, text: str) -> None:
    assert found({"id": value}) == text


@pytest.mark.parametrize("value", [None, "", [], {}, ["a"], {"a": 1}])
def test_what_has_no_plain_text_is_no_key(value: object) -> None:
    assert found({"id": value}) is None


@pytest.mark.parametrize("payload", [[], "id", 1, None, {"other": 1}, {"id": {"id": "x"}}])
def test_a_path_that_leads_nowhere_finds_nothing(payload: object) -> None:
    assert found(payload) is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b'{"id": 1e999}',
        b'{"id": NaN}',
        b'{"id": %s}' % (b"7" * 9000),
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"id": "\\ud800"}',
    ],
)
def test_a_hostile_payload_raises_nothing(payload: bytes) -> None:
    for path in PATHS[:2]:
        extract(path, job(payload))


def test_a_compressed_payload_has_no_fields() -> None:
    assert extract("body.id", job(b'{"id": "a"}', content_encoding="gzip")) is None


def test_long_keys_that_differ_stay_different() -> None:
    keys = {found({"id": "x" * 100_000 + last}) for last in "abc"}
    assert len(keys) == 3
    assert all(key is not None and len(key) <= h.LONGEST_TEXT for key in keys)


@given(st.sampled_from(PATHS), jobs | st.binary(max_size=200).map(job))
def test_a_key_of_any_job_is_a_text_that_a_header_can_carry(path: str, any_job: Job) -> None:
    key = extract(path, any_job)
    if key is None:
        return
    assert h.text(key) == key
    properties, headers = encode(any_job._replace(group=key))
    again = decode(properties, headers, b"", queue="orders", fresh_id="x", now=0)
    assert again.group == key


@given(texts, texts)
def test_keys_are_equal_exactly_when_the_texts_are(one: str, other: str) -> None:
    assert (found({"id": one}) == found({"id": other})) == (one == other)
