"""What kubectl users see of the two kinds, on a real API server."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.api_server import ApiServer
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import KINDS, read
from namedqueue.api.redrive import QueueRedrive
from namedqueue.api.status import NamedQueueStatus, QueueRedriveStatus
from testbed.kubectl import Kubectl
from testbed.processes import TestbedError

pytestmark = pytest.mark.usefixtures("crds")

EXAMPLES = Path(__file__).parents[2] / "examples"
_CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "AllWell",
    "message": "The queue works.",
    "lastTransitionTime": "2026-02-26T12:00:00Z",
    "observedGeneration": 1,
}
_QUEUE_STATUS = {
    "observedGeneration": 1,
    "conditions": [_CONDITION],
    "replicas": 4,
    "selector": "app=orders",
    "depth": {"ready": 120, "inFlight": 40, "waiting": 3, "dead": 1},
    "broker": "rabbit.shop:5672",
    "topology": {"vhost": "nq-shop", "exchanges": ["nq.shop.orders"], "queues": ["q"]},
}
_REDRIVE_STATUS = {
    "observedGeneration": 1,
    "phase": "Running",
    "matched": 12,
    "redriven": 5,
    "remaining": 7,
    "conditions": [_CONDITION],
}


def _queue(name: str = "orders", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": "NamedQueue",
        "metadata": {"name": name},
        "spec": spec,
    }


def _redrive() -> dict[str, Any]:
    return _queue("again", queue="orders") | {"kind": "QueueRedrive"}


def _with_status(kubectl: Kubectl, document: dict[str, Any], status: dict[str, Any]) -> None:
    kubectl.apply(document)
    patch = json.dumps({"status": status})
    name = f"{document['kind']}/{document['metadata']['name']}"
    kubectl("patch", name, "--subresource=status", "--type=merge", f"--patch={patch}")


def _table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_queue_is_listed_with_the_columns_of_the_design(kubectl: Kubectl) -> None:
    _with_status(kubectl, _queue(), _QUEUE_STATUS)
    titles, cells = _table(kubectl("get", "nq"))
    assert titles == [
        "NAME",
        "READY",
        "TYPE",
        "READY-JOBS",
        "IN-FLIGHT",
        "WAITING",
        "DEAD",
        "WORKERS",
        "AGE",
    ]
    assert cells[:-1] == ["orders", "True", "durable", "120", "40", "3", "1", "4"]
    titles, cells = _table(kubectl("get", "nq", "--output=wide"))
    assert titles[-3:] == ["BROKER", "REASON", "AGE"]
    assert cells[-3:-1] == ["rabbit.shop:5672", "AllWell"]


def test_a_redrive_is_listed_with_its_progress(kubectl: Kubectl) -> None:
    _with_status(kubectl, _redrive(), _REDRIVE_STATUS)
    titles, cells = _table(kubectl("get", "nqr"))
    assert titles == ["NAME", "QUEUE", "PHASE", "MATCHED", "REDRIVEN", "REMAINING", "AGE"]
    assert cells[:-1] == ["again", "orders", "Running", "12", "5", "7"]


def test_both_kinds_are_among_all(kubectl: Kubectl) -> None:
    kubectl.apply(_queue(), _redrive())
    names = kubectl("get", "all", "--output=name").split()
    assert {"namedqueue.namedqueue.io/orders", "queueredrive.namedqueue.io/again"} <= set(names)


def test_the_scale_subresource_reads_and_sets_the_floor(kubectl: Kubectl) -> None:
    _with_status(kubectl, _queue(worker={"port": 8080}), _QUEUE_STATUS)
    scale = json.loads(kubectl("get", "nq/orders", "--subresource=scale", "--output=json"))
    assert scale["spec"] == {}
    assert scale["status"] == {"replicas": 4, "selector": "app=orders"}
    kubectl("scale", "nq/orders", "--replicas=3")
    assert kubectl.get("nq", "orders")["spec"]["replicas"] == 3


def test_scaling_past_the_most_is_refused_with_the_sentence(kubectl: Kubectl) -> None:
    kubectl.apply(_queue(worker={"port": 8080}, scaling={"maxReplicas": 5}))
    with pytest.raises(TestbedError, match=r"replicas \(6\) is above .*maxReplicas \(5\)"):
        kubectl("scale", "nq/orders", "--replicas=6")


@pytest.mark.parametrize(
    ("document", "status"), [(_queue(), _QUEUE_STATUS), (_redrive(), _REDRIVE_STATUS)]
)
def test_status_is_a_subresource_and_nothing_of_it_is_pruned(
    document: dict[str, Any], status: dict[str, Any], kubectl: Kubectl
) -> None:
    kubectl.apply(document | {"status": status})
    kind, name = document["kind"], document["metadata"]["name"]
    assert "status" not in kubectl.get(kind, name)
    _with_status(kubectl, document, status)
    stored = kubectl.get(kind, name)
    assert stored["status"] == status
    expected: Any = {"NamedQueue": NamedQueueStatus, "QueueRedrive": QueueRedriveStatus}[kind]
    assert read(stored).status == expected.model_validate(status)


def test_the_status_above_fills_every_field_that_the_models_know() -> None:
    for model, status in ((NamedQueueStatus, _QUEUE_STATUS), (QueueRedriveStatus, _REDRIVE_STATUS)):
        assert model.model_validate(status).model_dump(by_alias=True, mode="json") == status


def test_a_stored_queue_reads_back_with_its_metadata(kubectl: Kubectl) -> None:
    kubectl.apply(_queue())
    stored = read(kubectl.get("nq", "orders"))
    assert isinstance(stored, NamedQueue)
    assert (stored.metadata.name, stored.metadata.namespace) == ("orders", kubectl.namespace)
    assert stored.metadata.generation == 1


def test_what_cannot_change_is_refused_by_kubectl_apply(kubectl: Kubectl) -> None:
    kubectl.apply(_queue())
    words = kubectl.refusal(_queue(type="stream"))
    assert "spec.type cannot change; make a NamedQueue with another name" in words


def test_a_redrive_cannot_change(kubectl: Kubectl) -> None:
    kubectl.apply(_redrive())
    words = kubectl.refusal(_redrive() | {"spec": {"queue": "payments"}})
    assert "spec cannot change; make another QueueRedrive" in words


def test_an_unknown_field_is_refused_by_kubectl_apply(kubectl: Kubectl) -> None:
    words = kubectl.refusal(_queue(retyr={}))
    assert "unknown field" in words
    assert "retyr" in words


def test_kubectl_explains_every_field(kubectl: Kubectl) -> None:
    explained = kubectl("explain", "nq.spec.retry")
    assert "What happens after a failed attempt." in explained
    assert "Deliveries in all, the first included." in explained
    assert "No delay is longer, jitter aside." in explained


def test_a_whole_number_with_a_point_is_what_kubectl_makes_of_it(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    """kubectl turns YAML's 5.0 into 5; so the models take it as well."""
    document = _queue(worker={"port": 8080.0}, scaling={"minReplicas": 5.0})
    manifest = tmp_path / "queue.yaml"
    manifest.write_text(yaml.safe_dump(document))
    assert "minReplicas: 5.0" in manifest.read_text()
    kubectl("apply", f"--filename={manifest}")
    stored, written = read(kubectl.get("nq", "orders")), read(document)
    assert stored.spec == written.spec


def test_every_example_is_accepted_and_reads_as_what_it_says(api_server: ApiServer) -> None:
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if not _is_ours(document):
                continue
            plural = f"{document['kind'].lower()}s"
            own = document | {"metadata": {"name": document["metadata"]["name"]}}
            answer = api_server.resources(plural).create(own, dry_run=True)
            assert answer.accepted, f"{path}: {answer.message}"
            stored, written = read(answer.body), read(own)
            assert isinstance(stored, NamedQueue | QueueRedrive)
            assert stored.spec == written.spec, path


def _is_ours(document: Any) -> bool:
    return (
        isinstance(document, dict)
        and document.get("kind") in KINDS
        and str(document.get("apiVersion")).startswith("namedqueue.io/")
    )
