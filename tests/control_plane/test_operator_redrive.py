"""A QueueRedrive as its user meets it: whose turn it is, how far it is, and how it ended.

No node is here to run pods, so the tests play the kubelet and the Job controller's part.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from control_plane.operating import Operated

_TEMPLATE: dict[str, Any] = {
    "selector": {"matchLabels": {"app": "worker"}},
    "template": {
        "metadata": {"labels": {"app": "worker"}},
        "spec": {"containers": [{"name": "app", "image": "none"}]},
    },
}


@pytest.fixture
def ready(operated: Operated) -> Operated:
    operated.apply()
    operated.ready()
    return operated


def _redrive(operated: Operated, name: str = "again", **spec: Any) -> None:
    operated.kubectl.apply(
        {
            "apiVersion": "namedqueue.io/v1alpha1",
            "kind": "QueueRedrive",
            "metadata": {"name": name},
            "spec": {"queue": "orders", **spec},
        }
    )


def _status(operated: Operated, name: str = "again") -> dict[str, Any]:
    found: dict[str, Any] = operated.kubectl.get("nqr", name).get("status", {})
    return found


def _stands(operated: Operated, phase: str, words: str = "", name: str = "again") -> None:
    """Wait until a redrive is in a phase and one of its conditions says this."""

    def stands() -> bool:
        status = _status(operated, name)
        told = [f"{each['reason']}: {each['message']}" for each in status.get("conditions", ())]
        return status.get("phase") == phase and any(words in each for each in told)

    operated.eventually(stands, f"{name} is {phase} and says «{words}»")


def _job(operated: Operated, name: str = "again") -> dict[str, Any]:
    return operated.kubectl.get("job", f"nqr-{name}")


def _has_job(operated: Operated, name: str = "again") -> bool:
    return operated.kubectl.succeeds("get", "job", f"nqr-{name}")


def _ended(operated: Operated, kind: str, summary: dict[str, Any], name: str = "again") -> None:
    """Let the redrive's pod end with these last words."""
    pods = json.loads(
        operated.kubectl("get", "pods", f"-lnamedqueue.io/redrive={name}", "--output=json")
    )["items"]
    [pod] = pods
    words = {"exitCode": 0 if kind == "Succeeded" else 3, "message": json.dumps(summary)}
    container = {
        "name": "redrive",
        "image": "x",
        "imageID": "x",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": {**words, "finishedAt": "2026-11-18T00:00:00Z"}},
    }
    _patch_status(
        operated, f"pod/{pod['metadata']['name']}", phase=kind, containerStatuses=[container]
    )


def _patch_status(operated: Operated, what: str, **status: Any) -> None:
    patch = json.dumps({"status": status})
    operated.kubectl("patch", what, "--subresource=status", "--type=merge", f"--patch={patch}")


def _pod_exists(operated: Operated, name: str = "again") -> Callable[[], bool]:
    return lambda: bool(
        operated.kubectl("get", "pods", f"-lnamedqueue.io/redrive={name}", "--output=name")
    )


def test_a_redrive_is_a_job_that_ends_with_its_counts(ready: Operated) -> None:
    _redrive(ready, limit=5, reason="HTTP_422")
    _stands(ready, "Running")
    ready.eventually(_pod_exists(ready), "the Job has a pod")
    summary = {"phase": "Succeeded", "matched": 5, "redriven": 5, "remaining": 0}
    _ended(ready, "Succeeded", summary | {"message": "5 jobs were sent back"})
    _stands(ready, "Succeeded", "5 jobs were sent back")
    status = _status(ready)
    assert (status["matched"], status["redriven"], status["remaining"]) == (5, 5, 0)
    assert ready.kubectl("wait", "nqr/again", "--for=condition=Complete", "--timeout=60s")
    ready.told("Succeeded: 5 jobs were sent back", "again")


def test_the_job_has_what_it_needs_and_nothing_else(ready: Operated) -> None:
    _redrive(ready, ids=["a", "b"])
    _stands(ready, "Running")
    job = _job(ready)
    owner = job["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("QueueRedrive", "again")
    pod = job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["restartPolicy"] == "Never"
    [container] = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    sources = pod["volumes"][0]["projected"]["sources"]
    secrets = {source["secret"]["name"] for source in sources if "secret" in source}
    assert secrets == {"nq-orders-consumer", "nq-orders-store"}
    password = ready.secret("consumer")["password"]
    assert password not in json.dumps(job)


def test_redrives_of_one_queue_go_one_after_another_in_the_order_they_were_made(
    ready: Operated,
) -> None:
    _redrive(ready, "first")
    _stands(ready, "Running", name="first")
    _redrive(ready, "second")
    _stands(ready, "Pending", "Queued: redrive first of the same queue goes first", "second")
    assert not _has_job(ready, "second")
    ready.eventually(_pod_exists(ready, "first"), "the Job has a pod")
    _ended(ready, "Succeeded", {"phase": "Succeeded", "redriven": 0}, "first")
    _stands(ready, "Succeeded", name="first")
    _stands(ready, "Running", name="second")


def test_deleting_a_redrive_cancels_it_and_lets_the_next_begin(ready: Operated) -> None:
    _redrive(ready, "first")
    _stands(ready, "Running", name="first")
    _redrive(ready, "second")
    _stands(ready, "Pending", "Queued", "second")
    ready.kubectl("delete", "nqr/first")
    ready.eventually(lambda: not _has_job(ready, "first"), "the Job is gone")
    _stands(ready, "Running", name="second")


def test_a_redrive_can_wait_until_the_workers_have_rolled_out(operated: Operated) -> None:
    operated.apply(worker={"port": 8080, "deploymentRef": {"name": "worker"}})
    operated.says("TopologyReady", "True", "InPlace")
    _redrive(operated, waitForRollout=True)
    _stands(operated, "Waiting", "Deployment worker does not exist")
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "worker"}}
    operated.kubectl.apply(deployment | {"spec": {"replicas": 1, **_TEMPLATE}})
    _stands(operated, "Waiting", "RollingOut: 0 of 1 new replicas of Deployment worker")
    assert not _has_job(operated)
    pods = json.loads(operated.kubectl("get", "pods", "-lapp=worker", "--output=json"))["items"]
    for pod in pods:
        ready = {"type": "Ready", "status": "True"}
        _patch_status(
            operated, f"pod/{pod['metadata']['name']}", phase="Running", conditions=[ready]
        )
    _stands(operated, "Running")


def test_a_redrive_of_a_queue_that_is_not_there_says_so_and_begins_when_it_is(
    operated: Operated,
) -> None:
    _redrive(operated)
    _stands(operated, "Pending", "QueueMissing: there is no NamedQueue orders in namespace")
    operated.apply()
    _stands(operated, "Running")


def test_a_stream_has_no_dead_letters_to_redrive(operated: Operated) -> None:
    operated.apply(type="stream")
    _redrive(operated)
    _stands(operated, "Failed", "NoDeadLetters: queue orders is a stream and has no dead letters")
    assert not _has_job(operated)


def test_an_aborted_redrive_says_how_many_came_back_and_does_not_run_again(
    ready: Operated,
) -> None:
    _redrive(ready, abortAfterFailures=2)
    _stands(ready, "Running")
    ready.eventually(_pod_exists(ready), "the Job has a pod")
    summary = {"phase": "Aborted", "matched": 9, "redriven": 4, "remaining": 5}
    _ended(ready, "Failed", summary | {"message": "2 jobs came straight back"})
    _stands(ready, "Failed", "TooManyCameBack: 2 jobs came straight back")
    aborted = {each["type"]: each["status"] for each in _status(ready)["conditions"]}
    assert aborted == {"Aborted": "True", "Complete": "False", "Progressing": "False"}
    ready.kubectl("delete", "job/nqr-again", "--wait=true")
    _redrive(ready, "next")
    _stands(ready, "Running", name="next")
    assert not _has_job(ready)
