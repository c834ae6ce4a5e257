"""A rate is what the last ten whole seconds had."""

from hypothesis import given
from hypothesis import strategies as st

from namedqueue_sidecar.rates import SPAN, Rate


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 1000)), max_size=100))
def test_it_is_the_mean_of_the_last_whole_seconds(steps: list[tuple[float, int]]) -> None:
    now, happened = 100.0, []
    rate = Rate(lambda: now)
    for pause, count in steps:
        now += pause
        rate.add(count)
        happened.append((int(now), count))
    wanted = sum(count for second, count in happened if int(now) - SPAN <= second < int(now))
    assert rate.per_second == wanted / SPAN


def test_it_is_none_again_after_a_while() -> None:
    now = 0.0
    rate = Rate(lambda: now)
    rate.add(50)
    now = 5.0
    assert rate.per_second == 5
    now = 12.0
    assert rate.per_second == 0
