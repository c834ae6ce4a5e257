"""A position in a stream is read the same from a manifest, a query and a command line."""

import pytest

from namedqueue.positions import End, Moment, Position, position


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("first", End.FIRST),
        ("last", End.LAST),
        ("next", End.NEXT),
        ("0", 0),
        (42, 42),
        ("1970-01-01T00:00:01Z", Moment(1000)),
        ("2026-02-26T12:00:00.250Z", Moment(1_772_107_200_250)),
    ],
)
def test_a_position_is_an_end_an_offset_or_a_moment(written: str | int, meant: Position) -> None:
    assert position(written) == meant


@pytest.mark.parametrize(
    "written", ["", "-1", "middle", "2026-02-30T00:00:00Z", "2026-02-26", "1" * 16]
)
def test_anything_else_is_refused_with_what_to_write(written: str) -> None:
    with pytest.raises(ValueError, match="write first, last, next, an offset, or a time"):
        position(written)
