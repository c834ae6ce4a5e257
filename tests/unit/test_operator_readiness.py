"""Whether workers are ready: a start is no trouble, a reason is."""

from typing import Any

import pytest

from namedqueue_operator.readiness import workers_ready


def _deployment(asked: int, ready: int, *, generation: int = 1, **status: Any) -> dict[str, Any]:
    known = {"observedGeneration": 1, "readyReplicas": ready, "updatedReplicas": ready, **status}
    return {
        "metadata": {"name": "nq-orders", "generation": generation},
        "spec": {"replicas": asked},
        "status": known,
    }


def _pod(name: str, born: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": born}, "status": status}


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


_UNSCHEDULABLE = _condition("PodScheduled", "False", "Unschedulable", "0/1 nodes: no memory")
_CRASHING = {
    "containerStatuses": [
        {"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "again"}}}
    ]
}


def test_all_that_are_asked_for_are_ready() -> None:
    answer = workers_ready(_deployment(2, 2), (), were_ready=False)
    assert (answer.status, answer.message) == ("True", "2 of 2 workers are ready")
    assert workers_ready(_deployment(0, 0), (), were_ready=False).reason == "ScaledToZero"


@pytest.mark.parametrize("were_ready", [True, False])
def test_only_a_first_start_makes_others_wait(were_ready: bool) -> None:
    answer = workers_ready(_deployment(3, 1), (), were_ready=were_ready)
    assert (answer.status, answer.reason) == (str(were_ready), "Starting")


def test_pods_of_the_former_template_do_not_count_for_the_new_one() -> None:
    edited = workers_ready(_deployment(2, 2, generation=2), (), were_ready=False)
    rolling = workers_ready(_deployment(2, 2, updatedReplicas=1), (), were_ready=False)
    assert (edited.reason, rolling.reason) == ("Starting", "Starting")


def test_the_oldest_pod_that_fails_is_the_one_that_is_told() -> None:
    pods = [_pod("young", "2", **_CRASHING), _pod("old", "1", **_UNSCHEDULABLE)]
    answer = workers_ready(_deployment(2, 0), pods, were_ready=True)
    assert (answer.status, answer.reason) == ("False", "Unschedulable")
    assert answer.message == "0 of 2 workers are ready; pod old: 0/1 nodes: no memory"


@pytest.mark.parametrize(
    "condition",
    [
        _condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota"),
        _condition("Progressing", "False", "ProgressDeadlineExceeded", "it took too long"),
    ],
)
def test_what_the_deployment_itself_says_is_told(condition: dict[str, Any]) -> None:
    said = condition["conditions"][0]
    answer = workers_ready(_deployment(1, 0, **condition), (), were_ready=True)
    assert (answer.status, answer.reason) == ("False", said["reason"])
    assert said["message"] in answer.message
