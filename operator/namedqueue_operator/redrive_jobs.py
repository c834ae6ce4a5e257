"""The Kubernetes Job that carries a redrive out. Pure.

It is the sidecar's image under another command, in a pod of its own that may do nothing in the
cluster. It reads the queue's manifest and account where a sidecar reads them, and the QueueRedrive
from a ConfigMap: a thousand ids are too much for an annotation or a command line. What was cut
short is taken up by the next pod; what has failed for good is not tried again.
"""

import copy
import json
from typing import Any, Final

from namedqueue.api import API_VERSION
from namedqueue_operator import FIELD_MANAGER
from namedqueue_operator.children import Manifest
from namedqueue_operator.inventory import Body, key_of
from namedqueue_operator.redrives import queue_of
from namedqueue_operator.sidecars import MOUNT, OBSERVED, Sidecar, Wish, security, volume

REDRIVE_LABEL: Final = "namedqueue.io/redrive"
"""The label of a redrive's Job and pods: the name of the QueueRedrive."""

REDRIVEN_LABEL: Final = "namedqueue.io/redriven-queue"
"""The label of the same that names the queue; the drift loop keeps what has the queue's own."""

_TRIES: Final = 10
_GRACE: Final = 30
_FOR_GOOD: Final = [2, 3]
"""Exit codes after which another try makes no sense: it cannot start, or it was aborted."""

_ASKED: Final = "/etc/namedqueue-redrive"
_FILE: Final = "redrive.json"


def job_name(redrive: Body) -> str:
    """Name the Job of a redrive, and its ConfigMap."""
    return f"nqr-{redrive['metadata']['name']}"


def config_map(redrive: Body) -> Manifest:
    """Return the QueueRedrive as its Job reads it."""
    document = {
        "apiVersion": API_VERSION,
        "kind": "QueueRedrive",
        "metadata": {key: redrive["metadata"][key] for key in ("name", "namespace", "uid")},
        "spec": redrive["spec"],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(redrive),
        "data": {_FILE: json.dumps(document, sort_keys=True, ensure_ascii=False)},
    }


def job(redrive: Body, sidecar: Sidecar) -> Manifest:
    """Return the Job that carries a redrive out."""
    metadata = _metadata(redrive)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": _TRIES,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"operator": "In", "values": _FOR_GOOD},
                    },
                    # A node that is drained is no failure of the redrive.
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                ]
            },
            "template": {
                "metadata": {"labels": metadata["labels"]},
                "spec": _pod(redrive, sidecar),
            },
        },
    }


def _pod(redrive: Body, sidecar: Sidecar) -> dict[str, Any]:
    queue = queue_of(redrive)[1]
    mounted = volume(Wish(consumed=(queue,), produced=()))
    asked = {"name": "redrive", "configMap": {"name": job_name(redrive)}}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE,
        "containers": [
            {
                "name": "redrive",
                "image": sidecar.image,
                "imagePullPolicy": "IfNotPresent",
                "args": [
                    *("redrive", f"--binding={MOUNT}/consume/{queue}"),
                    *(f"--redrive={_ASKED}/{_FILE}", "--summary=/dev/termination-log"),
                    f"--observe-port={OBSERVED}",
                ],
                "ports": [{"name": "nq-observe", "containerPort": OBSERVED, "protocol": "TCP"}],
                "resources": copy.deepcopy(dict(sidecar.resources)),
                "securityContext": security({}),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": mounted["name"], "mountPath": MOUNT, "readOnly": True},
                    {"name": asked["name"], "mountPath": _ASKED, "readOnly": True},
                ],
            }
        ],
        "volumes": [mounted, asked],
    }


def _metadata(redrive: Body) -> dict[str, Any]:
    namespace, name = key_of(redrive)
    return {
        "name": job_name(redrive),
        "namespace": namespace,
        "labels": {
            "app.kubernetes.io/managed-by": FIELD_MANAGER,
            REDRIVEN_LABEL: queue_of(redrive)[1],
            REDRIVE_LABEL: name,
        },
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "QueueRedrive",
                "name": name,
                "uid": redrive["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
