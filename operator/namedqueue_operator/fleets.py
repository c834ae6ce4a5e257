"""The worker Deployments that exist, as the watch last told.

Following five hundred queues must not ask for five hundred Deployments at each poll; and which of
all Deployments are somebody's workers only the queues know, so all in the watched namespaces are
kept, four figures each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from namedqueue_operator.children import deployment_name
from namedqueue_operator.inventory import Body, Key, key_of


@dataclass(frozen=True)
class Fleet:
    """A Deployment in four figures: how many replicas are asked for, exist, and are ready."""

    asked: int
    existing: int = 0
    ready: int = 0
    selector: str = ""
    version: int = field(default=0, compare=False)


class Fleets:
    """What exists, newest version known."""

    def __init__(self) -> None:
        self._known: dict[Key, Fleet] = {}

    def put(self, deployment: Body) -> None:
        """Learn of a Deployment, unless it is from before we asked for another count.

        The watch tells of one change after the other, and late where each has to wait for a lock.
        """
        fleet, known = fleet_in(deployment), self._known.get(key_of(deployment))
        if known is None or fleet.version >= known.version:
            self._known[key_of(deployment)] = fleet

    def drop(self, key: Key) -> None:
        """Forget a Deployment that is gone."""
        self._known.pop(key, None)

    def get(self, key: Key) -> Fleet | None:
        """Return a Deployment's figures, or None if there is no such Deployment."""
        return self._known.get(key)

    def asked(self, key: Key, replicas: int, version: int) -> None:
        """Note what we asked for, and since which version, before the watch tells."""
        if key in self._known:
            self._known[key] = replace(self._known[key], asked=replicas, version=version)


def fleet_of(body: Body) -> Key | None:
    """Return which Deployment does a queue's work, if it has one."""
    worker = (body.get("spec") or {}).get("worker") or {}
    namespace, name = key_of(body)
    if worker.get("template"):
        return namespace, deployment_name(name)
    reference = worker.get("deploymentRef")
    return (namespace, reference["name"]) if reference else None


def fleet_in(deployment: Mapping[str, Any]) -> Fleet:
    """Return the figures of a Deployment."""
    spec, status = deployment["spec"], deployment.get("status") or {}
    return Fleet(
        asked=spec.get("replicas", 1),
        existing=status.get("replicas", 0),
        ready=status.get("readyReplicas", 0),
        selector=_written(spec["selector"]),
        version=int(deployment["metadata"].get("resourceVersion", 0)),
    )


def _written(selector: Mapping[str, Any]) -> str:
    """Write a label selector in the form that a query takes."""
    equal = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    sets = [_requirement(each) for each in selector.get("matchExpressions") or ()]
    return ",".join(sorted(equal) + sets)


def _requirement(expression: Mapping[str, Any]) -> str:
    key = expression["key"]
    match expression["operator"]:
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case operator:
            return f"{key} {operator.lower()} ({','.join(expression['values'])})"
