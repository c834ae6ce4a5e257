"""Sizes mean what Kubernetes means by them."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue.api.quantities import MAX_LENGTH, Quantity

_UNITS = {"": 1} | {
    unit: base**power
    for base, units in ((1000, "k M G T P E"), (1024, "Ki Mi Gi Ti Pi Ei"))
    for power, unit in enumerate(units.split(), start=1)
}
_numbers = st.from_regex(r"[0-9]{1,19}(\.[0-9]{1,9})?", fullmatch=True)
_units = st.sampled_from(sorted(_UNITS))


@given(_numbers, _units)
def test_a_size_is_its_number_times_its_unit_rounded_up(number: str, unit: str) -> None:
    size = Quantity.parse(number + unit)
    assert size.bytes == math.ceil(Fraction(number) * _UNITS[unit])
    assert str(size) == number + unit
    assert len(str(size)) <= MAX_LENGTH


@given(_numbers, _units, _numbers, _units)
def test_sizes_compare_as_bytes_and_not_as_texts(
    one: str, one_unit: str, other: str, other_unit: str
) -> None:
    left, right = Quantity.parse(one + one_unit), Quantity.parse(other + other_unit)
    assert (left < right) == (left.bytes < right.bytes)
    assert (left == right) == (left.bytes == right.bytes)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("0.5", 1),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5G", 1_500_000_000),
        ("10Gi", 10 * 2**30),
        ("4Ei", 2**62),
        ("0.0000001Gi", 108),
    ],
)
def test_well_known_sizes(text: str, size: int) -> None:
    assert Quantity.parse(text).bytes == size


@pytest.mark.parametrize(
    "text", ["", "Gi", "-1", "+1", ".5", "5.", "1e3", "100m", "1ki", "1K", "1 Gi", "1Gi\n", "1GiB"]
)
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        Quantity.parse(text)
