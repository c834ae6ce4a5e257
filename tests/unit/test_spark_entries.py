"""Rows become the same jobs however often and in whatever order a task is run."""

import json
import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_namedqueue.entries import Entries, Entry, InvalidRow
from pyspark_namedqueue.options import Writing

ROWS = st.lists(
    st.fixed_dictionaries({"n": st.integers(0, 5), "text": st.text(max_size=3)}), max_size=30
)


def options(columns: tuple[str, ...] = ("n", "text"), **given: str) -> Writing:
    return Writing.read({"queue": "orders"} | given, columns)


def entries(
    rows: list[dict[str, Any]], how: Writing | None = None, write: str = "w", partition: int = 0
) -> list[Entry]:
    made = list(Entries(how or options(), write, partition).of(rows))
    assert all(isinstance(each, Entry) for each in made), made
    return [each for each in made if isinstance(each, Entry)]


def payload(row: Mapping[str, Any], **given: str) -> object:
    [entry] = entries([dict(row)], options(tuple(row), **given))
    return json.loads(entry.line)["payload"]


@given(ROWS, st.randoms())
def test_ids_do_not_depend_on_the_order_of_rows(
    rows: list[dict[str, Any]], rnd: random.Random
) -> None:
    shuffled = rows.copy()
    rnd.shuffle(shuffled)
    assert {each.line for each in entries(rows)} == {each.line for each in entries(shuffled)}


@given(ROWS)
def test_every_row_has_an_id_of_its_own(rows: list[dict[str, Any]]) -> None:
    assert len({each.id for each in entries(rows)}) == len(rows)


def test_another_write_and_another_partition_have_other_ids() -> None:
    row = [{"n": 1, "text": "a"}]
    ids = {entries(row, write=w, partition=p)[0].id for w in ("v", "w") for p in (0, 1)}
    assert len(ids) == 4


def test_rows_that_agree_in_their_key_are_one_job() -> None:
    twice = entries([{"n": 1, "text": "a"}] * 2, options(key="text"))
    assert twice[0] == twice[1]
    assert json.loads(twice[0].line)["key"] == "a"


def test_equal_rows_without_a_key_are_two_jobs_also_where_others_have_one() -> None:
    twice = entries([{"n": 1, "text": None}] * 2, options(key="text"))
    assert twice[0].id != twice[1].id


def test_named_columns_fill_the_fields_and_a_null_leaves_one_out() -> None:
    how = options(("n", "who", "kind", "pause"), group="who", type="kind", delay="pause")
    [entry] = entries([{"n": 1, "who": 7, "kind": "created", "pause": None}], how)
    document = json.loads(entry.line)
    assert (document["group"], document["type"], "delay" in document) == ("7", "created", False)


def test_values_that_json_does_not_know_are_written_without_loss() -> None:
    at = datetime(2026, 2, 26, 13, 5, tzinfo=timezone(timedelta(hours=1)))
    row = {"at": at, "day": date(2026, 2, 26), "price": Decimal("0.10"), "raw": b"\x00\xff"}
    assert payload(row) == {
        "at": "2026-02-26T12:05:00Z",
        "day": "2026-02-26",
        "price": "0.10",
        "raw": "AP8=",
    }
    assert at.astimezone(UTC).hour == 12


@pytest.mark.parametrize("text", ['{"a": [1,\r\n 2]}', b'{"a": [1, 2]}'], ids=str)
def test_a_payload_column_of_text_is_json_already(text: str | bytes) -> None:
    assert payload({"body": text, "n": 1}, payload="body") == {"a": [1, 2]}


@pytest.mark.parametrize(
    "value", ["{", '"a"}, {"id": "forged"', "NaN", b"\xff", "[" * 100_000], ids=repr
)
def test_a_payload_column_that_is_not_json_is_an_invalid_row(value: object) -> None:
    [problem] = Entries(options(("body",), payload="body"), "w", 0).of([{"body": value}])
    assert isinstance(problem, InvalidRow)
    assert "column body holds no JSON" in str(problem)


def test_a_number_that_json_cannot_write_is_an_invalid_row() -> None:
    [problem] = Entries(options(("n",)), "w", 0).of([{"n": float("nan")}])
    assert isinstance(problem, InvalidRow)
