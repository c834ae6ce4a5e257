"""Every value that is no switch shows where it should. The switches are in `test_templates`."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import yaml

from chart.test_templates import SCHEMA
from testbed.helm import CHART, Helm

_EVERYTHING = {
    "watchNamespaces": ["shop"],
    **{each: {"enabled": True} for each in ("serviceMonitor", "podMonitor", "alerts", "dashboard")},
}
_SWITCHES = {"watchNamespaces", "watchAllNamespaces", "crds.keep", "rbac.aggregate", "global"}
_VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
_DIGEST = f"sha256:{'b' * 64}"
_POD = "spec.template.spec"
_CONTAINER = f"{_POD}.containers.0"
_TOLERATION = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}

Objects = list[dict[str, Any]]


class Case(NamedTuple):
    """A value, the kind of object that it shows in and where, and what is to be seen there."""

    value: Any
    kind: str
    place: str
    shown: Any

    def seen(self, objects: Objects) -> Any:
        """Return what there is in the place."""
        found: Any = next(each for each in objects if each["kind"] == self.kind)
        for key in self.place.split("."):
            found = found[int(key) if isinstance(found, list) else key]
        return found


def _as_it_is(value: Any, kind: str, place: str) -> Case:
    return Case(value, kind, place, value)


def _argument(name: str, value: Any, shown: str | None = None) -> Case:
    text = f"--{name}={value}" if shown is None else shown
    return Case(value, "Deployment", f"{_CONTAINER}.args", text)


def _threshold(value: Any, number: int, text: str) -> Case:
    return Case(value, "PrometheusRule", f"spec.groups.0.rules.{number}.expr", text)


def _monitor(kind: str, endpoints: str, name: str) -> dict[str, Case]:
    return {
        f"{name}.interval": _as_it_is("7s", kind, f"spec.{endpoints}.0.interval"),
        f"{name}.labels": Case({"team": "x"}, kind, "metadata.labels.team", "x"),
    }


CASES = {
    "broker.secretName": _argument("broker", "rabbit", "--broker=/etc/namedqueue/broker"),
    "broker.tenancy": _argument("tenancy", "shared"),
    "broker.mqttBridge": _argument("mqtt-bridge", value=True, shown="--mqtt-bridge"),
    "store.secretName": _argument("store", "postgres", "--store=/etc/namedqueue/store"),
    "operator.image.repository": Case(
        "a/b", "Deployment", f"{_CONTAINER}.image", f"a/b:{_VERSION}"
    ),
    "operator.image.tag": Case("t", "Deployment", f"{_CONTAINER}.image", "namedqueue/operator:t"),
    "operator.image.digest": Case(
        _DIGEST, "Deployment", f"{_CONTAINER}.image", f"namedqueue/operator@{_DIGEST}"
    ),
    "operator.image.pullPolicy": _as_it_is("Never", "Deployment", f"{_CONTAINER}.imagePullPolicy"),
    "operator.replicas": _as_it_is(5, "Deployment", "spec.replicas"),
    "operator.resources.requests": _as_it_is(
        {"cpu": "1", "memory": "1Gi"}, "Deployment", f"{_CONTAINER}.resources.requests"
    ),
    "operator.resources.limits": _as_it_is(
        {"memory": "2Gi"}, "Deployment", f"{_CONTAINER}.resources.limits"
    ),
    "operator.pollInterval": _argument("poll-interval", 2.5),
    "operator.driftInterval": _argument("drift-interval", 99),
    "operator.logLevel": _argument("log-level", "debug"),
    "operator.nodeSelector": _as_it_is({"disk": "ssd"}, "Deployment", f"{_POD}.nodeSelector"),
    "operator.tolerations": _as_it_is([_TOLERATION], "Deployment", f"{_POD}.tolerations"),
    "operator.priorityClassName": _as_it_is("high", "Deployment", f"{_POD}.priorityClassName"),
    "sidecar.image.repository": _argument(
        "sidecar-image", "a/b", f"--sidecar-image=a/b:{_VERSION}"
    ),
    "sidecar.image.tag": _argument("", "t", "--sidecar-image=namedqueue/sidecar:t"),
    "sidecar.image.digest": _argument("", _DIGEST, f"--sidecar-image=namedqueue/sidecar@{_DIGEST}"),
    "sidecar.resources.requests": _argument(
        "",
        {"cpu": "1", "memory": "1Gi"},
        '--sidecar-resources={"limits":{"memory":"256Mi"},"requests":{"cpu":"1","memory":"1Gi"}}',
    ),
    "sidecar.resources.limits": _argument(
        "",
        {"memory": "2Gi"},
        '--sidecar-resources={"limits":{"memory":"2Gi"},"requests":{"cpu":"50m","memory":"96Mi"}}',
    ),
    "imagePullSecrets": _as_it_is([{"name": "pull"}], "Deployment", f"{_POD}.imagePullSecrets"),
    "networkPolicy.apiServerPorts": Case(
        [8443], "NetworkPolicy", "spec.egress.1.ports", {"port": 8443}
    ),
    "networkPolicy.managementPorts": Case(
        [9999], "NetworkPolicy", "spec.egress.1.ports", {"port": 9999}
    ),
    **_monitor("ServiceMonitor", "endpoints", "serviceMonitor"),
    **_monitor("PodMonitor", "podMetricsEndpoints", "podMonitor"),
    "alerts.labels": Case({"team": "x"}, "PrometheusRule", "metadata.labels.team", "x"),
    "alerts.runbooks": Case(
        "https://wiki.example",
        "PrometheusRule",
        "spec.groups.0.rules.0.annotations.runbook_url",
        "https://wiki.example/NamedQueueDeadLettersGrowing.md",
    ),
    "alerts.thresholds.deadLetters": _threshold(17, 0, "> 17"),
    "alerts.thresholds.backlogObjectiveSeconds": _threshold(77, 1, "> 77"),
    "alerts.thresholds.ladderStillFor": _threshold("7h", 2, "[7h]"),
    "alerts.thresholds.retriedShare": _threshold(0.7, 6, "> 0.7"),
    "dashboard.labels": Case({"team": "x"}, "ConfigMap", "metadata.labels.team", "x"),
}


def _leaves(schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for name, below in schema["properties"].items():
        if "properties" in below:
            yield from _leaves(below, f"{at}{name}.")
        else:
            yield f"{at}{name}"


def _with(path: str, value: Any) -> dict[str, Any]:
    *parts, last = path.split(".")
    values: dict[str, Any] = {**_EVERYTHING}
    below = values
    for part in parts:
        below[part] = {**below.get(part, {})}
        below = below[part]
    below[last] = value
    return values


@pytest.fixture(scope="module")
def plain(helm: Helm) -> Objects:
    """Render without the values in question."""
    return helm.render(_EVERYTHING)


def _is_shown(case: Case, objects: Objects) -> bool:
    """Tell whether a place has what it should, or has it among others, or in its text."""
    try:
        seen = case.seen(objects)
    except (KeyError, StopIteration):
        return False
    if isinstance(seen, str):
        return str(case.shown) in seen
    return bool(seen == case.shown) or (isinstance(seen, list) and case.shown in seen)


@pytest.mark.parametrize("path", CASES)
def test_a_value_shows_where_it_should(helm: Helm, plain: Objects, path: str) -> None:
    case = CASES[path]
    assert not _is_shown(case, plain), "nothing is proven by what shows anyway"
    assert _is_shown(case, helm.render(_with(path, case.value)))


def test_every_value_has_a_case() -> None:
    leaves = {leaf for leaf in _leaves(SCHEMA) if not leaf.endswith(".enabled")}
    assert leaves - _SWITCHES == set(CASES)
