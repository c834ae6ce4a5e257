"""Deadlines by one timer: each passes once, in order, at the moment that was set last."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.port.play import eventually
from namedqueue_sidecar.consuming.deadlines import Deadlines


async def passed_all(passed: Sequence[object], count: int) -> None:
    await eventually(lambda: len(passed) >= count, f"{count} deadlines passed")


async def test_deadlines_pass_in_the_order_of_their_moments_not_of_their_setting() -> None:
    passed: list[str] = []
    deadlines, now = Deadlines(passed.append), asyncio.get_running_loop().time()
    for name, seconds in (("third", 0.03), ("first", 0.01), ("second", 0.02)):
        deadlines.set(name, now + seconds)
    await passed_all(passed, 3)
    assert passed == ["first", "second", "third"]


async def test_a_deadline_that_is_moved_passes_once_at_its_new_moment() -> None:
    passed: list[tuple[str, float]] = []
    loop = asyncio.get_running_loop()
    deadlines, now = Deadlines(lambda name: passed.append((name, loop.time()))), loop.time()
    deadlines.set("later", now + 0.01)
    deadlines.set("later", now + 0.1)
    deadlines.set("sooner", now + 60)
    deadlines.set("sooner", now + 0.02)
    await passed_all(passed, 2)
    assert [name for name, _ in passed] == ["sooner", "later"]
    assert passed[1][1] >= now + 0.1 - 0.01


async def test_a_deadline_that_is_dropped_never_passes_nor_does_any_after_the_close() -> None:
    passed: list[str] = []
    deadlines, now = Deadlines(passed.append), asyncio.get_running_loop().time()
    deadlines.set("dropped", now)
    deadlines.set("kept", now + 0.01)
    deadlines.drop("dropped")
    deadlines.drop("never set")
    await passed_all(passed, 1)
    deadlines.set("closed", asyncio.get_running_loop().time())
    deadlines.close()
    await asyncio.sleep(0.01)
    assert passed == ["kept"]


@pytest.mark.parametrize("extensions", [10_000])
async def test_a_lease_that_is_extended_ten_thousand_times_does_not_fill_the_memory(
    extensions: int,
) -> None:
    deadlines, now = Deadlines(lambda _: None), asyncio.get_running_loop().time()
    for extension in range(extensions):
        deadlines.set("one", now + 3600 + extension)
    assert len(deadlines._heap) < 100
    deadlines.close()


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(-5, 5) | st.none()), min_size=1, max_size=300
    )
)
def test_whatever_is_set_moved_and_dropped_exactly_what_is_due_passes(
    steps: list[tuple[str, int | None]],
) -> None:
    async def play() -> None:
        passed: list[str] = []
        deadlines, now = Deadlines(passed.append), asyncio.get_running_loop().time()
        wanted: dict[str, int] = {}
        for name, hours in steps:
            if hours is None:
                deadlines.drop(name)
                wanted.pop(name, None)
            else:
                deadlines.set(name, now + hours * 3600)
                wanted[name] = hours
        due = sorted((hours, name) for name, hours in wanted.items() if hours <= 0)
        await passed_all(passed, len(due))
        await asyncio.sleep(0)
        deadlines.close()
        assert passed == [name for _, name in due]

    asyncio.run(play())
