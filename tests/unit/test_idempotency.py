"""The rules of a key: who may claim it, and what may follow a claim."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue.idempotency import (
    TERMINAL,
    TRANSITIONS,
    Claim,
    Record,
    Refused,
    State,
    Terms,
    Wanted,
    claim,
    end,
    renew,
)

NOW = 1_800_000_000_000
TERMS = Terms(lease=30_000, ttl=3_600_000)
JOB = Wanted("courier-x:evt_123", "evt_123")

moments = st.integers(NOW - 100_000, NOW + 100_000)
records = st.builds(
    Record,
    state=st.sampled_from(sorted(set(State) - {State.RECEIVED})),
    fence=moments,
    job_id=st.sampled_from(["evt_123", "evt_124"]),
    redrives=st.integers(0, 1),
    lease_until=moments,
    expires_at=moments,
)
endings = st.sampled_from(
    [State.RECEIVED, State.PROCESSED, State.FAILED, State.DEAD_LETTERED, State.PROCESSING]
)


def record(state: State, **fields: object) -> Record:
    made = Record(state, NOW - 1, JOB.job_id, 0, NOW + 1, NOW + TERMS.ttl)
    return replace(made, **fields)  # type: ignore[arg-type]  # the tests name real fields


def claimed(found: Record | None, wanted: Wanted = JOB) -> bool:
    return not isinstance(claim(found, wanted, TERMS, NOW), Refused)


def test_the_ways_of_the_courier_are_all_there() -> None:
    ways = ["received processing processed", "received processing failed processing"]
    ways += ["failed dead_lettered"]
    for way in ways:
        states = [State(name) for name in way.split()]
        for before, after in pairwise(states):
            assert after in TRANSITIONS[before]
    assert TRANSITIONS[State.PROCESSED] == frozenset()


def test_a_new_key_is_claimed() -> None:
    got = claim(None, JOB, TERMS, NOW)
    assert got == (
        Record(State.PROCESSING, NOW, JOB.job_id, 0, NOW + 30_000, NOW + 3_630_000),
        Claim(JOB.key, NOW),
    )


@pytest.mark.parametrize(
    ("found", "free"),
    [
        (record(State.PROCESSING), False),
        (record(State.PROCESSING, lease_until=NOW), True),
        (record(State.PROCESSED), False),
        (record(State.PROCESSED, expires_at=NOW), True),
        (record(State.FAILED), True),
        (record(State.DEAD_LETTERED), False),
        (record(State.DEAD_LETTERED, expires_at=NOW), True),
        (record(State.DEAD_LETTERED, redrives=1), True),
        (record(State.DEAD_LETTERED, job_id="another"), True),
    ],
)
def test_a_key_is_free_if_nobody_is_at_it_and_nobody_has_done_it(found: Record, free: bool) -> None:
    assert claimed(found) is free


@given(records, records, st.data())
def test_a_fence_only_grows(found: Record, other: Record, data: st.DataObject) -> None:
    now = data.draw(st.sampled_from([found.fence, other.fence, NOW]))
    got = claim(found, JOB, TERMS, now)
    if not isinstance(got, Refused):
        made, ours = got
        assert made.fence == ours.fence > found.fence or found.fence < now == made.fence


@given(records, moments, endings)
def test_a_stale_fence_writes_nothing(found: Record, fence: int, state: State) -> None:
    stale = fence if fence != found.fence else fence - 1
    assert end(found, stale, state, TERMS, NOW) is None
    assert renew(found, stale, TERMS, NOW) is None


@given(records, endings)
def test_an_end_follows_the_transitions_and_frees_or_settles_the_key(
    found: Record, state: State
) -> None:
    after = end(found, found.fence, state, TERMS, NOW)
    if after is None:
        return
    if state is State.RECEIVED:
        assert after.state is found.state is State.PROCESSING
    else:
        failed = state is State.DEAD_LETTERED and found.state is State.PROCESSING
        before = State.FAILED if failed else found.state
        assert after.state is state in TRANSITIONS[before]
    assert (after.lease_until, after.expires_at) == (NOW, NOW + TERMS.ttl)
    assert claimed(after, JOB._replace(redrives=9)) is (after.state is not State.PROCESSED)


@given(records)
def test_only_what_is_being_processed_can_be_renewed(found: Record) -> None:
    after = renew(found, found.fence, TERMS, NOW)
    assert (after is not None) is (found.state is State.PROCESSING)
    if after is not None:
        assert not claimed(after)


@given(records, endings, st.integers(0, 10**7))
def test_what_has_ended_for_good_is_remembered_for_its_time_and_no_longer(
    found: Record, state: State, later: int
) -> None:
    after = end(found, found.fence, state, TERMS, NOW)
    if after is None or after.state not in TERMINAL:
        return
    same = Wanted(JOB.key, after.job_id, after.redrives)
    duplicate = claim(after, same, TERMS, NOW + later) is Refused.DUPLICATE
    assert duplicate is (later < TERMS.ttl)
