"""The ladder is walked hop by hop, as the broker would do it with the bindings it is given."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.scale import scaled
from namedqueue import ladder
from namedqueue.api.namedqueue import Retry
from unit.policies import policies

MAIN = -1
LONGEST = ladder.maximum_ms(ladder.HIGHEST_LEVELS)

delays = st.integers(1, 60_000) | st.integers(1, LONGEST)


def topic_matches(pattern: list[str], words: list[str]) -> bool:
    """Match as AMQP topic exchanges do: `*` is one word, `#` is any number of them."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(topic_matches(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and topic_matches(pattern[1:], words[1:])


def walk(entry: ladder.Route, levels: int) -> list[tuple[int, int]]:
    """Return (exchange, time of arrival) for every exchange met, the main one last."""
    words = entry.key.split(".")
    at, now, path = entry.level, 0, [(entry.level, 0)]
    while at != MAIN:
        assert 0 <= at < levels, "a job was sent to a level that does not exist"
        waits = topic_matches(ladder.wait_pattern(at).split("."), words)
        skips = topic_matches(ladder.skip_pattern(at).split("."), words)
        assert waits != skips, "a job must go exactly one way: a copy or a loss otherwise"
        if waits:
            now += ladder.hold_ms(at)
        at -= 1
        path.append((at, now))
    return path


@given(delay=delays)
@settings(max_examples=scaled(10_000))
def test_every_path_ends_at_the_main_exchange_after_exactly_its_delay(delay: int) -> None:
    entry = ladder.route(delay)
    assert entry is not None
    assert walk(entry, levels=entry.level + 1)[-1] == (MAIN, ladder.round_up(delay))


@given(delay=delays, more=st.integers(1, 10))
def test_adding_levels_never_changes_the_path_of_a_job_on_its_way(delay: int, more: int) -> None:
    entry = ladder.route(delay)
    assert entry is not None
    assert walk(entry, entry.level + 1) == walk(entry, entry.level + 1 + more)


@given(delay=delays)
def test_a_retry_never_comes_before_its_time_and_less_than_a_tick_after(delay: int) -> None:
    assert delay <= ladder.round_up(delay) < delay + ladder.TICK_MS


@given(delay=delays)
def test_a_key_leads_back_to_its_delay(delay: int) -> None:
    entry = ladder.route(delay)
    assert entry is not None
    assert ladder.remaining_ms(entry.key, entry.level) == ladder.round_up(delay)


@given(delay=delays)
def test_a_job_enters_at_its_highest_bit_and_its_key_ends_there(delay: int) -> None:
    entry = ladder.route(delay)
    assert entry is not None
    words = entry.key.split(".")
    assert len(words) == entry.level + 1
    assert words[-1] == "1"


@given(delay=delays)
def test_what_remains_on_the_way_is_what_the_walk_still_takes(delay: int) -> None:
    entry = ladder.route(delay)
    assert entry is not None
    total = ladder.round_up(delay)
    for at, now in walk(entry, entry.level + 1)[:-1]:
        assert ladder.remaining_ms(entry.key, at) == total - now


def test_a_delay_of_1250_ms_reads_as_five_ticks_lowest_bit_first() -> None:
    assert ladder.route(1250) == ladder.Route(level=2, key="1.0.1")


@pytest.mark.parametrize(
    ("delay", "level"), [(250, 0), (500, 1), (1000, 2), (2000, 3), (4000, 4), (8000, 5)]
)
def test_delays_that_are_a_power_of_two_wait_in_one_queue_only(delay: int, level: int) -> None:
    entry = ladder.route(delay)
    assert entry is not None
    assert entry.level == level
    assert entry.key.split(".").count("1") == 1


def test_no_delay_means_no_level() -> None:
    assert ladder.route(0) is None


def test_a_delay_in_the_past_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="-1 ms lies in the past"):
        ladder.route(-1)


@pytest.mark.parametrize(("key", "level"), [("1.0", 2), ("1.2.1", 2), ("", 0), ("1..1", 2)])
def test_a_key_that_no_ladder_wrote_is_refused(key: str, level: int) -> None:
    with pytest.raises(ValueError, match="is no routing key"):
        ladder.remaining_ms(key, level)


def test_the_default_policy_needs_six_levels() -> None:
    assert ladder.levels_for(Retry()) == 6
    assert ladder.maximum_ms(6) == 15_750


@pytest.mark.parametrize(
    ("policy", "levels"),
    [
        ({"maxAttempts": 1, "delay": "0ms", "maxDelay": "0ms"}, 1),
        ({"maxAttempts": 1, "delay": "1s", "jitter": 0.0}, 3),
        ({"maxAttempts": 100}, 9),
        ({"maxAttempts": 5, "maxDelay": "2s", "jitter": 0.0}, 4),
        ({"maxAttempts": 2, "delay": "30d", "maxDelay": "30d", "jitter": 1.0}, 25),
    ],
)
def test_a_ladder_is_as_high_as_its_policy_can_reach(
    policy: dict[str, object], levels: int
) -> None:
    assert ladder.levels_for(Retry.model_validate(policy)) == levels


@given(policy=policies())
def test_a_ladder_holds_the_longest_delay_and_has_no_level_to_spare(policy: Retry) -> None:
    levels, longest = ladder.levels_for(policy), ladder.longest_backoff_ms(policy)
    assert longest <= ladder.maximum_ms(levels)
    assert levels == 1 or longest > ladder.maximum_ms(levels - 1)


def test_the_highest_level_stays_within_the_brokers_ttl() -> None:
    limit = 2**32 - 1
    assert ladder.hold_ms(ladder.HIGHEST_LEVELS - 1) < limit <= ladder.hold_ms(25)


def test_a_multiplier_far_beyond_numbers_stops_at_the_maximum() -> None:
    policy = Retry.model_validate({"multiplier": 100.0, "jitter": 0.0})
    assert ladder.backoff_ms(policy, attempt=10_000, random=0.0) == 60_000


def test_float_noise_never_costs_a_tick() -> None:
    policy = Retry.model_validate({"delay": "2500ms", "multiplier": 1.1, "jitter": 0.0})
    assert ladder.backoff_ms(policy, attempt=2, random=0.0) == 2750


@given(policies(), st.integers(1, 200), st.floats(0, 1))
def test_a_job_that_is_put_off_again_and_again_stays_within_the_ladder(
    policy: Retry, times: int, random: float
) -> None:
    levels = ladder.levels_for(policy)
    entry = ladder.route(ladder.wait_ms(policy, times, random))
    assert entry is not None
    assert walk(entry, levels)[-1][0] == MAIN
