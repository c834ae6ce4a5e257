"""Whether a queue's workers are ready, and if not, why. Pure.

Pods that are merely starting are no trouble: replicas come and go with the load, and an answer that
flipped each time would tell nothing. So a first start has to succeed before the answer is yes, and
from then on only a reason makes it no: an image that cannot be pulled, an app that ends again and
again, a quota, a node that is missing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from namedqueue_operator.conditions import Answer, no, yes
from namedqueue_operator.sidecars import CONSUME, CONTAINER, INJECT, Impossible, wish_of

_FAILING: Final = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


def workers_ready(
    deployment: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], *, were_ready: bool
) -> Answer:
    """Answer how many workers are ready of how many, and what keeps the others."""
    spec, status = deployment["spec"], deployment.get("status") or {}
    asked, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
    settled = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    if asked == 0:
        return yes("ScaledToZero", "no worker is asked for")
    count = f"{ready} of {asked} {'worker is' if asked == 1 else 'workers are'} ready"
    updated = status.get("updatedReplicas", 0)
    if settled and ready >= asked and updated >= asked:
        return yes("WorkersReady", count)
    failure = _refusal(status) or next(_failures(pods), None) or _overdue(status)
    if failure is not None:
        reason, why = failure
        return no(reason, f"{count}; {why}")
    if were_ready:
        return yes("Starting", f"{count}; the others are starting")
    return no("Starting", f"{count}; waiting for the first start")


def not_injected(deployment: Mapping[str, Any], queue: str) -> str | None:
    """Say why the pods of a user's Deployment get no sidecar for this queue; None if they do."""
    template = deployment["spec"]["template"]
    if any(each["name"] == CONTAINER for each in template["spec"].get("initContainers") or ()):
        return None
    metadata = template.get("metadata") or {}
    name = deployment["metadata"]["name"]
    labelled = (metadata.get("labels") or {}).get(INJECT) == "true"
    try:
        asked = queue in wish_of(metadata).consumed
    except Impossible:
        asked = False
    if labelled and asked:
        return None
    lacks = f'the label {INJECT}: "true"' if not labelled else f"{queue} in {CONSUME}"
    return (
        f"the pods of Deployment {name} get no sidecar, for their template lacks {lacks}; "
        f'label it {INJECT}: "true" and annotate it {CONSUME}: {queue}'
    )


def _refusal(status: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return why no pod could be made at all, such as a quota."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return condition.get("reason") or "ReplicaFailure", condition.get("message", "")
    return None


def _overdue(status: Mapping[str, Any]) -> tuple[str, str] | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == "Progressing" and condition["status"] == "False":
            return condition.get("reason") or "Stuck", condition.get("message", "")
    return None


def _failures(pods: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Return what ails pods: a reason and a sentence each, the oldest pod first."""
    for pod in sorted(pods, key=lambda each: str(each["metadata"].get("creationTimestamp"))):
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        for container in _containers(status):
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _FAILING:
                said = waiting.get("message") or "its container does not start"
                yield waiting["reason"], f"pod {name}, container {container['name']}: {said}"
        for condition in status.get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                reason = condition.get("reason") or "Unschedulable"
                yield reason, f"pod {name}: {condition.get('message', 'it has no node')}"


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()
