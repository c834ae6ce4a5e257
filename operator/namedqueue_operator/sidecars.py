"""A pod with the sidecar in it. Pure: the same for the workers we run and for pods we inject.

The sidecar is a native one, so it is up before the app and down after it, and a pod whose app is
done is done. A pod says in its annotations which queues it works off and which it sends to; each
gets a folder in the sidecar's one volume, with an account that may do that and nothing else.

What changes in a pod, besides the sidecar and its volumes:

- `terminationGracePeriodSeconds` is raised so far that a job may run for its whole time-out;
- each container without a `preStop` of its own waits there until the sidecar has drained, so that
  the app answers for as long as it is asked. Only pods that work jobs off need that.

Nothing else is touched, and putting the sidecar in twice is the same as once.
"""

import copy
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from namedqueue.topology.model import Role
from namedqueue_operator.children import (
    SHARERS,
    STORE_KEYS,
    config_map_name,
    secret_name,
    store_secret_name,
)

Pod: TypeAlias = dict[str, Any]
"""A pod or a pod template: `metadata` and `spec`."""

INJECT: Final = "namedqueue.io/inject"
CONSUME: Final = "namedqueue.io/consume"
PRODUCE: Final = "namedqueue.io/produce"
CONTAINER: Final = "namedqueue"

_VOLUME: Final = "namedqueue"
_NO_TOKEN: Final = "namedqueue-no-token"  # noqa: S105  # a volume, and an empty one
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  # a path
MOUNT: Final = "/etc/namedqueue"
_QUEUE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_KEYS: Final = ("host", "port", "vhost", "username", "password")
_TRUST: Final = ("tls", "ca.crt")
_USER: Final = 65532
OBSERVED: Final = 3551
_READABLE: Final = 0o444
_DEFAULT_GRACE: Final = 30
_MARGIN: Final = 10
"""Seconds of a pod's grace period that are not for the drain: hooks, and the end of the app."""


class Impossible(Exception):  # noqa: N818  # what it says is what is wrong
    """This pod cannot have a sidecar."""


@dataclass(frozen=True)
class Sidecar:
    """What whoever runs the operator decides about every sidecar."""

    image: str
    resources: Mapping[str, Any] = field(
        default_factory=lambda: {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": "256Mi"},
        }
    )


@dataclass(frozen=True)
class Wish:
    """The queues that a pod asks for."""

    consumed: tuple[str, ...]
    produced: tuple[str, ...]

    @property
    def queues(self) -> tuple[str, ...]:
        """Every queue once."""
        return tuple(dict.fromkeys((*self.consumed, *self.produced)))


def wish_of(metadata: Mapping[str, Any]) -> Wish:
    """Read from a pod's annotations which queues it asks for; none at all is `Impossible`."""
    annotations = metadata.get("annotations") or {}
    wish = Wish(_names(annotations.get(CONSUME)), _names(annotations.get(PRODUCE)))
    for name in wish.queues:
        if not _QUEUE.fullmatch(name):
            raise Impossible(f"{name!r} is no name of a queue; correct the pod's annotations")
    if not wish.queues:
        raise Impossible(
            f"the pod asks for a sidecar and for no queue; annotate it with {CONSUME} or {PRODUCE} "
            "and the names of queues, separated by commas"
        )
    return wish


def with_sidecar(
    pod: Mapping[str, Any],
    wish: Wish,
    timeouts: Mapping[str, float],
    sidecar: Sidecar,
    namespace: str,
) -> Pod:
    """Return the pod with the sidecar in it.

    `timeouts` has the seconds that a job of each queue may take.
    """
    changed = copy.deepcopy(dict(pod))
    spec = changed["spec"]
    if any(container.get("name") == CONTAINER for container in spec.get("containers") or ()):
        raise Impossible(f"the pod has a container named {CONTAINER}; give it another name")
    spec["terminationGracePeriodSeconds"] = _grace_period(spec, wish, timeouts)
    guarded = spec.get("automountServiceAccountToken") is not False
    ours = _container(spec, sidecar, namespace, guarded=guarded)
    spec["initContainers"] = _with_container(spec.get("initContainers") or (), ours)
    volumes = [volume(wish), *([{"name": _NO_TOKEN, "emptyDir": {}}] if guarded else [])]
    spec["volumes"] = _with_volumes(spec.get("volumes") or (), volumes)
    if wish.consumed:
        for container in spec.get("containers") or ():
            _let_wait(container)
    return changed


def _names(text: object) -> tuple[str, ...]:
    names = (name.strip() for name in str(text or "").split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def _grace_period(spec: Mapping[str, Any], wish: Wish, timeouts: Mapping[str, float]) -> int:
    asked = spec.get("terminationGracePeriodSeconds")
    longest = max((timeouts.get(queue, 0.0) for queue in wish.consumed), default=0.0)
    return max(_DEFAULT_GRACE if asked is None else asked, math.ceil(longest) + _MARGIN)


def _container(
    spec: Mapping[str, Any], sidecar: Sidecar, namespace: str, *, guarded: bool
) -> dict[str, Any]:
    mounts = [{"name": _VOLUME, "mountPath": MOUNT, "readOnly": True}]
    if guarded:
        # Kubernetes mounts the pod's token into each container that mounts nothing there.
        mounts.append({"name": _NO_TOKEN, "mountPath": _TOKEN_PATH, "readOnly": True})
    grace = max(spec["terminationGracePeriodSeconds"] - _MARGIN, 1)
    return {
        "name": CONTAINER,
        "image": sidecar.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [f"--bindings={MOUNT}", f"--namespace={namespace}", f"--grace={grace}"],
        "restartPolicy": "Always",
        "ports": [{"name": "nq-observe", "containerPort": OBSERVED, "protocol": "TCP"}],
        # Startup asks whether it lives: it is ready only when the app is, which is started later.
        "startupProbe": _probe("/healthz/live", periodSeconds=1, failureThreshold=120),
        "livenessProbe": _probe("/healthz/live", periodSeconds=10, failureThreshold=6),
        "readinessProbe": _probe("/healthz/ready", periodSeconds=2, failureThreshold=2),
        "lifecycle": {
            "preStop": {"exec": {"command": ["python", "-m", "namedqueue_sidecar.drain"]}}
        },
        "resources": copy.deepcopy(dict(sidecar.resources)),
        "securityContext": security(spec),
        "volumeMounts": mounts,
    }


def security(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Pod Security `restricted` asks of a container, in a pod of this spec."""
    pod_runs_as_root = (spec.get("securityContext") or {}).get("runAsUser") == 0
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **({"runAsUser": _USER, "runAsGroup": _USER} if pod_runs_as_root else {}),
    }


def _probe(path: str, **more: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": OBSERVED}, "timeoutSeconds": 10, **more}


def volume(wish: Wish) -> dict[str, Any]:
    """Return the volume with a folder for each queue: its manifest, an account, and the store.

    The store is there when its Secret is: a pod needs no change for it.
    """
    roles = (("consume", Role.CONSUMER, wish.consumed), ("produce", Role.PRODUCER, wish.produced))
    sources = [
        source
        for folder, role, queues in roles
        for queue in queues
        for source in _sources(f"{folder}/{queue}", queue, role)
    ]
    return {"name": _VOLUME, "projected": {"defaultMode": _READABLE, "sources": sources}}


def _sources(folder: str, queue: str, role: Role) -> Iterable[dict[str, Any]]:
    account = secret_name(queue, role)
    manifest = {"key": f"{queue}.json", "path": f"{folder}/{queue}.json"}
    yield {"configMap": {"name": config_map_name(queue), "items": [manifest]}}
    sharers = {"key": SHARERS, "path": f"{folder}/{SHARERS}"}
    yield {"configMap": {"name": config_map_name(queue), "items": [sharers], "optional": True}}
    keys = [{"key": key, "path": f"{folder}/{key}"} for key in _KEYS]
    yield {"secret": {"name": account, "items": keys}}
    trust = [{"key": key, "path": f"{folder}/{key}"} for key in _TRUST]
    yield {"secret": {"name": account, "items": trust, "optional": True}}
    if role is Role.CONSUMER:
        store = [{"key": key, "path": f"{folder}/store/{key}"} for key in STORE_KEYS]
        yield {"secret": {"name": store_secret_name(queue), "items": store, "optional": True}}


def _with_container(
    containers: Sequence[Mapping[str, Any]], ours: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Put ours first; one that is there already stays as others have added to it since."""
    there = [each for each in containers if each.get("name") == CONTAINER]
    if there and _carries(there[0], ours):
        return list(containers)
    return [ours, *(each for each in containers if each.get("name") != CONTAINER)]


def _with_volumes(
    volumes: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    reserved = (_VOLUME, _NO_TOKEN)  # no set: a user's name may be anything, even a list
    return [*(each for each in volumes if each.get("name") not in reserved), *ours]


def _let_wait(container: dict[str, Any]) -> None:
    lifecycle = container.get("lifecycle") or {}
    if not lifecycle.get("preStop"):
        wait = {"httpGet": {"path": "/wait-for-drain", "port": OBSERVED}}
        container["lifecycle"] = {**lifecycle, "preStop": wait}


def _carries(found: object, wanted: object) -> bool:
    """Tell whether something has all that is wanted of it, whatever else it has."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and _carries(found[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(
            any(_carries(each, value) for each in found) for value in wanted
        )
    return found == wanted
