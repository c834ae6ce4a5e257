"""`spec.worker` makes workers exist, keeps them, and says how they are. The test is the kubelet."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from control_plane.operating import Operated

_APP = {"name": "app", "image": "registry.example/app:1"}
_HOW_TO = Path(__file__).parents[2] / "docs/how-to/workers.md"
_WORKER = {"port": 8080, "timeout": "2m"}


def _template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [_APP], **spec}}


def _worker(**template: Any) -> dict[str, Any]:
    return {**_WORKER, "template": _template(**template)}


def _deployment(operated: Operated, name: str = "nq-orders") -> dict[str, Any]:
    return operated.kubectl.get("deployment", name)


def _exists(operated: Operated, thing: str) -> bool:
    return bool(operated.kubectl("get", thing, "--ignore-not-found", "--output=name"))


def _pods(operated: Operated) -> list[dict[str, Any]]:
    answer = json.loads(operated.kubectl("get", "pods", "--output=json"))
    found: list[dict[str, Any]] = answer["items"]
    return found


def _be_kubelet(operated: Operated, container: dict[str, Any], *, ready: bool) -> None:
    """Say of the one pod how it is, as the node would."""
    operated.eventually(lambda: len(_pods(operated)) == 1, "there is a pod")
    status = {
        "phase": "Running" if ready else "Pending",
        "conditions": [
            {"type": kind, "status": "True" if ready else "False"}
            for kind in ("Ready", "ContainersReady")
        ],
        "containerStatuses": [
            {
                "name": "app",
                "image": _APP["image"],
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": container,
            }
        ],
    }
    name = _pods(operated)[0]["metadata"]["name"]
    patch = json.dumps({"status": status})
    operated.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", patch)


def _says(operated: Operated, status: str, words: str) -> None:
    operated.says("WorkersReady", status, words)


def test_a_template_becomes_a_deployment_with_the_sidecar_and_an_account_that_may_do_nothing(
    operated: Operated,
) -> None:
    operated.apply(worker=_worker())
    _says(operated, "False", "Starting: 0 of 1 worker is ready")
    deployment = _deployment(operated)
    owner = deployment["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("NamedQueue", "orders", True)
    assert deployment["spec"]["selector"] == {"matchLabels": {"namedqueue.io/worker": "orders"}}
    pod = deployment["spec"]["template"]["spec"]
    [sidecar] = pod["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("namedqueue", "Always")
    assert pod["terminationGracePeriodSeconds"] == 130
    assert pod["containers"][0]["lifecycle"]["preStop"]["httpGet"]["path"] == "/wait-for-drain"
    assert pod["serviceAccountName"] == "nq-orders"
    assert pod["automountServiceAccountToken"] is False
    account = operated.kubectl.get("serviceaccount", "nq-orders")
    assert account["automountServiceAccountToken"] is False
    ready = operated.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Starting")


def test_the_how_tos_manifest_makes_workers(operated: Operated) -> None:
    first = _HOW_TO.read_text().split("```yaml\n")[1].split("```")[0]
    document = yaml.safe_load(first)
    operated.apply("payments")
    operated.apply(**document["spec"])
    _says(operated, "False", "Starting: 0 of 1 worker is ready")
    assert _exists(operated, "serviceaccount/nq-orders")


def test_workers_that_are_ready_make_the_queue_ready_and_later_starts_do_not_unmake_it(
    operated: Operated,
) -> None:
    operated.apply(worker=_worker())
    _be_kubelet(operated, {"running": {}}, ready=True)
    _says(operated, "True", "1 of 1 worker is ready")
    operated.ready()
    operated.kubectl("scale", "deployment/nq-orders", "--replicas=3")
    _says(operated, "True", "Starting: 1 of 3 workers are ready; the others are starting")
    operated.kubectl("scale", "deployment/nq-orders", "--replicas=0")
    _says(operated, "True", "ScaledToZero")
    assert operated.condition("Ready")["status"] == "True"


def test_the_reason_of_a_pod_that_does_not_start_is_told(operated: Operated) -> None:
    operated.apply(worker=_worker())
    waiting = {"reason": "ImagePullBackOff", "message": "registry.example: no such image app:1"}
    _be_kubelet(operated, {"waiting": waiting}, ready=False)
    _says(operated, "False", "ImagePullBackOff: 0 of 1 worker is ready; pod nq-orders-")
    _says(operated, "False", "container app: registry.example: no such image app:1")
    operated.told("no such image")


def test_a_quota_that_forbids_pods_is_told(operated: Operated) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    operated.kubectl.apply({**quota, "spec": {"hard": {"pods": "0"}}})
    operated.apply(worker=_worker())
    _says(operated, "False", "exceeded quota")


def test_a_template_that_the_api_server_refuses_is_told_with_its_words(operated: Operated) -> None:
    operated.apply(worker={**_WORKER, "template": {"spec": {"containers": []}}})
    _says(operated, "False", "spec.template.spec.containers: Required value")


def test_a_template_that_names_an_unknown_queue_is_told_and_made_once_the_queue_is_there(
    operated: Operated,
) -> None:
    template = _template() | {"metadata": {"annotations": {"namedqueue.io/produce": "payments"}}}
    operated.apply(worker={**_WORKER, "template": template})
    _says(operated, "False", "InvalidTemplate: spec.worker.template: it names the queue payments")
    operated.apply("payments")
    _says(operated, "False", "Starting")
    sources = _deployment(operated)["spec"]["template"]["spec"]["volumes"][0]["projected"][
        "sources"
    ]
    secrets = {each["secret"]["name"] for each in sources if "secret" in each}
    assert secrets == {"nq-orders-consumer", "nq-orders-store", "nq-payments-producer"}


def test_a_changed_or_deleted_deployment_is_put_back_with_an_event(operated: Operated) -> None:
    operated.apply(worker=_worker())
    _says(operated, "False", "Starting")
    operated.kubectl("set", "image", "deployment/nq-orders", "app=registry.example/other:2")

    def image() -> str:
        containers = _deployment(operated)["spec"]["template"]["spec"]["containers"]
        return str(containers[0]["image"])

    operated.eventually(lambda: image() == _APP["image"], "the image is back")
    operated.told("Repaired: set Deployment nq-orders back")
    operated.kubectl("delete", "deployment/nq-orders", "serviceaccount/nq-orders")
    operated.told("recreated Deployment nq-orders")  # by itself, or in one event with the account
    operated.told("recreated ServiceAccount nq-orders")
    operated.eventually(lambda: _exists(operated, "serviceaccount/nq-orders"), "both are back")
    assert _exists(operated, "deployment/nq-orders")


def test_what_users_add_to_the_deployment_stays(operated: Operated) -> None:
    operated.apply(worker=_worker())
    _says(operated, "False", "Starting")
    operated.kubectl("scale", "deployment/nq-orders", "--replicas=4")
    operated.kubectl("rollout", "restart", "deployment/nq-orders")
    operated.apply(worker={**_worker(), "timeout": "5m"})

    def followed() -> bool:
        pod = _deployment(operated)["spec"]["template"]["spec"]
        return bool(pod["terminationGracePeriodSeconds"] == 310)

    operated.eventually(followed, "the edit is followed")
    deployment = _deployment(operated)
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in annotations
    assert deployment["spec"]["replicas"] == 4


def test_kubectl_scale_of_a_queue_sets_its_workers_and_zero_leaves_them_alone(
    operated: Operated,
) -> None:
    operated.apply(worker=_worker())
    _says(operated, "False", "Starting")
    operated.kubectl("scale", "nq/orders", "--replicas=3")
    operated.eventually(lambda: _deployment(operated)["spec"]["replicas"] == 3, "there are three")
    operated.kubectl("scale", "deployment/nq-orders", "--replicas=1")
    operated.eventually(lambda: _deployment(operated)["spec"]["replicas"] == 3, "three again")


def test_scaled_workers_begin_at_the_least_and_no_edit_takes_their_number_away(
    operated: Operated,
) -> None:
    operated.apply(worker=_worker(), scaling={"minReplicas": 2})
    _says(operated, "False", "0 of 2 workers are ready")
    operated.kubectl("scale", "deployment/nq-orders", "--replicas=2")
    fields = _managers_of_replicas(operated)
    assert "namedqueue-operator" not in fields
    operated.apply(worker={**_worker(), "timeout": "5m"}, scaling={"minReplicas": 2})
    operated.eventually(
        lambda: (
            _deployment(operated)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            == 310
        ),
        "the edit is followed",
    )
    assert _deployment(operated)["spec"]["replicas"] == 2


def test_a_queue_that_wants_no_workers_any_more_has_none(operated: Operated) -> None:
    operated.apply(worker=_worker())
    _says(operated, "False", "Starting")
    operated.apply(worker={"port": 8080})
    operated.eventually(lambda: not _exists(operated, "deployment/nq-orders"), "it is gone")
    operated.eventually(lambda: not _exists(operated, "serviceaccount/nq-orders"), "it is gone")
    operated.ready()


def test_a_deployment_of_the_same_name_is_not_taken_over(operated: Operated) -> None:
    operated.kubectl("create", "deployment", "nq-orders", "--image=registry.example/theirs:1")
    operated.apply(worker=_worker())
    _says(operated, "False", "NotOurs: Deployment nq-orders exists and does not belong")
    containers = _deployment(operated)["spec"]["template"]["spec"]["containers"]
    assert containers[0]["image"] == "registry.example/theirs:1"


@pytest.mark.parametrize("named", ["label", "annotation"])
def test_a_referenced_deployment_is_missing_then_lacks_its_sidecar_then_counts(
    operated: Operated, named: str
) -> None:
    operated.apply(worker={**_WORKER, "deploymentRef": {"name": "shop"}})
    _says(operated, "False", "NoDeployment: there is no Deployment shop")
    operated.kubectl("create", "deployment", "shop", "--image=registry.example/app:1")
    _says(operated, "False", "NotInjected: the pods of Deployment shop get no sidecar")
    label = {"labels": {"namedqueue.io/inject": "true"}}
    annotation = {"annotations": {"namedqueue.io/consume": "orders"}}
    first, missing = (label, "consume") if named == "label" else (annotation, "label")
    _annotate(operated, first)
    _says(operated, "False", missing)
    _annotate(operated, label | annotation)
    _says(operated, "False", "Starting: 0 of 1 worker is ready")


def _annotate(operated: Operated, metadata: dict[str, Any]) -> None:
    """Change the pod template of the user's Deployment; it makes no pods, which need a webhook."""
    spec = {"replicas": 1, "template": {"metadata": metadata}}
    operated.kubectl("patch", "deployment", "shop", "-p", json.dumps({"spec": spec}))


def _managers_of_replicas(operated: Operated) -> set[str]:
    shown = json.loads(
        operated.kubectl("get", "deployment", "nq-orders", "--output=json", "--show-managed-fields")
    )
    return {
        entry["manager"]
        for entry in shown["metadata"]["managedFields"]
        if entry["operation"] == "Apply" and "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    }
