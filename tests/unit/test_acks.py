"""Acknowledgements said in one cover what is done, and never a job that is still in our hands."""

from hypothesis import given
from hypothesis import strategies as st

from namedqueue_sidecar.brokers.rabbitmq.acks import Ack, LowWater
from namedqueue_sidecar.brokers.rabbitmq.shares import NO_CHANGE, change


class Channel:
    """A broker's view of one channel: what is out, what was acknowledged, what came back."""

    def __init__(self) -> None:
        self.out: set[int] = set()
        self.acked: set[int] = set()

    def ack(self, said: Ack) -> None:
        assert said.tag in self.out, "a broker ends the channel for a tag it does not know"
        covered = {tag for tag in self.out if tag <= said.tag} if said.multiple else {said.tag}
        self.out -= covered
        self.acked |= covered


STEPS = st.lists(
    st.tuples(st.sampled_from(["deliver", "ack", "return", "say"]), st.integers(0, 10_000)),
    max_size=200,
)


@given(STEPS)
def test_just_what_is_done_is_acknowledged_in_any_order_of_events(
    steps: list[tuple[str, int]],
) -> None:
    channel, water = Channel(), LowWater()
    held: list[int] = []
    done: set[int] = set()
    last = 0
    for step, choice in [*steps, ("say", 0)]:
        if step == "deliver":
            last += 1
            channel.out.add(last)
            held.append(last)
            water.delivered(last)
        elif step == "say":
            for said in water.take():
                channel.ack(said)
            assert channel.acked == done
            assert channel.out == set(held)
        elif held:
            tag = held.pop(choice % len(held))
            if step == "ack":
                assert water.done(tag)
                done.add(tag)
            else:
                assert water.returned(tag)
                channel.out.discard(tag)
        assert len(water) == len(held)


def test_a_run_of_finished_jobs_takes_one_acknowledgement() -> None:
    water = LowWater()
    for tag in range(1, 101):
        water.delivered(tag)
    for tag in (*range(100, 51, -1), *range(1, 51)):
        water.done(tag)
    assert water.take() == [
        Ack(50, multiple=True),
        *(Ack(n, multiple=False) for n in range(100, 51, -1)),
    ]
    water.done(51)
    assert water.take() == [Ack(51, multiple=False)]


def test_what_is_not_in_our_hands_is_not_acknowledged() -> None:
    water = LowWater()
    water.delivered(1)
    assert water.done(1)
    assert not water.done(1)
    assert not water.returned(1)
    assert not water.done(7)


@given(
    wanted=st.integers(0, 200),
    shares=st.lists(st.integers(1, 50), max_size=5),
    orphans=st.integers(0, 50),
)
def test_consumers_never_hold_more_than_the_prefetch_and_reach_it_without_orphans(
    wanted: int, shares: list[int], orphans: int
) -> None:
    for _ in range(10):
        step = change(wanted, shares, orphans)
        if step == NO_CHANGE:
            break
        kept = shares[: len(shares) - step.ended]
        orphans += sum(shares[len(kept) :])
        shares = [*kept, step.begun] if step.begun else kept
        assert not step.begun or sum(shares) + orphans <= wanted
    assert sum(shares) <= wanted
    if not orphans:
        assert sum(shares) == wanted
    assert change(wanted, shares, 0).ended == 0
