"""Jobs and messages as Hypothesis draws them: sound ones, and whatever a stranger could send."""

from typing import Any

from hypothesis import strategies as st

from namedqueue import headers as h
from namedqueue.envelope import Job
from namedqueue.history import AttemptRecord, History
from namedqueue.moments import LATEST
from namedqueue.outcomes import Kind

VISIBLE = "".join(chr(c) for c in range(0x21, 0x7F))
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

moments = st.integers(0, LATEST)
texts = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=60)
ascii_texts = st.text(VISIBLE, min_size=1, max_size=60)
counts = st.integers(0, h.LARGEST_COUNT)

user_names = st.from_regex(r"[a-z0-9-]{1,64}", fullmatch=True).filter(
    lambda name: not name.startswith(("nq-", "x-")) and name not in ("cc", "bcc")
) | st.sampled_from(sorted(h.X_HEADERS_THAT_PASS))

records = st.builds(
    AttemptRecord,
    attempt=st.integers(1, h.LARGEST_COUNT),
    outcome=st.sampled_from(Kind),
    error_code=st.from_regex(r"[A-Z][A-Z0-9_]{0,63}", fullmatch=True),
    at=moments,
    duration_ms=moments,
    message=st.none() | st.text(max_size=80),
)


def history_of(records: list[AttemptRecord]) -> History:
    history = History()
    for record in records:
        history = history.with_record(record)
    return history


jobs = st.builds(
    Job,
    id=st.text(VISIBLE, min_size=1, max_size=255),
    queue=st.just("orders"),
    payload=st.binary(max_size=64),
    enqueued_at=moments,
    time=moments,
    type=texts,
    source=st.none() | texts,
    content_type=ascii_texts,
    content_encoding=st.none() | ascii_texts,
    correlation_id=st.none() | texts,
    attempt=st.integers(1, h.LARGEST_COUNT),
    throttles=counts,
    redrives=counts,
    redrive=st.none() | texts,
    edited_from=st.none() | st.text(VISIBLE, min_size=1, max_size=255),
    priority=st.integers(0, 255),
    group=st.none() | texts,
    topic=st.none() | texts,
    idempotency_key=st.none() | texts,
    traceparent=st.just(TRACEPARENT),
    tracestate=st.none() | ascii_texts,
    history=st.lists(records, max_size=3).map(history_of),
    headers=st.dictionaries(user_names, st.text(VISIBLE + " ", max_size=40), max_size=5).map(
        lambda headers: tuple(headers.items())
    ),
)

field_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.decimals()
    | st.datetimes()
    | st.text()
    | st.text(st.characters(categories=["Cs", "Cc"]))
    | st.binary()
    | st.sampled_from(["x" * 30_000, "[" * 20_000, b"\xff\x00", "\r\nX-Evil: 1", "é" * 200]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
"""Every type that an AMQP field can have, with the values that hurt."""

_THE_BROKERS = (
    *("x-death", "X-Death", "x-first-death-queue", "x-delivery-count", "x-delay", "x-match"),
    *("CC", "BCC", "cc", "Bcc", "x-stream-offset", "x-opt-foo"),
)
_OURS = (
    *(h.ATTEMPT, h.THROTTLES, h.REDRIVES, h.ENQUEUED_AT, h.TIME, h.SOURCE, h.GROUP, h.TOPIC),
    *(h.REDRIVE, h.IDEMPOTENCY_KEY, h.HISTORY, h.TRACEPARENT, h.TRACESTATE),
    *(h.REASON, h.REASON_MESSAGE, h.DEAD_LETTERED_AT, "NQ-Attempt", "nq-forged"),
)
_MALFORMED = ("__TypeId__", "tenant id", "", "é", "content-length\r\n", "n" * 65)

hostile_names = st.sampled_from((*_THE_BROKERS, *_OURS, *_MALFORMED)) | st.text() | user_names

property_names = st.sampled_from(
    (
        *("message_id", "type", "timestamp", "content_type", "content_encoding", "priority"),
        *("correlation_id", "user_id", "reply_to", "expiration", "app_id", "delivery_mode"),
    )
)
