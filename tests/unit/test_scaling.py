"""Replicas follow jobs: up at once, down with care, and never on a guess."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from namedqueue.api.namedqueue import NamedQueue, NamedQueueSpec
from namedqueue.api.reading import read
from namedqueue_operator.scaling import (
    SETTLED_SECONDS,
    Decision,
    Policy,
    Reason,
    Sample,
    Window,
    decide,
    policy_of,
)

_JOBS = st.integers(0, 2000)
_STEPS = st.integers(1, 30) | st.integers(1, 100).map("{}%".format)


@st.composite
def _policies(draw: st.DrawFn) -> Policy:
    minimum = draw(st.integers(0, 10))
    drain_time = draw(st.none() | st.floats(1, 600))
    return Policy(
        minimum=minimum,
        maximum=draw(st.integers(max(1, minimum), 50)),
        per_replica=None if drain_time else draw(st.integers(1, 100)),
        drain_time=drain_time,
        cooldown=draw(st.floats(0, 600)),
        stabilization=draw(st.floats(0, 600)),
        max_step=draw(_STEPS),
        partitions=draw(st.none() | st.integers(1, 64)),
    )


@dataclass(frozen=True)
class _Look:
    """What a poll meets: after how long, and which jobs; none at all where it failed."""

    pause: float
    ready: int
    in_flight: int
    waiting: int
    acks: int
    known: bool = True


_LOOKS = st.lists(
    st.builds(
        _Look,
        pause=st.floats(1, 60),
        ready=st.just(0) | _JOBS,
        in_flight=st.just(0) | _JOBS,
        waiting=st.just(0) | st.integers(0, 5),
        acks=st.just(0) | _JOBS,
        known=st.sampled_from([True, True, True, False]),
    ),
    min_size=1,
    max_size=40,
)


@dataclass(frozen=True)
class _Step:
    """A decision, and what it was made from."""

    now: float
    window: Window
    decision: Decision


def _follow(looks: Iterable[_Look], policy: Policy, current: int = 0) -> list[_Step]:
    """Poll and obey, as the operator does."""
    now, acked = 1000.0, 0
    window = Window.opened(current, now)
    steps = []
    for look in looks:
        now += look.pause
        acked += look.acks
        if look.known:
            sample = Sample(
                at=now,
                ready=look.ready,
                in_flight=look.in_flight,
                waiting=look.waiting,
                acked=acked,
                replicas=current,
            )
            window = window.seen(sample, current)
        else:
            window = window.blinded("the broker is away", current)
        decision = decide(window, policy, now)
        steps.append(_Step(now, window, decision))
        if not window.unknown:
            window = window.felt(decision.needed, now)
        current = decision.replicas
    return steps


def _at(policy: Policy, current: int = 0, **jobs: int) -> Decision:
    """Decide on one look, with nothing before it."""
    window = Window.opened(current, 0.0)
    return decide(window.seen(Sample(at=1000.0, **jobs), current), policy, 1000.0)


@given(_LOOKS, _policies(), st.integers(0, 60))
def test_a_known_depth_never_leads_out_of_bounds(
    looks: list[_Look], policy: Policy, current: int
) -> None:
    for step in _follow(looks, policy, current):
        if not step.window.unknown:
            assert policy.minimum <= step.decision.replicas <= policy.maximum


@given(_LOOKS, _policies(), st.integers(0, 60))
def test_an_unknown_depth_holds_what_is_there_and_says_so(
    looks: list[_Look], policy: Policy, current: int
) -> None:
    for step in _follow(looks, policy, current):
        if step.window.unknown:
            assert step.decision.replicas == step.window.current
            assert step.decision.reason is Reason.DEPTH_UNKNOWN
            assert "the broker is away" in step.decision.sentence


@given(_LOOKS, _policies(), st.integers(0, 60))
def test_what_is_needed_now_is_there_at_once(
    looks: list[_Look], policy: Policy, current: int
) -> None:
    for step in _follow(looks, policy, current):
        if not step.window.unknown:
            assert step.decision.replicas >= min(step.decision.needed, policy.most)


@given(_LOOKS, _policies())
def test_no_step_down_is_larger_than_allowed(looks: list[_Look], policy: Policy) -> None:
    for step in _follow(looks, policy):
        current = step.window.current
        assert current - step.decision.replicas <= policy.step(current)


@given(_LOOKS, _policies(), st.integers(0, 60))
def test_as_many_as_were_needed_within_the_stabilization_stay(
    looks: list[_Look], policy: Policy, current: int
) -> None:
    steps = [step for step in _follow(looks, policy, current) if not step.window.unknown]
    for number, step in enumerate(steps):
        lately = [
            each.decision.needed
            for each in steps[:number]
            if each.now >= step.now - policy.stabilization
        ]
        kept = min(max(lately, default=0), step.window.current, policy.most)
        assert step.decision.replicas >= kept


@given(_LOOKS, _policies(), st.integers(0, 60))
def test_the_last_replica_goes_only_after_a_whole_cooldown_seen_without_a_job(
    looks: list[_Look], policy: Policy, current: int
) -> None:
    steps = _follow(looks, policy, current)
    for number, step in enumerate(steps):
        if step.decision.replicas or not step.window.current:
            continue
        quiet = max(policy.cooldown, SETTLED_SECONDS)
        seen = [
            (earlier.now, look)
            for earlier, look in zip(steps[: number + 1], looks, strict=False)
            if earlier.now > step.now - quiet
        ]
        assert all(
            look.known and not (look.ready or look.in_flight or look.waiting) for _, look in seen
        )
        assert step.window.idle_since is not None
        assert step.now - step.window.idle_since >= quiet


@given(_policies(), _JOBS, _JOBS, st.integers(0, 500), st.integers(0, 60))
def test_more_jobs_never_mean_fewer_replicas(
    policy: Policy, ready: int, in_flight: int, more: int, current: int
) -> None:
    few = _at(policy, current, ready=ready, in_flight=in_flight)
    many = _at(policy, current, ready=ready + more, in_flight=in_flight)
    assert few.replicas <= many.replicas


@given(_policies(), st.integers(1, 2000))
def test_one_ready_job_is_enough_to_leave_zero(policy: Policy, ready: int) -> None:
    assert _at(policy, ready=ready).replicas >= 1


@given(_LOOKS, _policies())
def test_a_window_stays_small(looks: list[_Look], policy: Policy) -> None:
    window = _follow(looks * 5, policy)[-1].window
    assert len(window.samples) <= 25
    assert len(window.busy) <= 24
    needs = [peak.replicas for peak in window.peaks]
    assert needs == sorted(set(needs), reverse=True)


@given(_policies(), st.lists(st.sampled_from([0, 400]), min_size=2, max_size=60))
def test_a_load_that_comes_and_goes_within_the_stabilization_flaps_nothing(
    policy: Policy, loads: list[int]
) -> None:
    assume(policy.drain_time is None)
    policy = replace(policy, stabilization=5.0 * len(loads) + 1)
    looks = [_Look(5.0, load, 0, 0, 0) for load in loads]
    counts = [step.decision.replicas for step in _follow(looks, policy)]
    assert counts == sorted(counts)


def test_messages_per_replica_counts_what_is_ready_and_what_is_in_flight() -> None:
    decision = _at(Policy(per_replica=20), 1, ready=120, in_flight=41)
    assert decision.replicas == 9
    assert decision.sentence == "9 replicas: 120 ready and 41 in flight at 20 for each replica"


def test_a_limit_is_named() -> None:
    assert _at(Policy(maximum=3), ready=500).sentence.startswith(
        "3 replicas, the most (maxReplicas); 25 would be needed: 500 ready"
    )
    fifo = _at(Policy(partitions=8), ready=500)
    assert fifo.replicas == 8
    assert "one for each of 8 partitions, and more would only wait" in fifo.sentence


def test_a_job_on_the_ladder_keeps_the_last_replica_but_starts_none() -> None:
    quiet = [_Look(10.0, 0, 0, 1, 0)] * 100
    assert [step.decision.replicas for step in _follow(quiet, Policy(), 1)] == [1] * 100
    assert "return from the ladder" in _follow(quiet, Policy(), 1)[-1].decision.sentence
    assert [step.decision.replicas for step in _follow(quiet, Policy(), 0)] == [0] * 100


def test_one_look_that_finds_nothing_is_no_proof_even_without_a_cooldown() -> None:
    policy = Policy(cooldown=0, stabilization=0)
    looks = [_Look(1.0, 0, 0, 0, 0)] * 8
    assert [step.decision.replicas for step in _follow(looks, policy, 1)] == [1] * 6 + [0] * 2


def test_jobs_that_others_hold_start_nobody() -> None:
    assert _at(Policy(), 0, in_flight=7).replicas == 0


def test_a_restarted_operator_takes_nothing_away_before_it_has_seen_enough() -> None:
    looks = [_Look(5.0, 10, 0, 0, 0)] * 40
    counts = [step.decision.replicas for step in _follow(looks, Policy(stabilization=120), 8)]
    assert counts[:24] == [8] * 24
    assert counts[24:28] == [4, 2, 1, 1]


def test_a_count_above_the_maximum_is_corrected_at_once() -> None:
    assert _at(Policy(maximum=5), 50, ready=10).replicas == 5


def test_drain_time_follows_measured_speed() -> None:
    """Four replicas finish 2 jobs a second each; 40 a second come in and 600 are there."""
    policy = Policy(per_replica=None, drain_time=30.0, maximum=100)
    window = Window.opened(4, 0.0)
    for second in range(0, 61, 5):
        jobs = 600 + 32 * second
        look = Sample(at=second, ready=jobs - 40, in_flight=40, acked=8 * second, replicas=4)
        window = window.seen(look, 4)
    decision = decide(window, policy, 60.0)
    expected = ((600 + 32 * 60) / 30 + 40) / 2
    assert decision.replicas == pytest.approx(expected, abs=1)
    assert "2520 jobs to be done in 30 s and 40/s coming" in decision.sentence


def test_drain_time_starts_with_one_and_grows_while_nothing_is_finished() -> None:
    policy = Policy(per_replica=None, drain_time=60.0, maximum=100)
    looks = [_Look(5.0, 50, 10, 0, 0)] * 60
    counts = [step.decision.replicas for step in _follow(looks, policy)]
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[-1] > 20


def test_a_broker_that_counts_from_zero_again_disturbs_no_rate() -> None:
    policy = Policy(per_replica=None, drain_time=30.0, maximum=100)
    steady = [Sample(at=5.0 * n, ready=100, acked=50 * n, replicas=2) for n in range(10)]
    reset = [replace(each, acked=50 * n, at=each.at + 50.0) for n, each in enumerate(steady)]
    window = Window.opened(2, 0.0)
    for each in steady:
        window = window.seen(each, 2)
    before = decide(window, policy, 50.0).replicas
    for each in reset:
        window = window.seen(each, 2)
    assert abs(decide(window, policy, 100.0).replicas - before) <= 1


def test_a_broker_that_did_not_count_for_a_while_disturbs_no_rate() -> None:
    """Counts begin with another policy, and are away while a broker gathers its statistics."""
    policy = Policy(per_replica=None, drain_time=30.0, maximum=100)
    counts = [None, 1_000_000, None, *(1_000_000 + 50 * n for n in range(2, 10))]
    window, plain = Window.opened(2, 0.0), Window.opened(2, 0.0)
    for n, acked in enumerate(counts):
        sample = Sample(at=5.0 * n, ready=600, acked=acked, replicas=2)
        window = window.seen(sample, 2)
        plain = plain.seen(replace(sample, acked=50 * n), 2)
    blurred, clear = (decide(each, policy, 50.0) for each in (window, plain))
    assert blurred.needed >= clear.needed


def test_streams_keep_a_constant_count() -> None:
    spec = NamedQueueSpec.model_validate(
        {
            "type": "stream",
            "worker": {"port": 80},
            "stream": {"consumers": [{"group": "audit"}]},
            "scaling": {"maxReplicas": 3},
        }
    )
    policy = policy_of(spec)
    assert policy is not None
    decision = decide(Window.opened(0, 0.0), policy, 0.0)
    assert (decision.replicas, decision.reason) == (1, Reason.CONSTANT)


def test_a_manifest_gives_the_policy_that_it_says() -> None:
    spec = NamedQueueSpec.model_validate(
        {
            "worker": {"port": 80},
            "durable": {"fifo": {"groupBy": "body.id", "partitions": 4}},
            "scaling": {"drainTime": "2m", "scaleDown": {"maxStep": 3}},
        }
    )
    assert policy_of(spec) == Policy(per_replica=None, drain_time=120.0, max_step=3, partitions=4)
    assert policy_of(NamedQueueSpec()) is None
    plain = NamedQueueSpec.model_validate({"worker": {"port": 80}, "scaling": {}})
    assert policy_of(plain) == Policy()


def test_the_how_to_shows_a_valid_manifest_and_explains_every_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "scale.md").read_text()
    [block] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    manifest = yaml.safe_load(block)
    manifest["metadata"]["namespace"] = "shop"
    queue = read(manifest)
    assert isinstance(queue, NamedQueue)
    assert policy_of(queue.spec) == Policy()
    explained = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    assert {reason.value for reason in Reason} <= explained
