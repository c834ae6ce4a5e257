"""A redrive as decisions: when its turn comes, what its Job is, and what came of it. Pure.

A redrive has at most one Job, made once and never again. The Job stays for as long as the
QueueRedrive does, for it is the only thing that knows, whatever becomes of the operator, that the
redrive has run; deleting the QueueRedrive takes the Job and its pods along.

Of the redrives of one queue the oldest goes first, and the others wait for it by name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from namedqueue_operator.children import Manifest
from namedqueue_operator.conditions import TOPOLOGY_READY, Answer, find, no, yes
from namedqueue_operator.inventory import Body, Key, key_of

Phase: TypeAlias = Literal["Pending", "Waiting", "Running", "Succeeded", "Failed"]

COMPLETE: Final = "Complete"
PROGRESSING: Final = "Progressing"
ABORTED: Final = "Aborted"

_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_ABORTED: Final = "Aborted"
_COUNTS: Final = ("matched", "redriven", "remaining")


@dataclass(frozen=True)
class Standing:
    """Where a redrive stands, with what is known of its counts."""

    phase: Phase
    answers: Mapping[str, Answer]
    counts: Mapping[str, int] = field(default_factory=dict)


def is_finished(redrive: Body) -> bool:
    """Tell whether a redrive has run, and will not run again."""
    return (redrive.get("status") or {}).get("phase") in _FINISHED


def queue_of(redrive: Body) -> Key:
    """Return the queue whose dead letters it sends back."""
    return (key_of(redrive)[0], redrive["spec"]["queue"])


def in_turn(redrives: Sequence[Body]) -> list[Body]:
    """Return the unfinished redrives of one queue: the one under way first, then by age."""

    def turn(redrive: Body) -> tuple[bool, str, str]:
        waits = (redrive.get("status") or {}).get("phase") != "Running"
        metadata = redrive["metadata"]
        return (waits, metadata["creationTimestamp"], metadata["name"])

    return sorted((each for each in redrives if not is_finished(each)), key=turn)


def behind(other: str) -> Standing:
    """Say whose turn it is."""
    return _pending("Queued", f"redrive {other} of the same queue goes first")


def unready(redrive: Body, queue: Body | None) -> Standing | None:
    """Say why the redrive cannot begin as its queue stands, or None if it can."""
    namespace, name = queue_of(redrive)
    if queue is None:
        return _pending(
            "QueueMissing",
            f"there is no NamedQueue {name} in namespace {namespace}; create it, or delete this "
            "redrive",
        )
    kind = (queue.get("spec") or {}).get("type") or "durable"
    if kind != "durable":
        return _failed("NoDeadLetters", f"queue {name} is {_a(kind)} and has no dead letters")
    topology = find(queue.get("status") or {}, TOPOLOGY_READY)
    if topology.get("status") != "True":
        why = topology.get("message") or "it is being brought about"
        return _pending("QueueNotReady", f"queue {name} is not in place: {why}")
    return None


def rolling_out(name: str, deployment: Body | None) -> Standing | None:
    """Say what is missing until a worker Deployment has rolled out, or None if it has.

    It is what `kubectl rollout status` asks. A Deployment that asks for no replicas has rolled out
    when none of the old ones is left: the first new worker comes with the first job.
    """
    if deployment is None:
        return _waiting(
            f"Deployment {name} does not exist; create it, or make the redrive without "
            "waitForRollout"
        )
    asked = deployment["spec"].get("replicas", 1)
    status = deployment.get("status") or {}
    existing, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    available = status.get("availableReplicas", 0)
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return _waiting(f"Deployment {name} has not been looked at since it was changed")
    if updated < asked:
        return _waiting(f"{updated} of {asked} replicas of Deployment {name} are new")
    if existing > updated:
        return _waiting(f"{existing - updated} old replicas of Deployment {name} are still there")
    if available < updated:
        return _waiting(f"{available} of {updated} new replicas of Deployment {name} are available")
    return None


def without_workers(queue: str) -> Standing:
    """Say that there is no rollout to wait for."""
    return _waiting(
        f"queue {queue} names no worker Deployment whose rollout could be waited for; write "
        "spec.worker, or make the redrive without waitForRollout"
    )


def held_up(why: str) -> Standing:
    """Say what else has to go first."""
    return _pending("CleaningUp", why)


def cancelled() -> Standing:
    """Say that somebody has deleted it before its Job was made; nobody is left to read it."""
    return _pending("Cancelled", "the redrive was deleted before it began")


def impossible(why: str) -> Standing:
    """Say what the operator lacks."""
    return _pending("NoImage", why)


def refused(why: str) -> Standing:
    """Say why the Job could not be made."""
    return _pending("JobRefused", f"the Job could not be made: {why}")


def standing(
    job: Manifest, pods: Sequence[Body], live: Mapping[str, Any], *, dry_run: bool
) -> Standing:
    """Tell from its Job and pods where a redrive is; `live` is what its process says now."""
    summary = _summary(pods)
    known = {**summary, **live}
    counts = {each: known[each] for each in _COUNTS if isinstance(known.get(each), int)}
    ended = {each["type"]: each for each in _true_conditions(job)}
    said = str(summary.get("message") or "")
    if "Complete" in ended:
        words = said or _outcome(counts, dry_run=dry_run)
        answers = {COMPLETE: yes("Complete", words), PROGRESSING: no("Complete", words)}
        return Standing("Succeeded", answers, counts)
    if "Failed" in ended:
        aborted = summary.get("phase") == _ABORTED
        words = said or str(ended["Failed"].get("message") or "the Job failed")
        reason = "TooManyCameBack" if aborted else "JobFailed"
        answers = {COMPLETE: no(reason, words), PROGRESSING: no(reason, words)}
        if aborted:
            answers[ABORTED] = yes(reason, words)
        return Standing("Failed", answers, counts)
    words = str(live.get("message") or "") or _how_far(counts) or _why_not_yet(pods)
    return Standing("Running", {PROGRESSING: yes("Running", words)}, counts)


def _true_conditions(job: Manifest) -> list[Mapping[str, Any]]:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return [each for each in conditions if each.get("status") == "True"]


def _summary(pods: Sequence[Body]) -> Mapping[str, Any]:
    """Return what the newest pod that ended has left as its last words."""
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["creationTimestamp"]))[::-1]:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated") or {}
            last = str(ended.get("message") or "").strip().rpartition("\n")[2]
            try:
                words = json.loads(last)
            except ValueError:
                words = {"message": last}  # it could not even start, and says why
            if last and isinstance(words, dict):
                return words
    return {}


def _outcome(counts: Mapping[str, int], *, dry_run: bool) -> str:
    if dry_run:
        return f"{counts.get('matched', 0)} dead letters would be sent back; nothing was moved"
    return f"{counts.get('redriven', 0)} dead letters were sent back"


def _how_far(counts: Mapping[str, int]) -> str:
    if "redriven" not in counts:
        return ""
    return f"{counts['redriven']} of {counts.get('matched', 0)} dead letters are sent back"


def _why_not_yet(pods: Sequence[Body]) -> str:
    """Say what a pod that does not run yet waits for."""
    for pod in pods:
        status = pod.get("status") or {}
        for container in status.get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("message"):
                return f"the pod waits: {waiting.get('reason')}: {waiting['message']}"
        for condition in status.get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition.get("message"):
                return f"the pod waits: {condition['message']}"
    return "the Job has begun"


def _pending(reason: str, why: str) -> Standing:
    return Standing("Pending", {PROGRESSING: no(reason, why)})


def _waiting(why: str) -> Standing:
    return Standing("Waiting", {PROGRESSING: no("RollingOut", why)})


def _failed(reason: str, why: str) -> Standing:
    return Standing("Failed", {COMPLETE: no(reason, why), PROGRESSING: no(reason, why)})


def _a(kind: str) -> str:
    return f"an {kind} queue" if kind == "ephemeral" else f"a {kind}"
