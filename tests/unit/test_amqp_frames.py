"""Frames that we write are read by pamqp, the other implementation, as what was meant."""

import struct
from datetime import UTC, datetime
from typing import Any

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from namedqueue_sidecar.brokers.rabbitmq import frames

SHORT = st.text(max_size=60)
WORD = st.text(min_size=1, max_size=60)
VALUES = st.one_of(
    st.text(max_size=300), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none()
)
PROPERTIES = st.fixed_dictionaries(
    {"message_id": WORD, "type": WORD, "timestamp": st.integers(0, 2**32 - 1)},
    optional={
        "content_type": WORD,
        "content_encoding": WORD,
        "correlation_id": WORD,
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
    },
)


def read(written: bytes) -> list[Any]:
    found = []
    while written:
        consumed, channel, frame = pamqp.frame.unmarshal(written)
        assert channel == 7
        found.append(frame)
        written = written[consumed:]
    return found


@given(SHORT, SHORT)
def test_a_publish_names_its_exchange_and_key_and_must_be_taken(exchange: str, key: str) -> None:
    [frame] = read(frames.publish(7, exchange, key))
    assert isinstance(frame, Basic.Publish)
    assert (frame.exchange, frame.routing_key) == (exchange, key)
    assert (frame.mandatory, frame.immediate) == (True, False)


@given(PROPERTIES, st.dictionaries(WORD, VALUES, max_size=8), st.integers(0, 2**40))
def test_a_header_has_every_property_and_header(
    properties: dict[str, Any], headers: dict[str, Any], size: int
) -> None:
    [frame] = read(frames.content(7, frames.header(properties, headers, size), b"", 100))
    assert isinstance(frame, ContentHeader)
    assert frame.body_size == size
    found = dict(frame.properties)
    assert found.pop("message_type") == properties["type"]
    assert found.pop("timestamp") == datetime.fromtimestamp(properties["timestamp"], UTC)
    assert (found.pop("headers") or {}) == headers
    rest = {name: value for name, value in found.items() if value not in (None, "")}
    assert rest == {n: v for n, v in properties.items() if n not in ("type", "timestamp")}


@given(st.binary(max_size=500), st.integers(1, 100))
def test_a_body_comes_in_parts_that_are_not_too_large(body: bytes, largest: int) -> None:
    header = frames.header({"message_id": "a"}, {}, len(body))
    first, *rest = read(frames.content(7, header, body, largest))
    assert isinstance(first, ContentHeader)
    assert all(isinstance(part, ContentBody) and len(part.value) <= largest for part in rest)
    assert b"".join(part.value for part in rest) == body


@pytest.mark.parametrize(
    "headers",
    [{"n": 2**63}, {"n": object()}, {"a" * 256: 1}],
    ids=["a large number", "no value", "a long name"],
)
def test_what_amqp_cannot_carry_is_an_error(headers: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, struct.error)):
        frames.header({"message_id": "a"}, headers, 0)
