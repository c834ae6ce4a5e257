"""The decision: how many replicas, and why, in a sentence.

Up at once, down with care. What is needed now is never denied for the sake of calm; fewer than were
needed within the stabilization are not asked for; no step down is larger than allowed; and the last
replica stays until there has been nothing to do for the whole cooldown, nor a job on the ladder
that is about to return.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

from namedqueue_operator.scaling import rates
from namedqueue_operator.scaling.policies import Policy
from namedqueue_operator.scaling.windows import SETTLED_SECONDS, Window

_ROUNDING: Final = 1e-9


class Reason(StrEnum):
    """One word for programs."""

    FOLLOWING = "Following"
    LIMITED = "Limited"
    STABILIZING = "Stabilizing"
    COOLING = "Cooling"
    IDLE = "Idle"
    CONSTANT = "Constant"
    DEPTH_UNKNOWN = "DepthUnknown"


@dataclass(frozen=True)
class Decision:
    """How many replicas there shall be, how many the jobs need by themselves, and why."""

    replicas: int
    needed: int
    reason: Reason
    sentence: str


def decide(window: Window, policy: Policy, now: float) -> Decision:
    """Return how many replicas there shall be."""
    if policy.constant:
        return _constant(policy)
    if window.unknown:
        kept = f"{_replicas(window.current)} kept"
        return Decision(window.current, 0, Reason.DEPTH_UNKNOWN, f"{kept}, for {window.unknown}")
    needed, why = _need(window, policy)
    wanted = min(max(needed, policy.minimum), policy.most)
    if wanted > window.current or wanted == window.current > 0:
        return _reached(wanted, needed, policy, why)
    return _fewer(window, policy, now, wanted=wanted, needed=needed, why=why)


def _constant(policy: Policy) -> Decision:
    replicas = max(policy.minimum, 1)
    why = "a stream has no backlog that empties; raise minReplicas for more"
    return Decision(replicas, replicas, Reason.CONSTANT, f"{_replicas(replicas)}: {why}")


def _need(window: Window, policy: Policy) -> tuple[int, str]:
    """Return what the jobs ask for, before any bound."""
    sample = window.newest
    if not sample.ready and not window.current:
        return 0, "nothing is ready"
    if policy.drain_time is not None:
        return _to_drain(window, policy.drain_time)
    per_replica = policy.per_replica or 1
    needed = -(-sample.jobs // per_replica)
    jobs = f"{sample.ready} ready and {sample.in_flight} in flight"
    return needed, f"{jobs} at {per_replica} for each replica"


def _to_drain(window: Window, drain_time: float) -> tuple[int, str]:
    sample = window.newest
    coming, speed = rates.arrival(window), rates.service(window)
    needed = ceil((sample.jobs / drain_time + coming) / speed - _ROUNDING)
    if sample.jobs:
        needed = max(needed, 1)
    known = f"{speed:.3g}/s by each replica" if window.busy else "at a speed not measured yet"
    jobs = f"{sample.jobs} jobs to be done in {drain_time:g} s and {coming:.3g}/s coming"
    return needed, f"{jobs}, {known}"


def _reached(wanted: int, needed: int, policy: Policy, why: str) -> Decision:
    if needed <= wanted:
        least = ", the least (minReplicas)" if needed < wanted else ""
        return Decision(wanted, needed, Reason.FOLLOWING, f"{_replicas(wanted)}{least}: {why}")
    limit = "maxReplicas"
    if policy.most < policy.maximum:
        limit = f"one for each of {policy.partitions} partitions, and more would only wait"
    sentence = f"{_replicas(wanted)}, the most ({limit}); {needed} would be needed: {why}"
    return Decision(wanted, needed, Reason.LIMITED, sentence)


def _fewer(
    window: Window, policy: Policy, now: float, *, wanted: int, needed: int, why: str
) -> Decision:
    current = window.current
    if not current:
        return Decision(0, needed, Reason.IDLE, f"no replicas: {why}")
    last = _last_stays(window, policy, now)
    goal = max(wanted, 1) if last else wanted
    calm = min(max(goal, window.peak(now - policy.stabilization)), current)
    replicas = min(max(calm, current - policy.step(current)), policy.most)
    if replicas == goal == wanted:
        return _reached(wanted, needed, policy, why)
    if replicas == goal:
        return Decision(replicas, needed, Reason.COOLING, f"{_replicas(replicas)}: {last}")
    span = f"{policy.stabilization:g} s"
    sentence = f"{_replicas(replicas)} on the way down: as many were needed in the last {span}"
    if replicas > calm:
        sentence = f"{_replicas(replicas)} on the way down in steps of {policy.max_step}"
    return Decision(replicas, needed, Reason.STABILIZING, sentence)


def _last_stays(window: Window, policy: Policy, now: float) -> str:
    """Say why the last replica has to stay, or nothing if it may go."""
    if window.newest.waiting:
        return "nothing to do until jobs return from the ladder"
    if window.idle(now) < max(policy.cooldown, SETTLED_SECONDS):
        return f"the last one goes after {policy.cooldown:g} s without a job"
    return ""


def _replicas(count: int) -> str:
    return {0: "no replicas", 1: "1 replica"}.get(count, f"{count} replicas")
