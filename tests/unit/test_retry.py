"""What follows from an outcome, for any policy that the API accepts."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.scale import scaled
from namedqueue import ladder
from namedqueue.api.namedqueue import Retry as Policy
from namedqueue.outcomes import (
    APP_ABSENT,
    DROPPED,
    PROCESSED,
    Answer,
    Failure,
    Kind,
    Outcome,
    classify,
)
from namedqueue.retry import (
    ACK,
    DROP,
    MOST_THROTTLES,
    PAUSE,
    DeadLetter,
    Decision,
    Retry,
    decide,
)
from unit.policies import policies

FAILED = Outcome(Kind.TRANSIENT, "TIMEOUT", "the app did not answer in time")
BROKEN = Outcome(Kind.PERMANENT, "HTTP_422", "the app answered 422")

fractions = st.floats(0, 1)


def decided(
    outcome: Outcome,
    *,
    policy: Policy | None = None,
    attempt: int = 1,
    throttles: int = 0,
    random: float = 0.0,
) -> Decision:
    return decide(policy or Policy(), attempt, outcome, throttles=throttles, random=random)


def throttled(retry_after_ms: int) -> Outcome:
    return Outcome(Kind.TRANSIENT, "HTTP_429", "busy", retry_after_ms, throttled=True)


def exact_delay(policy: Policy, attempt: int) -> Fraction:
    """Compute what the design says, in exact arithmetic."""
    grown = policy.delay.milliseconds * Fraction(policy.multiplier) ** (attempt - 1)
    return min(grown, Fraction(policy.max_delay.milliseconds))


@given(policy=policies(), attempt=st.integers(1, 100), random=fractions)
@settings(max_examples=scaled(10_000))
def test_a_delay_lies_between_itself_and_its_jitter_and_within_the_ladder(
    policy: Policy, attempt: int, random: float
) -> None:
    decision = decided(FAILED, policy=policy, attempt=attempt, random=random)
    if attempt >= policy.max_attempts:
        assert isinstance(decision, DeadLetter)
        return
    assert isinstance(decision, Retry)
    least = exact_delay(policy, attempt)
    most = least * (1 + Fraction(policy.jitter))
    noise = Fraction(1, 500)
    assert least - noise <= decision.delay_ms < most + noise + ladder.TICK_MS
    assert decision.delay_ms % ladder.TICK_MS == 0
    assert decision.delay_ms <= ladder.maximum_ms(ladder.levels_for(policy))
    assert (decision.next_attempt, decision.counted) == (attempt + 1, True)


@given(policy=policies(), random=fractions)
def test_a_job_that_always_fails_is_delivered_exactly_max_attempts_times(
    policy: Policy, random: float
) -> None:
    deliveries, attempt = 1, 1
    while isinstance(
        decision := decided(FAILED, policy=policy, attempt=attempt, random=random), Retry
    ):
        deliveries, attempt = deliveries + 1, decision.next_attempt
    assert isinstance(decision, DeadLetter)
    assert deliveries == policy.max_attempts


@given(policy=policies(), asked=st.integers(0, 10**11), attempt=st.integers(1, 99))
def test_retry_after_replaces_the_delay_up_to_what_the_ladder_holds(
    policy: Policy, asked: int, attempt: int
) -> None:
    outcome = Outcome(Kind.TRANSIENT, "HTTP_500", "later", retry_after_ms=asked)
    decision = decided(outcome, policy=policy, attempt=attempt, random=1.0)
    if isinstance(decision, Retry):
        most = ladder.maximum_ms(ladder.levels_for(policy))
        assert decision.delay_ms == min(max(ladder.round_up(asked), ladder.TICK_MS), most)
        assert decision.counted


def test_the_default_policy_waits_1_2_4_and_8_seconds_then_gives_up() -> None:
    decisions = [decided(FAILED, attempt=attempt) for attempt in range(1, 6)]
    assert decisions[:4] == [
        Retry(1000, 2, counted=True),
        Retry(2000, 3, counted=True),
        Retry(4000, 4, counted=True),
        Retry(8000, 5, counted=True),
    ]
    assert decisions[4] == DeadLetter(
        "TIMEOUT", "Retries exhausted after 5 attempts: the app did not answer in time"
    )


def test_jitter_only_ever_stretches() -> None:
    assert decided(FAILED, random=0.0) == Retry(1000, 2, counted=True)
    assert decided(FAILED, random=1.0) == Retry(1250, 2, counted=True)


def test_an_unknown_failure_is_retried() -> None:
    unknown = classify(Answer(404), now=0)
    assert unknown.kind is Kind.UNKNOWN
    assert isinstance(decided(unknown), Retry)


def test_a_permanent_failure_goes_straight_to_the_dead_letters() -> None:
    assert decided(BROKEN) == DeadLetter("HTTP_422", "the app answered 422")


@pytest.mark.parametrize(
    ("outcome", "decision"), [(PROCESSED, ACK), (DROPPED, DROP), (APP_ABSENT, PAUSE)]
)
def test_success_absence_and_dropping_use_no_attempt(outcome: Outcome, decision: Decision) -> None:
    assert decided(outcome, attempt=5) is decision


def test_an_app_that_asks_for_patience_gets_it_for_free_even_on_the_last_attempt() -> None:
    assert decided(throttled(3000), attempt=5) == Retry(3000, 5, counted=False)


def test_patience_ends_after_a_hundred_times() -> None:
    last = decided(throttled(3000), throttles=MOST_THROTTLES - 1)
    assert last == Retry(3000, 1, counted=False)
    assert decided(throttled(3000), throttles=MOST_THROTTLES) == Retry(3000, 2, counted=True)


def test_an_app_that_is_always_busy_ends_in_the_dead_letters() -> None:
    attempt, throttles, deliveries = 1, 0, 1
    while isinstance(
        decision := decided(throttled(0), attempt=attempt, throttles=throttles), Retry
    ):
        deliveries += 1
        attempt, throttles = decision.next_attempt, throttles + (not decision.counted)
        assert decision.delay_ms == ladder.TICK_MS
    assert deliveries == Policy().max_attempts + MOST_THROTTLES


def test_a_forged_attempt_number_only_ends_the_job_sooner() -> None:
    assert isinstance(decided(FAILED, attempt=1_000), DeadLetter)
    assert decided(PROCESSED, attempt=1_000) is ACK


def test_one_attempt_means_no_retry() -> None:
    policy = Policy.model_validate({"maxAttempts": 1})
    decision = decided(classify(Failure.RESET, now=0), policy=policy)
    assert isinstance(decision, DeadLetter)
    assert decision.message.startswith("Retries exhausted after 1 attempt: ")


def test_a_failure_without_a_name_still_has_a_reason() -> None:
    assert decided(Outcome(Kind.PERMANENT)) == DeadLetter(
        "UNKNOWN", "the attempt failed with UNKNOWN"
    )
