"""What a read asks of the API follows from its options and filters; a range is cut without gaps."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    LessThanOrEqual,
    Not,
)

from pyspark_namedqueue.dead_letters import DeadLetterReader, Part, Wanted, moment
from pyspark_namedqueue.options import InvalidOption, Letters, Stretch
from pyspark_namedqueue.streams import parts

AT = datetime(2026, 11, 18, 6, 0, 0, 400, UTC)
LATER = AT + timedelta(hours=1)


def reader(*filters: Filter, queues: str = "orders,refunds") -> DeadLetterReader:
    made = DeadLetterReader(Letters.read({"deadLetters": queues}))
    assert list(made.pushFilters(list(filters))) == list(filters), "Spark applies all of them too"
    return made


def test_without_filters_a_queue_is_a_partition() -> None:
    assert reader().partitions() == [Part("orders", None), Part("refunds", None)]


def test_filters_on_queue_and_reason_choose_the_partitions() -> None:
    chosen = reader(
        EqualTo(("queue",), "orders"),
        In(("terminalReasonCode",), ("HTTP_410", "TIMEOUT")),
        In(("terminalReasonCode",), ("TIMEOUT", "EXPIRED")),
    )
    assert chosen.partitions() == [Part("orders", "TIMEOUT")]


def test_conditions_that_exclude_each_other_read_nothing() -> None:
    nothing = reader(EqualTo(("queue",), "orders"), EqualTo(("queue",), "refunds"))
    assert nothing.partitions() == []
    no_reason = reader(EqualTo(("terminalReasonCode",), "A"), EqualTo(("terminalReasonCode",), "B"))
    assert no_reason.partitions() == []


def test_many_reasons_are_read_in_one_go() -> None:
    many = tuple(f"HTTP_{number}" for number in range(400, 450))
    assert reader(In(("terminalReasonCode",), many), queues="orders").partitions() == [
        Part("orders", None)
    ]


def test_times_narrow_the_stretch_and_what_we_cannot_ask_for_changes_nothing() -> None:
    asked = reader(
        GreaterThan(("deadLetteredAt",), AT),
        LessThanOrEqual(("deadLetteredAt",), LATER),
        IsNotNull(("deadLetteredAt",)),
        Not(EqualTo(("queue",), "orders")),
        EqualTo(("eventId",), "1"),
    )
    assert asked.wanted == Wanted(None, None, AT, LATER)
    assert moment(AT) == "2026-11-18T06:00:00.000Z"


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 10**4))
def test_parts_follow_each_other_and_none_is_too_large(start: int, length: int, rows: int) -> None:
    end = start + length
    cut = parts(start, end, rows)
    edges = [start, *(part.end for part in cut)]
    assert [part.start for part in cut] == edges[:-1]
    assert edges[-1] == end
    assert all(0 < part.end - part.start <= rows for part in cut)


@pytest.mark.parametrize(
    ("given", "following", "says"),
    [
        ({"stream": "a", "startingOffset": "next"}, True, "set option group, whose cursor"),
        ({"stream": "a", "endingOffset": "5"}, True, "option endingOffset is for a batch"),
        ({"stream": "a", "group": "lake"}, False, "there is no option group"),
        ({"stream": "a", "partitionRows": "0"}, False, "option partitionRows is '0'"),
        ({"stream": "a", "failOnDataLoss": "no"}, False, "option failOnDataLoss is 'no'"),
    ],
    ids=str,
)
def test_an_option_of_a_stream_that_cannot_be_followed_is_named(
    given: dict[str, str], following: bool, says: str
) -> None:
    with pytest.raises(InvalidOption, match=says):
        Stretch.read(given, following=following)
