"""The workers that we run for a queue: a Deployment of its `spec.worker.template`. Pure.

The template is the user's, with the sidecar put in and the queue named in its annotations. It may
name further queues there, to send to or to work off. Without a service account of its own it gets
one that may do nothing and whose token is not mounted.

How many replicas there are is written only where `spec.replicas` says so and nothing scales them:
a count that somebody else sets is left alone.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from namedqueue.api.namedqueue import NamedQueue
from namedqueue_operator import FIELD_MANAGER, templates
from namedqueue_operator.children import Manifest, deployment_name, metadata_of
from namedqueue_operator.sidecars import CONSUME, Pod, Sidecar, wish_of, with_sidecar

WORKER: Final = "namedqueue.io/worker"
"""The label of a queue's worker pods, and of nothing else."""


def timeout_of(queue: NamedQueue) -> float:
    """Return the seconds that a job of a queue may take; jobs that are pulled have a lease."""
    worker = queue.spec.worker
    return worker.timeout.seconds if worker else 0.0


def pod_template(body: Mapping[str, Any]) -> Pod:
    """Return the user's template with what ties its pods to the queue, or raise `Impossible`."""
    name = body["metadata"]["name"]
    templates.check(body["spec"]["worker"]["template"])
    template = copy.deepcopy(body["spec"]["worker"]["template"])
    metadata = template.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    consumed = dict.fromkeys((name, *str(annotations.get(CONSUME, "")).split(",")))
    queues = ",".join(each.strip() for each in consumed if each.strip())
    spec = template.get("spec") or {}
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = deployment_name(name)
        spec.setdefault("automountServiceAccountToken", False)
    return {
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), WORKER: name},
            "annotations": {**annotations, CONSUME: queues},
        },
        "spec": spec,
    }


def deployment(
    body: Mapping[str, Any], timeouts: Mapping[str, float], sidecar: Sidecar
) -> Manifest:
    """Return the Deployment of a queue's template; `timeouts` has those of all its queues."""
    metadata = body["metadata"]
    template = pod_template(body)
    wish = wish_of(template["metadata"])
    replicas = {} if body["spec"].get("scaling") else _fixed(body)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata_of(body, deployment_name(metadata["name"])),
        "spec": {
            "selector": {"matchLabels": {WORKER: metadata["name"]}},
            "template": with_sidecar(template, wish, timeouts, sidecar, metadata["namespace"]),
            **replicas,
        },
    }


def service_account(body: Mapping[str, Any]) -> Manifest:
    """Return an identity that is allowed nothing."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata_of(body, deployment_name(body["metadata"]["name"])),
        "automountServiceAccountToken": False,
    }


def manifests(
    body: Mapping[str, Any], timeouts: Mapping[str, float], sidecar: Sidecar
) -> list[Manifest]:
    """Return all that a queue's workers need, in the order in which it has to be made."""
    accounts = [service_account(body)] if uses_our_account(body) else []
    return [*accounts, deployment(body, timeouts, sidecar)]


def uses_our_account(body: Mapping[str, Any]) -> bool:
    """Tell whether the workers run as the account that we make, not one that the user names."""
    ours = deployment_name(body["metadata"]["name"])
    spec = body["spec"]["worker"]["template"].get("spec") or {}
    named = spec.get("serviceAccountName") if isinstance(spec, Mapping) else None
    return (named or ours) == ours


def fingerprint(manifest: Manifest) -> str:
    """Return what differs when we want something else of an object."""
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def belongs_to(found: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """Tell whether an object of the cluster is this queue's own."""
    owners = found["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == body["metadata"]["uid"] for owner in owners)


def writes_replicas(found: Mapping[str, Any]) -> bool:
    """Tell whether the count of replicas is ours by what we applied, and would go with it."""
    return any(
        entry.get("manager") == FIELD_MANAGER
        and entry.get("operation") == "Apply"
        and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in found["metadata"].get("managedFields") or ()
    )


def _fixed(body: Mapping[str, Any]) -> dict[str, int]:
    replicas = body["spec"].get("replicas") or 0
    return {"replicas": replicas} if replicas else {}
