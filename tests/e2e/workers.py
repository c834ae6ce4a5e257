"""Pods with the sidecar in them, as the operator will make them and as a person may by hand.

The sidecar is a native one: up before the app, down after it. Its startup asks whether it lives
and not whether it is ready, for it is ready only when the app answers, and the app is not started
before. Its preStop drains. The app's preStop waits for that, so the app goes on answering until
the last job in flight has ended.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e import pods
from testbed.images import Image

API = "http://127.0.0.1:3550"
OBSERVED = 3551
_INSIDE = Path(__file__).parent / "inside"
_WAIT = f"import urllib.request as r; r.urlopen('{API}/wait-for-drain').read()"


def sidecar(image: Image, namespace: str, *options: str) -> dict[str, Any]:
    """Describe the sidecar of a pod that mounts `volumes()`."""
    folders = ["--queues=/etc/namedqueue/queues", "--broker=/etc/namedqueue/broker"]
    return pods.container(
        "namedqueue",
        image.name,
        args=[*folders, f"--namespace={namespace}", *options],
        restartPolicy="Always",
        startupProbe=_probe("/healthz/live", failureThreshold=120),
        readinessProbe=_probe("/healthz/ready", failureThreshold=1),
        lifecycle={"preStop": {"exec": {"command": ["python", "-m", "namedqueue_sidecar.drain"]}}},
        volumeMounts=[
            {"name": name, "mountPath": f"/etc/namedqueue/{name}", "readOnly": True}
            for name in ("queues", "broker")
        ],
    )


def app(image: Image, director: str, *command: str) -> dict[str, Any]:
    """Describe an app that does what the test says, or a program of `inside` with arguments."""
    return pods.container(
        "app",
        image.name,
        ["python3", *(command or ["/inside/app.py"])],
        env=[{"name": "DIRECTOR", "value": director}],
        lifecycle={"preStop": {"exec": {"command": ["python3", "-c", _WAIT]}}},
        volumeMounts=[{"name": "inside", "mountPath": "/inside", "readOnly": True}],
    )


def spec(sidecar: Mapping[str, Any], app: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Put both into a pod that holds no token of the cluster."""
    return {
        "automountServiceAccountToken": False,
        "initContainers": [sidecar],
        "containers": [app],
        "volumes": [
            {"name": "queues", "configMap": {"name": "queues"}},
            {"name": "broker", "secret": {"secretName": "broker"}},
            {"name": "inside", "configMap": {"name": "inside"}},
        ],
        **more,
    }


def job(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", **spec}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template},
    }


def config_map(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}


def secret(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": dict(data),
    }


def inside() -> dict[str, Any]:
    """Describe the files that `app` runs."""
    return config_map("inside", {file.name: file.read_text() for file in _INSIDE.glob("*.py")})


def _probe(path: str, **more: Any) -> dict[str, Any]:
    get = {"path": path, "port": OBSERVED}
    return {"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 10, **more}
