"""What an answer of the app means, in the words of the table that users read."""

import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue import codes
from namedqueue.api.namedqueue import Errors
from namedqueue.outcomes import (
    APP_ABSENT,
    DROPPED,
    LARGEST_BODY,
    LONGEST_RETRY_AFTER_MS,
    PROCESSED,
    Answer,
    Failure,
    Kind,
    classify,
    invalid,
    retry_after_ms,
)

NOW = 1_772_107_200_000  # 2026-02-26T12:00:00Z
PROBLEM = "application/problem+json"


def kind_of(answer: Answer | Failure, errors: Errors | None = None) -> Kind:
    return classify(answer, errors or Errors(), now=NOW).kind


def problem(**document: object) -> Answer:
    return Answer(422, content_type=PROBLEM, body=json.dumps(document).encode())


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success_is_processed(status: int) -> None:
    assert classify(Answer(status), now=NOW) is PROCESSED


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_trouble_that_may_pass_is_transient(status: int) -> None:
    assert kind_of(Answer(status)) is Kind.TRANSIENT


@pytest.mark.parametrize("status", [400, 405, 406, 410, 413, 414, 415, 422])
def test_trouble_that_stays_is_permanent(status: int) -> None:
    assert kind_of(Answer(status)) is Kind.PERMANENT


@pytest.mark.parametrize("status", [100, 199, 301, 302, 401, 403, 404, 409, 418, 600, 999])
def test_any_other_status_is_unknown(status: int) -> None:
    assert kind_of(Answer(status)) is Kind.UNKNOWN


@pytest.mark.parametrize(
    ("failure", "code"), [(Failure.TIMEOUT, "TIMEOUT"), (Failure.RESET, "ECONNRESET")]
)
def test_no_answer_is_transient_and_has_a_code(failure: Failure, code: str) -> None:
    outcome = classify(failure, now=NOW)
    assert (outcome.kind, outcome.code) == (Kind.TRANSIENT, code)
    assert outcome.message


def test_a_refused_connection_means_that_the_app_is_absent_whatever_the_rules_say() -> None:
    errors = Errors(permanent=("ECONNREFUSED",))
    assert classify(Failure.REFUSED, errors, now=NOW) is APP_ABSENT


def test_rules_win_over_the_table() -> None:
    errors = Errors(permanent=("HTTP_500", "TIMEOUT"), transient=("HTTP_422",))
    assert kind_of(Answer(500), errors) is Kind.PERMANENT
    assert kind_of(Failure.TIMEOUT, errors) is Kind.PERMANENT
    assert kind_of(Answer(422), errors) is Kind.TRANSIENT


def test_a_rule_for_a_status_holds_also_when_the_body_has_a_finer_code() -> None:
    conflict = Answer(409, "application/json", b'{"code": "STALE"}')
    assert kind_of(conflict, Errors(permanent=("HTTP_409",))) is Kind.PERMANENT


def test_a_rule_for_the_finer_code_comes_before_the_one_for_the_status() -> None:
    conflict = Answer(409, "application/json", b'{"code": "STALE"}')
    errors = Errors(permanent=("HTTP_409",), transient=("STALE",))
    assert kind_of(conflict, errors) is Kind.TRANSIENT


def test_rules_never_turn_a_success_into_a_failure() -> None:
    answer = Answer(200, "application/json", b'{"code": "HTTP_200"}')
    assert kind_of(answer, Errors(permanent=("HTTP_200",))) is Kind.PROCESSED


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("ack", Kind.PROCESSED),
        ("retry", Kind.TRANSIENT),
        ("dead-letter", Kind.PERMANENT),
        ("drop", Kind.DROPPED),
        (" Dead-Letter ", Kind.PERMANENT),
    ],
)
@pytest.mark.parametrize("status", [200, 404, 422, 500])
def test_nq_outcome_wins_over_everything(status: int, header: str, kind: Kind) -> None:
    errors = Errors(permanent=("HTTP_500",), transient=("HTTP_422",))
    assert kind_of(Answer(status, nq_outcome=header), errors) is kind


def test_an_unknown_nq_outcome_is_as_if_it_were_not_there() -> None:
    assert kind_of(Answer(200, nq_outcome="perhaps")) is Kind.PROCESSED
    assert kind_of(Answer(500, nq_outcome="")) is Kind.TRANSIENT


def test_a_dropped_job_is_one_constant() -> None:
    assert classify(Answer(500, nq_outcome="drop"), now=NOW) is DROPPED


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (problem(code="payment-declined", type="https://x/y"), "PAYMENT_DECLINED"),
        (problem(type="https://example.com/probs/out-of-credit"), "OUT_OF_CREDIT"),
        (problem(type="https://example.com/probs/out-of-credit/"), "OUT_OF_CREDIT"),
        (problem(type="urn:problem-type:belgif:badRequest"), "BAD_REQUEST"),
        (problem(type="https://example.com/errors#stale"), "STALE"),
        (problem(type="about:blank", title="Unprocessable"), "HTTP_422"),
        (problem(type=7, code=None), "HTTP_422"),
        (Answer(422, "application/json; charset=utf-8", b'{"code":"NO_STOCK"}'), "NO_STOCK"),
        (Answer(422, "application/vnd.api+json", b'{"code":20404}'), "E_20404"),
        (Answer(422, "application/json", b'{"type":"https://x/y"}'), "HTTP_422"),
        (Answer(422, "text/plain", b'{"code":"NO_STOCK"}'), "HTTP_422"),
        (Answer(422, code="no stock"), "NO_STOCK"),
    ],
)
def test_the_error_code_is_the_best_that_the_answer_gives(answer: Answer, code: str) -> None:
    assert classify(answer, now=NOW).code == code


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (problem(detail="Card 7 was\r\ndeclined", title="Declined"), "Card 7 was declined"),
        (problem(title="Declined"), "Declined"),
        (Answer(500, "application/json", b'{"message":"no stock"}'), "no stock"),
        (Answer(500, "text/plain", b"it broke\n"), "it broke"),
        (Answer(503), "the app answered 503 Service Unavailable"),
        (Answer(599), "the app answered 599"),
    ],
)
def test_the_message_is_a_line_that_a_person_can_read(answer: Answer, message: str) -> None:
    assert classify(answer, now=NOW).message == message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[" * LARGEST_BODY,
        b'{"a":' * 10_000,
        b'{"code":' + b"9" * 10_000 + b"}",
        b'{"code":"\\ud800"}',
        b'{"code":{"code":"X"}}',
        b'{"code":true}',
        b'{"code":"---"}',
        b"null",
        b'{"code":"TOO_LATE"}' + b" " * LARGEST_BODY,
    ],
)
def test_a_hostile_body_is_a_body_without_a_code(body: bytes) -> None:
    assert classify(Answer(500, PROBLEM, body), now=NOW).code == "HTTP_500"


@given(
    status=st.integers(0, 999),
    content_type=st.sampled_from(["", "text/plain", "application/json", PROBLEM]) | st.text(),
    body=st.binary(max_size=200)
    | st.dictionaries(
        st.sampled_from(["code", "type", "detail", "title", "message", "error"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()),
    ).map(lambda document: json.dumps(document).encode()),
    retry_after=st.none() | st.text() | st.from_regex(r"[0-9 :,A-Za-z+-]{1,40}", fullmatch=True),
    nq_outcome=st.none() | st.text(),
)
def test_no_answer_can_make_it_raise_and_codes_are_always_well_formed(
    status: int, content_type: str, body: bytes, retry_after: str | None, nq_outcome: str | None
) -> None:
    outcome = classify(Answer(status, content_type, body, retry_after, nq_outcome), now=NOW)
    if outcome.kind not in (Kind.PROCESSED, Kind.DROPPED):
        assert re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", outcome.code)
        assert outcome.message
        assert outcome.message.isprintable()
        assert len(outcome.message) <= codes.LONGEST_MESSAGE
    if outcome.retry_after_ms is not None:
        assert 0 <= outcome.retry_after_ms <= LONGEST_RETRY_AFTER_MS


@given(name=st.text(max_size=300) | st.integers())
def test_a_code_once_normalised_stays_the_same(name: str | int) -> None:
    code = codes.error_code(name)
    assert codes.error_code(code) == code


@pytest.mark.parametrize(
    ("header", "milliseconds"),
    [
        ("0", 0),
        ("120", 120_000),
        (" 7 ", 7_000),
        ("Thu, 26 Feb 2026 12:00:30 GMT", 30_000),
        ("Thu, 26 Feb 2026 11:59:30 GMT", 0),
        ("9" * 30, LONGEST_RETRY_AFTER_MS),
        ("", None),
        (None, None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 5000, None),
        ("Thu, 99 Feb 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(
    header: str | None, milliseconds: int | None
) -> None:
    assert datetime.fromtimestamp(NOW / 1000, UTC).isoformat() == "2026-02-26T12:00:00+00:00"
    assert retry_after_ms(header, now=NOW) == milliseconds


@pytest.mark.parametrize(
    ("status", "throttled"), [(429, True), (503, True), (500, False), (408, False)]
)
def test_only_429_and_503_ask_for_patience(status: int, throttled: bool) -> None:
    outcome = classify(Answer(status, retry_after="3"), now=NOW)
    assert (outcome.retry_after_ms, outcome.throttled) == (3_000, throttled)


def test_without_a_retry_after_nobody_asked_for_patience() -> None:
    assert not classify(Answer(429), now=NOW).throttled


def test_an_invalid_job_is_permanent() -> None:
    outcome = invalid("payload.amount is not a number")
    assert (outcome.kind, outcome.code) == (Kind.PERMANENT, "VALIDATION_ERROR")
