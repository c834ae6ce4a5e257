"""Durations read, compare and write as people expect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue.api.durations import MAX_LENGTH, Duration

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_numbers = st.integers(0, 999_999_999)
_units = st.sampled_from(sorted(_UNITS))
_LONGEST = 999_999_999


@given(_numbers, _units)
def test_a_duration_is_its_number_times_its_unit_and_keeps_its_text(number: int, unit: str) -> None:
    duration = Duration.parse(f"{number}{unit}")
    assert duration.milliseconds == number * _UNITS[unit]
    assert duration.seconds == duration.milliseconds / 1000
    assert str(duration) == f"{number}{unit}"
    assert len(str(duration)) <= MAX_LENGTH


@given(_numbers, _units, _numbers, _units)
def test_durations_compare_as_spans_and_not_as_texts(
    one: int, one_unit: str, other: int, other_unit: str
) -> None:
    left, right = Duration.parse(f"{one}{one_unit}"), Duration.parse(f"{other}{other_unit}")
    spans = one * _UNITS[one_unit], other * _UNITS[other_unit]
    assert (left < right, left == right) == (spans[0] < spans[1], spans[0] == spans[1])
    assert (hash(left) == hash(right)) or left != right


@given(st.integers(0, _LONGEST))
def test_milliseconds_are_written_so_that_they_read_back(milliseconds: int) -> None:
    written = Duration.of_milliseconds(milliseconds)
    assert Duration.parse(str(written)) == written
    assert written.milliseconds == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (250, "250ms"),
        (1_000, "1s"),
        (1_500, "1500ms"),
        (90_000, "90s"),
        (300_000, "5m"),
        (86_400_000, "1d"),
        (90_000_000, "25h"),
    ],
)
def test_milliseconds_are_written_in_the_largest_unit_that_holds_them(
    milliseconds: int, text: str
) -> None:
    assert str(Duration.of_milliseconds(milliseconds)) == text


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "1.5s", "-1s", "+1s", "01s", "1S", "1 s", "1s\n", "1h30m", "1us", "1000000000s"],
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write one number and one unit"):
        Duration.parse(text)
