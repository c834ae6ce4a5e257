"""Pods for the tests of the cluster itself, as the `restricted` Pod Security level wants them."""

from collections.abc import Mapping, Sequence
from typing import Any

_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(name: str, image: str, command: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """Describe a container that may do as little as possible."""
    described = {"name": name, "image": image, "imagePullPolicy": "IfNotPresent"}
    arguments = {"command": list(command)} if command else {}
    return {**described, **arguments, "securityContext": _SECURITY, **more}


def shell(name: str, image: str, script: str, **more: Any) -> dict[str, Any]:
    """Describe a container that runs a script."""
    return container(name, image, ["sh", "-ec", script], **more)


def pod(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": dict(spec)}


def deployment(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": dict(spec)},
        },
    }


def service(name: str, port: int, target: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port, "targetPort": target}]},
    }
