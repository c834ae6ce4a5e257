"""From a request to jobs: what is taken, what is refused, and that one bad entry fails alone."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.port.play import NAMESPACE, named_queue
from fixtures.scale import scaled
from namedqueue import headers as h
from namedqueue.envelope import decode, encode
from namedqueue.handler import handler_headers
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Main, Publication, QueueKey, Settled, Verdict
from namedqueue_sidecar.consuming.validation import validator
from namedqueue_sidecar.intake.jobs import (
    LARGEST_BATCH,
    LARGEST_PAYLOAD,
    MOST_ENTRIES,
    Intake,
    Wanted,
    entries,
    new_id,
    wanted_by_headers,
)
from namedqueue_sidecar.intake.problems import Problem
from namedqueue_sidecar.intake.sending import Sending, refusal
from unit.jobs import TRACEPARENT, hostile_names

NOW = 1_700_000_000_000
NDJSON = {"content-type": "application/x-ndjson"}

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)


def intake(**spec: Any) -> Intake:
    queue = named_queue(**spec)
    return Intake(queue, validator(queue.spec.payload_schema))


ORDERS = intake()


def accept(payload: bytes = b"{}", *, of: Intake | None = None, **wanted: Any) -> Main:
    return (of or ORDERS).accept(Wanted(**wanted), payload, NOW)


def refused(act: Callable[[], object]) -> Problem:
    with pytest.raises(Problem) as caught:
        act()
    return caught.value


def read_all(body: bytes, **headers: str) -> list[tuple[Wanted, bytes] | Problem]:
    """Read every entry of a batch; a problem stands for the entry it is about."""

    def result(read: Callable[[], tuple[Wanted, bytes]]) -> tuple[Wanted, bytes] | Problem:
        try:
            return read()
        except Problem as problem:
            return problem

    given_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return [result(read) for read in entries(given_headers, body)]


def read_one(**entry: Any) -> tuple[Wanted, bytes] | Problem:
    [found] = read_all(orjson.dumps([entry]))
    return found


def test_a_job_is_named_and_dated_by_us_unless_the_caller_names_it() -> None:
    taken = accept()
    assert taken.queue == QueueKey(NAMESPACE, "orders")
    assert (taken.job.enqueued_at, taken.job.time, taken.job.attempt) == (NOW, NOW, 1)
    assert taken.job.id != accept().job.id
    assert accept(id="order-17").job.id == "order-17"


def test_ids_sort_by_time_of_enqueueing() -> None:
    ids = [new_id(NOW + later) for later in range(0, 10**9, 10**7)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("wrong", ["", " ", "a b", "é", "a\n", "x" * 256, "\x7f", 7, [], "\ud800"])
def test_an_id_that_would_not_survive_every_wire_is_refused(wrong: Any) -> None:
    assert refused(lambda: accept(id=wrong)).code == "INVALID_FIELD"


@pytest.mark.parametrize("name", ["type", "key", "group", "content_type"])
@pytest.mark.parametrize("wrong", ["", " a", "a ", "é", "a\r\nb", "x" * 256, 1.5, {}, "\udc80"])
def test_every_other_text_is_one_printable_line(name: str, wrong: Any) -> None:
    problem = refused(lambda: accept(**{name: wrong}))
    assert (problem.status, problem.code) == (422, "INVALID_FIELD")
    given: dict[str, Any] = {name: "a printable line"}
    assert accept(**given)


def test_a_payload_of_a_mebibyte_is_the_largest() -> None:
    assert len(accept(b"x" * LARGEST_PAYLOAD).job.payload) == LARGEST_PAYLOAD
    assert refused(lambda: accept(b"x" * (LARGEST_PAYLOAD + 1))).status == 413


def test_a_payload_against_the_schema_is_refused_with_the_place_and_without_the_payload() -> None:
    strict = intake(schema={"type": "object", "properties": {"order": {"type": "integer"}}})
    assert accept(b'{"order":17}', of=strict)
    long = orjson.dumps({"order": "x" * 100_000})
    problem = refused(lambda: accept(long, of=strict))
    assert (problem.status, problem.code) == (422, "SCHEMA_VIOLATION")
    assert problem.detail.startswith("/order: ")
    assert len(problem.detail) <= 1000
    assert refused(lambda: accept(b"not json", of=strict)).code == "SCHEMA_VIOLATION"


@pytest.mark.parametrize(("text", "milliseconds"), [("0s", 0), ("250ms", 250), ("15s", 15_000)])
def test_a_delay_is_a_duration(text: str, milliseconds: int) -> None:
    assert accept(delay=text).delay_ms == milliseconds


@pytest.mark.parametrize("wrong", ["", "1", "-1s", "1.5s", "1 s", "s", 5, None.__class__, "16s"])
def test_a_delay_that_is_none_or_longer_than_the_ladder_is_refused(wrong: Any) -> None:
    assert refused(lambda: accept(delay=wrong)).code == "INVALID_DELAY"


@pytest.mark.parametrize("right", ["0", "9", 9, "009"])
def test_a_priority_is_a_number_in_a_header_or_in_an_entry(right: Any) -> None:
    classic = intake(durable={"storage": "classic", "maxPriority": 9})
    assert accept(of=classic, priority=right).job.priority == int(right)


@pytest.mark.parametrize("wrong", ["10", 10, -1, "-1", True, 1.0, "1.0", "", "¹", 10**30, "0" * 4])
def test_a_priority_outside_what_the_queue_has_is_refused(wrong: Any) -> None:
    classic = intake(durable={"storage": "classic", "maxPriority": 9})
    assert refused(lambda: accept(of=classic, priority=wrong)).code == "INVALID_PRIORITY"


def test_a_queue_without_priorities_takes_none_but_zero() -> None:
    assert accept(priority="0").job.priority == 0
    assert refused(lambda: accept(priority="1")).code == "INVALID_PRIORITY"


def test_headers_of_a_request_become_fields_of_the_job() -> None:
    wanted = wanted_by_headers(
        {
            "content-type": "text/plain; charset=utf-8",
            "content-encoding": "gzip",
            "idempotency-key": "k",
            "nq-type": "order.created",
            "nq-group": "g",
            "nq-header-tenant": "acme",
            "traceparent": TRACEPARENT,
            "tracestate": "a=b",
            "x-death": "1",
            "nq-attempt": "9",
        }
    )
    job = intake().accept(wanted, b"\x00\xff", NOW).job
    assert (job.type, job.group, job.idempotency_key) == ("order.created", "g", "k")
    assert (job.content_type, job.content_encoding) == ("text/plain; charset=utf-8", "gzip")
    assert (job.traceparent, job.tracestate) == (TRACEPARENT, "a=b")
    assert (job.headers, job.attempt, job.payload) == ((("tenant", "acme"),), 1, b"\x00\xff")


def test_a_malformed_trace_is_no_reason_to_refuse_a_job() -> None:
    for state in ("é", "a\x01b", "a\r\nb", "x" * 513, "\udcff"):
        job = accept(traceparent=TRACEPARENT, tracestate=state).job
        assert job.traceparent == TRACEPARENT
        kept = job.tracestate or ""
        assert kept.isascii()
        assert kept.isprintable() or not kept
    lost = accept(traceparent="00-nonsense", tracestate="a=b").job
    assert (lost.traceparent, lost.tracestate) == (None, None)


@pytest.mark.parametrize(
    "name", ["cc", "bcc", "x-death", "x-delay", "nq-attempt", "traceparent", "a b", "n" * 65, ""]
)
def test_a_header_that_steers_broker_or_queue_is_refused_by_name(name: str) -> None:
    problem = refused(lambda: wanted_by_headers({f"nq-header-{name}": "1", "nq-header-a": "b"}))
    assert (problem.status, problem.code) == (422, "INVALID_HEADER")
    assert repr(name[:64]) in problem.detail


def test_the_users_headers_have_eight_kibibytes_in_all() -> None:
    room = h.MOST_USER_HEADER_BYTES - 1
    assert wanted_by_headers({"nq-header-a": "x" * room}).headers
    assert refused(lambda: wanted_by_headers({"nq-header-a": "x" * (room + 1)})).status == 422


def test_the_refused_header_of_an_entry_is_named_whatever_its_neighbours_case() -> None:
    problem = read_one(headers={"Tenant": "acme", "CC": "x"}, payload=1)
    assert isinstance(problem, Problem)
    assert "'CC'" in problem.detail


@pytest.mark.parametrize("wrong", [0, False, "", [], "a=b", None])
def test_headers_of_an_entry_are_an_object(wrong: Any) -> None:
    problem = read_one(headers=wrong, payload=1)
    assert isinstance(problem, Problem)


@pytest.mark.parametrize("kind", ["application/x-ndjson", "Application/X-NDJSON; charset=utf-8"])
def test_lines_and_an_array_say_the_same(kind: str) -> None:
    documents = [{"payload": {"n": n}, "key": f"k{n}", "priority": 0} for n in range(5)]
    lines = b"\r\n\n".join(orjson.dumps(each) for each in documents) + b"\n"
    assert read_all(lines, content_type=kind) == read_all(orjson.dumps(documents))


def test_one_bad_entry_fails_alone() -> None:
    lines = [b'{"payload":1}', b"{", b'{"paylod":1}', b"[1]", b'{"id":"x"}', b"NaN", b"\xff\xfe"]
    lines += [b'{"payload":NaN}', b'{"payload":"\\ud800"}', b'{"payload":"\xff"}', b'{"payload":2}']
    found = read_all(b"\n".join(lines), content_type="application/x-ndjson")
    good = [index for index, each in enumerate(found) if not isinstance(each, Problem)]
    assert good == [0, len(lines) - 1]
    assert all(each.status == 400 for each in found if isinstance(each, Problem))


def test_the_payload_of_a_line_is_passed_on_byte_for_byte() -> None:
    payload = (
        b'{ "n":1.50, "big": 123456789012345678901234567890, "far": 1e999,"\xc3\xa9":"\\u00e9"}'
    )
    (read,) = entries(
        {"content-type": "application/x-ndjson"}, b'{"key":"k","payload":%b}' % payload
    )
    assert read()[1] == payload


@pytest.mark.parametrize("body", [b"", b"{}", b"1", b"[", b"[1", b"null", b"[" * 100_000])
def test_a_body_that_is_no_batch_is_refused_whole(body: bytes) -> None:
    assert refused(lambda: list(entries({}, body))).status == 400


def test_an_empty_batch_is_a_batch() -> None:
    assert read_all(b"[]") == []
    assert read_all(b"\n \n", content_type="application/x-ndjson") == []


def test_a_batch_has_ten_thousand_entries_and_sixteen_mebibytes_at_most() -> None:
    assert len(list(entries(NDJSON, b"{}\n" * MOST_ENTRIES))) == MOST_ENTRIES
    assert refused(lambda: list(entries(NDJSON, b"{}\n" * (MOST_ENTRIES + 1)))).status == 413
    assert refused(lambda: list(entries(NDJSON, b" " * (LARGEST_BATCH + 1)))).status == 413


def test_an_entry_that_is_too_large_fails_alone() -> None:
    found = read_all(orjson.dumps([{"payload": "x" * LARGEST_PAYLOAD}, {"payload": 1}]))
    taken = [each for each in found if not isinstance(each, Problem)]
    assert refused(lambda: intake().accept(*taken[0], NOW)).status == 413
    assert intake().accept(*taken[1], NOW).job.payload == b"1"


@settings(max_examples=scaled(2_000))
@given(payload=json_values, lines=st.booleans())
def test_the_payload_of_an_entry_is_passed_on_as_the_same_value(payload: Any, lines: bool) -> None:
    entry = json.dumps({"payload": payload}).encode()
    body, kind = (entry, "application/x-ndjson") if lines else (b"[%b]" % entry, "")
    [found] = read_all(body, content_type=kind)
    assert not isinstance(found, Problem), found
    assert repr(json.loads(found[1])) == repr(json.loads(json.dumps(payload)))


def test_a_number_past_64_bits_stays_that_number() -> None:
    [found] = read_all(b'[{"payload":{"id":123456789012345678901234567890}}]')
    assert not isinstance(found, Problem)
    assert json.loads(found[1]) == {"id": 123456789012345678901234567890}


@pytest.mark.parametrize("depth", [100, 250, 400, 900, 1_020, 5_000, 500_000])
def test_deep_nesting_is_passed_on_or_refused_but_never_a_fault(depth: int) -> None:
    entry = b'{"payload":%b%b}' % (b"[" * depth, b"]" * depth)
    [found] = read_all(entry, content_type="application/x-ndjson")
    if isinstance(found, Problem):
        assert found.status == 400
        assert depth > 400
    else:
        assert found[1] == b"[" * depth + b"]" * depth


@settings(max_examples=scaled(5_000))
@given(
    entry=st.dictionaries(
        st.sampled_from(["id", "key", "type", "group", "priority", "delay", "headers", "payload"])
        | st.text(max_size=5),
        json_values | st.dictionaries(hostile_names, json_values, max_size=3),
        max_size=6,
    )
)
def test_whatever_an_entry_says_it_becomes_a_sound_job_or_a_problem(entry: dict[str, Any]) -> None:
    text = json.dumps({**entry, "payload": entry.get("payload")}).encode()
    [found] = read_all(text, content_type="application/x-ndjson")
    if isinstance(found, Problem):
        assert found.status in (400, 413, 422)
        return
    try:
        job = ORDERS.accept(*found, NOW).job
    except Problem:
        return
    properties, headers = encode(job)
    again = decode(properties, headers, job.payload, queue="orders", fresh_id="lost", now=NOW)
    assert again == job
    assert headers[h.ATTEMPT] == 1
    assert not {name.lower() for name in headers} & {"cc", "bcc", "x-death", h.REDRIVES, h.HISTORY}
    for name, value in handler_headers(job, named_queue().spec.retry).items():
        assert (name + value).isascii()
        assert (name + value).isprintable()


class _Scripted(BuiltinBroker):
    """Settles every batch as told, and counts the batches."""

    def __init__(self, verdicts: Callable[[int], Sequence[Verdict]]) -> None:
        super().__init__(None)
        self.batches: list[int] = []
        self._verdicts = verdicts

    @property
    def unavailable(self) -> str | None:
        return None

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        self.batches.append(len(batch))
        settled(self._verdicts(len(batch)))


async def test_what_comes_in_one_turn_of_the_loop_goes_as_one_batch() -> None:
    order = [Verdict.CONFIRMED, Verdict.FULL, Verdict.UNKNOWN, Verdict.UNROUTABLE]
    broker = _Scripted(lambda _: order)
    sending = Sending(broker)
    sent = [[accept()], [accept(), accept()], [accept()], []]
    verdicts = await asyncio.gather(*(sending.send(each) for each in sent))
    assert [list(each) for each in verdicts] == [order[:1], order[1:3], order[3:], []]
    assert broker.batches == [4]


async def test_a_broker_with_a_fault_leaves_no_caller_waiting() -> None:
    def fault(_: int) -> Sequence[Verdict]:
        raise RuntimeError("a fault")

    sending = Sending(_Scripted(fault))
    told = await asyncio.wait_for(
        asyncio.gather(*(sending.send([accept()]) for _ in range(3)), return_exceptions=True), 10
    )
    assert [type(each) for each in told] == [RuntimeError] * 3


def test_every_verdict_but_a_confirm_is_a_problem_of_its_own() -> None:
    assert refusal(Verdict.CONFIRMED) is None
    problems = [refusal(each) for each in (Verdict.UNROUTABLE, Verdict.FULL, Verdict.UNKNOWN)]
    assert [each.status for each in problems if each] == [404, 429, 503]
    assert ["Retry-After" in each.headers for each in problems if each] == [False, True, True]


def test_a_fifo_queue_finds_the_group_unless_the_caller_names_it() -> None:
    ordered = intake(durable={"fifo": {"groupBy": "body.account"}})
    assert accept(b'{"account":17}', of=ordered).job.group == "17"
    assert accept(b'{"account":17}', of=ordered, group="mine").job.group == "mine"
    assert accept(b"no JSON at all", of=ordered, group="mine").job.group == "mine"
    by_id = intake(durable={"fifo": {"groupBy": "messageId"}})
    assert accept(b"\xff", of=by_id, id="j-1").job.group == "j-1"
    by_header = intake(durable={"fifo": {"groupBy": "header.tenant"}})
    assert accept(of=by_header, headers=(("tenant", "acme"),)).job.group == "acme"


@pytest.mark.parametrize("payload", [b"{}", b'{"account":null}', b"[]", b"", b"\xff"])
def test_a_job_without_a_group_is_refused_by_a_fifo_queue_and_by_no_other(payload: bytes) -> None:
    ordered = intake(durable={"fifo": {"groupBy": "body.account"}})
    problem = refused(lambda: accept(payload, of=ordered))
    assert (problem.status, problem.code) == (422, "MISSING_GROUP")
    assert "body.account" in problem.detail
    assert accept(payload).job.group is None


def test_a_fifo_queue_takes_no_delay() -> None:
    ordered = intake(durable={"fifo": {"groupBy": "messageId"}})
    problem = refused(lambda: accept(of=ordered, delay="1s"))
    assert (problem.status, problem.code) == (422, "INVALID_DELAY")
