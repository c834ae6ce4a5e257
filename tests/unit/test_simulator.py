"""The simulated world obeys its own rules, and the models of KEDA and the HPA theirs."""

from simulator import pages
from simulator.autoscalers import Keda, NamedQueue, contestants
from simulator.traces import Job, Trace
from simulator.worlds import World

_BURST = Trace(
    "burst",
    "6,000 jobs at once, one second each",
    tuple(Job(101.0, 1.0) for _ in range(6000)),
    lasts=1500.0,
)


def _counts(autoscaler: NamedQueue | Keda, trace: Trace = _BURST) -> list[tuple[float, int]]:
    return World(trace, autoscaler).run().counts


def test_every_job_is_started_once_and_the_same_run_gives_the_same_figures() -> None:
    for each, again in zip(contestants(), contestants(), strict=True):
        outcome, repeated = World(_BURST, each).run(), World(_BURST, again).run()
        assert len(outcome.waits) == len(_BURST.jobs)
        assert outcome == repeated


def test_our_scaling_jumps_to_what_is_needed_and_ends_at_none() -> None:
    counts = _counts(NamedQueue())
    assert counts[0] == (105.0, 20)
    assert counts[-1][1] == 0


def test_keda_activates_at_its_poll_and_the_hpa_grows_by_four_or_double() -> None:
    counts = _counts(Keda())
    assert counts[:4] == [(120.0, 1), (120.0, 5), (135.0, 10), (150.0, 20)]


def test_keda_goes_to_none_only_after_its_cooldown() -> None:
    counts = _counts(Keda())
    assert counts[-1][1] == 0
    assert counts[-1][0] >= 120.0 + 300.0


def test_the_hpa_removes_nothing_that_it_wanted_within_its_stabilization() -> None:
    (peak, most), (first_down, left), *_ = _counts(Keda(poll=5.0, stabilization=120.0))[3:]
    assert (most, left) == (20, 1)
    assert first_down - peak >= 120.0


def test_a_pod_that_has_to_go_finishes_its_jobs_or_counts_them_as_interrupted() -> None:
    """Ten jobs of two minutes under an autoscaler that takes the pods away at once."""

    class Rash:
        name = "rash"
        spares_busy_pods = True

        def begin(self, world: World) -> None:
            world.at(0.0, lambda: world.scale(1))
            world.at(60.0, lambda: world.scale(0))
            world.at(200.0, lambda: world.scale(1))

    slow = Trace("slow", "", tuple(Job(20.0, 120.0) for _ in range(10)), lasts=600.0)
    outcome = World(slow, Rash()).run()
    assert outcome.interrupted == 10
    assert len(outcome.waits) == 20
    brief = Trace("brief", "", tuple(Job(55.0, 20.0) for _ in range(10)), lasts=600.0)
    assert World(brief, Rash()).run().interrupted == 0


def test_jobs_wait_less_than_under_keda_after_a_burst_and_cost_no_more() -> None:
    outcomes = {each.name: World(_BURST, each).run() for each in contestants()[:2]}
    ours, theirs = outcomes.values()
    assert pages.mean_wait(ours) < pages.mean_wait(theirs)
    assert ours.pod_seconds < theirs.pod_seconds
    assert pages.lost({"burst": outcomes}) == []
    worse = {"KEDA": theirs, "NamedQueue": ours}
    assert pages.lost({"burst": worse})[0].startswith("burst: jobs wait")


def test_the_page_has_a_row_for_each_and_a_verdict() -> None:
    results = {"burst": {each.name: World(_BURST, each).run() for each in contestants()}}
    page = pages.page([_BURST], results)
    assert all(f"| {each.name} |" in page for each in contestants())
    assert "On every trace jobs wait less than under KEDA's defaults" in page
