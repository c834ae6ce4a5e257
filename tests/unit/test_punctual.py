"""Lateness is forgiven once, not each time; being early never is."""

import pytest

from fixtures.punctual import check_lateness


@pytest.mark.parametrize(
    ("tries", "verdict"),
    [
        ([[0.1, 0.2]], None),
        ([[0.1, 2.0], [0.1, 0.2]], None),
        ([[0.4]] * 8, f"late by {', '.join(['0.400'] * 8)} s, each time"),
        ([[-0.1, 0.2]], "early by 0.100 s"),
        ([[2.0], [-0.1]], "early by 0.100 s"),
    ],
)
async def test_a_few_tries_tell_a_late_ladder_from_a_busy_machine(
    tries: list[list[float]], verdict: str | None
) -> None:
    left = iter(tries)

    async def measure() -> list[float]:
        return next(left)

    if verdict is None:
        await check_lateness(measure)
    else:
        with pytest.raises(AssertionError, match=verdict):
            await check_lateness(measure)
    assert list(left) == []
