"""The comparison as a page and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib import pyplot as plt

from simulator.traces import Trace
from simulator.worlds import FLAP_SECONDS, GRACE_SECONDS, STARTING_SECONDS, Outcome

Results = Mapping[str, Mapping[str, Outcome]]
"""Outcomes by trace and autoscaler; ours is the first, the one to beat the second."""

_COLOURS: Final = ("#0b6e4f", "#c1440e", "#8a8a8a", "#c9b458")


def page(traces: Sequence[Trace], results: Results) -> str:
    """Return the page, in Markdown."""
    low, high = STARTING_SECONDS
    about = (
        "The operator's own decision function and models of KEDA's RabbitMQ scaler with the HPA, "
        "in a discrete-event simulation, on the same jobs. All have the same target "
        "(`messagesPerReplica`), at most 20 replicas, at least none, and a broker whose counts "
        f"are up to 5 s old. A pod takes {low:g} to {high:g} s to start. One that shall go "
        f"finishes its jobs for up to {GRACE_SECONDS:g} s; what is left then counts as "
        "interrupted. Which pods go is left to chance under KEDA, while the operator lets those "
        "with the fewest jobs go first. A flap is a step up less than "
        f"{FLAP_SECONDS:g} s after a step down. Waiting is from the moment a job (or its retry) "
        "is ready to the start of its attempt."
    )
    lines = [
        "# Scaling, compared",
        "",
        "<!-- Written by `hack/simulate`. Do not edit. -->",
        "",
        about,
        "",
        "![Replicas and backlog over time](pictures/scaling.svg)",
        "",
        *(line for trace in traces for line in _section(trace, results[trace.name])),
        "## Verdict",
        "",
        *_verdict(results),
        "",
    ]
    return "\n".join(lines)


def _section(trace: Trace, outcomes: Mapping[str, Outcome]) -> list[str]:
    setting = f"{trace.concurrency} at a time in a pod, `messagesPerReplica: {trace.per_replica}`"
    return [
        f"## {trace.name.capitalize()}",
        "",
        f"{trace.about[0].upper()}{trace.about[1:]}; {setting}.",
        "",
        "| | wait, mean | p95 | p99 | pod-seconds | flaps | interrupted |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {name} | {mean_wait(it):.2f} s | {it.wait(0.95):.1f} s | {it.wait(0.99):.1f} s "
            f"| {it.pod_seconds:,.0f} | {it.flaps} | {it.interrupted} |"
            for name, it in outcomes.items()
        ),
        "",
    ]


def mean_wait(outcome: Outcome) -> float:
    """Return the mean waiting time."""
    return sum(outcome.waits) / len(outcome.waits)


def lost(results: Results) -> list[str]:
    """Say where ours does not beat KEDA's defaults, one sentence each."""
    found = []
    for trace, outcomes in results.items():
        ours, theirs, *_ = outcomes.values()
        if mean_wait(ours) >= mean_wait(theirs):
            found.append(
                f"{trace}: jobs wait {mean_wait(ours):.2f} s, under KEDA {mean_wait(theirs):.2f} s"
            )
        if ours.pod_seconds > theirs.pod_seconds:
            more = ours.pod_seconds / theirs.pod_seconds - 1
            found.append(f"{trace}: {more:.1%} more pod-seconds than KEDA")
    return found


def _verdict(results: Results) -> list[str]:
    against = lost(results)
    won = "On every trace jobs wait less than under KEDA's defaults, and the pods cost no more"
    if not against:
        return [f"{won}."]
    return [f"{won}, except:", "", *(f"- {each}" for each in against)]


def picture(traces: Sequence[Trace], results: Results, path: Path) -> None:
    """Draw replicas, and the backlog behind them."""
    mpl.rcParams["svg.hashsalt"] = "namedqueue"  # the same picture for the same figures
    figure, panels = plt.subplots(len(traces), 2, figsize=(12, 2.4 * len(traces)))
    for (left, right), trace in zip(panels, traces, strict=True):
        shown = list(results[trace.name].items())[:2]
        for (name, outcome), colour in zip(shown, _COLOURS, strict=False):
            times, counts = zip(*[(0.0, 0), *outcome.counts, (trace.lasts, 0)], strict=True)
            left.step([at / 60 for at in times], counts, where="post", color=colour, label=name)
            times, jobs = zip(*outcome.backlog, strict=True)
            right.plot([at / 60 for at in times], jobs, color=colour, linewidth=0.9, label=name)
        left.set_title(f"{trace.name}: replicas", fontsize=9, loc="left")
        right.set_title(f"{trace.name}: jobs ready and in flight", fontsize=9, loc="left")
        right.set_yscale("symlog", linthresh=10)
        right.set_ylim(bottom=0)
    panels[0][0].legend(fontsize=8, frameon=False)
    for panel in panels[-1]:
        panel.set_xlabel("minutes")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
