"""The story of a job stays short, readable and harmless."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue.history import (
    LARGEST_HISTORY,
    LARGEST_RECORD,
    MOST_RECORDS,
    NO_HISTORY,
    AttemptRecord,
    History,
    read_history,
)
from namedqueue.outcomes import Kind
from unit.jobs import field_values, history_of, records

AT = 1_772_107_200_123


def failed(attempt: int, message: str | None = None) -> AttemptRecord:
    return AttemptRecord(attempt, Kind.TRANSIENT, "TIMEOUT", AT, 30_000, message)


def written(history: History) -> list[dict[str, object]]:
    documents: list[dict[str, object]] = json.loads(history.encoded())
    return documents


@given(told=st.lists(records, min_size=1, max_size=30))
def test_a_history_comes_back_from_its_header_as_it_was(told: list[AttemptRecord]) -> None:
    history = history_of(told)
    assert read_history(history.encoded()) == history
    assert read_history(history.encoded().encode()) == history


@given(told=st.lists(records, min_size=1, max_size=60), message=st.text(max_size=3_000))
def test_a_history_never_outgrows_its_caps(told: list[AttemptRecord], message: str) -> None:
    history = history_of(told).with_record(failed(7, message))
    assert len(history.encoded()) <= LARGEST_HISTORY
    assert len(history.records) <= MOST_RECORDS
    for document in written(history):
        assert len(json.dumps(document, separators=(",", ":"))) <= LARGEST_RECORD


def test_a_full_history_keeps_the_first_and_the_most_recent() -> None:
    history = history_of([failed(attempt) for attempt in range(1, 101)])
    assert [record.attempt for record in history.records] == [1, *range(82, 101)]


def test_a_record_reads_as_the_design_says() -> None:
    assert written(NO_HISTORY.with_record(failed(1))) == [
        {
            "attempt": 1,
            "outcome": "transient",
            "errorCode": "TIMEOUT",
            "at": "2026-02-26T12:00:00.123Z",
            "durationMs": 30_000,
        }
    ]


@pytest.mark.parametrize("message", ["x" * 5_000, "😀" * 5_000, '"' * 5_000, "\x00" * 5_000])
def test_a_long_message_is_cut_and_nothing_else(message: str) -> None:
    [document] = written(NO_HISTORY.with_record(failed(1, message)))
    assert document.keys() - {"message"} == {"attempt", "outcome", "errorCode", "at", "durationMs"}
    assert len(json.dumps(document, separators=(",", ":"))) <= LARGEST_RECORD


@given(value=field_values | st.lists(st.dictionaries(st.text(), st.text())).map(json.dumps))
def test_a_forged_history_is_an_empty_one(value: object) -> None:
    history = read_history(value)
    assert history.records == ()
    assert history.encoded() == ""


@given(
    forged=st.lists(
        st.fixed_dictionaries(
            {"attempt": st.integers() | st.text(), "at": st.just("2026-02-26T12:00:00Z")},
            optional={
                "outcome": st.text() | st.integers() | st.lists(st.text()),
                "errorCode": st.text() | st.integers(),
                "durationMs": st.integers() | st.booleans() | st.text(),
                "message": st.text() | st.lists(st.text()),
                "extra": st.text(),
            },
        ),
        max_size=40,
    )
)
def test_a_forged_history_can_lie_and_do_nothing_else(forged: list[dict[str, object]]) -> None:
    history = read_history(json.dumps(forged))
    assert len(history.records) <= MOST_RECORDS
    assert history_of(list(history.records)) == history
    assert history.encoded().isprintable()


@pytest.mark.parametrize(
    "at", ["", "yesterday", None, 7, "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"]
)
def test_a_record_without_a_sensible_moment_is_left_out(at: object) -> None:
    assert read_history(json.dumps([{"attempt": 1, "at": at}])).records == ()


def test_a_history_is_not_read_until_someone_asks() -> None:
    assert bool(read_history("not even JSON"))
    assert read_history("not even JSON").records == ()


def test_a_history_larger_than_we_write_is_not_ours() -> None:
    assert read_history("[" + " " * LARGEST_HISTORY + "]") is NO_HISTORY


def test_equal_histories_are_one_value() -> None:
    told = NO_HISTORY.with_record(failed(1))
    assert len({told, read_history(told.encoded())}) == 1
    assert told != "a text"
    assert repr(told) == f"History({told.records!r})"
