"""Each value does what it says, and nothing else is a value."""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from namedqueue_operator.__main__ import _parser
from testbed import images
from testbed.helm import CHART, Helm
from testbed.processes import run

SHOP = {"watchNamespaces": ["shop"]}
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
_DIGEST = f"sha256:{'a' * 64}"
_MONITORED = {"serviceMonitor": {"enabled": True}}


def _kinds(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def _operator(objects: list[dict[str, Any]]) -> dict[str, Any]:
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def _arguments(objects: list[dict[str, Any]]) -> list[str]:
    arguments: list[str] = _operator(objects)["containers"][0]["args"]
    return arguments


def test_helm_finds_nothing_wrong(helm: Helm) -> None:
    options = ["--strict", "--set=watchAllNamespaces=true", "--kube-version=1.34"]
    said = run([helm.program, "lint", CHART, *options], what="helm lint")
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize(
    ("off", "gone"),
    [
        ({"crds": {"enabled": False}}, {"CustomResourceDefinition"}),
        ({"rbac": {"aggregate": False}}, {"ClusterRole"}),
        ({"webhook": {"enabled": False}}, {"MutatingWebhookConfiguration", "Service"}),
        ({"networkPolicy": {"enabled": False}}, {"NetworkPolicy"}),
        ({"podDisruptionBudget": {"enabled": False}}, {"PodDisruptionBudget"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_on_can_be_turned_off(helm: Helm, off: dict[str, Any], gone: set[str]) -> None:
    with_it, without = _kinds(helm.render(SHOP)), _kinds(helm.render({**SHOP, **off}))
    assert without < with_it
    assert {kind for kind, _ in with_it - without} == gone


@pytest.mark.parametrize(
    ("on", "come"),
    [
        (_MONITORED, {"ServiceMonitor"}),
        ({"podMonitor": {"enabled": True}}, {"PodMonitor"}),
        ({**_MONITORED, "alerts": {"enabled": True}}, {"ServiceMonitor", "PrometheusRule"}),
        ({"dashboard": {"enabled": True}}, {"ConfigMap"}),
    ],
    ids=["serviceMonitor", "podMonitor", "alerts", "dashboard"],
)
def test_what_is_off_can_be_turned_on(helm: Helm, on: dict[str, Any], come: set[str]) -> None:
    without, with_it = _kinds(helm.render(SHOP)), _kinds(helm.render({**SHOP, **on}))
    assert without < with_it
    assert {kind for kind, _ in with_it - without} == come


def test_crds_outlive_the_release_unless_told_otherwise(helm: Helm) -> None:
    def policies(values: Mapping[str, Any]) -> list[object]:
        found = [each for each in helm.render(values) if each["kind"] == "CustomResourceDefinition"]
        assert len(found) == 2
        return [(each["metadata"].get("annotations") or {}).get(policy) for each in found]

    policy = "helm.sh/resource-policy"
    assert policies(SHOP) == ["keep"] * 2
    assert policies({**SHOP, "crds": {"keep": False}}) == [None] * 2


def test_the_operator_understands_every_argument(helm: Helm) -> None:
    everything = {
        "watchNamespaces": ["shop", "bank"],
        "broker": {"secretName": "rabbit", "tenancy": "shared", "mqttBridge": True},
        "store": {"secretName": "postgres"},
        "operator": {"pollInterval": 2.5, "driftInterval": 60, "logLevel": "debug"},
        "sidecar": {"image": {"repository": "a/b", "digest": _DIGEST}},
    }
    objects = helm.render(everything, release="r", namespace="home")
    parsed = _parser().parse_args(_arguments(objects))
    assert parsed.namespace == ["shop", "bank"]
    assert _mounted(objects) == {str(parsed.broker): "rabbit", str(parsed.store): "postgres"}
    assert (parsed.tenancy, parsed.mqtt_bridge) == ("shared", True)
    assert (parsed.poll_interval, parsed.drift_interval) == (2.5, 60)
    assert parsed.log_level == "debug"
    assert parsed.sidecar_image == f"a/b@{_DIGEST}"
    assert parsed.sidecar_resources == DEFAULTS["sidecar"]["resources"]
    assert parsed.lease == ("home", "r-namedqueue")
    assert parsed.webhook_secret == ("home", "r-namedqueue-webhook")
    assert parsed.webhook_configuration == "r-namedqueue"


def _mounted(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Return the Secrets that the operator's container has, by their folders."""
    pod = _operator(objects)
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]
    return {each["mountPath"]: secrets[each["name"]] for each in mounts}


def test_all_namespaces_are_served_only_by_name(helm: Helm) -> None:
    objects = helm.render({"watchAllNamespaces": True})
    assert not any(word.startswith("--namespace") for word in _arguments(objects))
    assert ("ClusterRoleBinding", "namedqueue-served") in _kinds(objects)
    assert ("ClusterRoleBinding", "namedqueue-served") not in _kinds(helm.render(SHOP))


def test_the_webhook_is_asked_about_served_namespaces_only(helm: Helm) -> None:
    def selector(values: Mapping[str, Any]) -> object:
        [found] = [
            each for each in helm.render(values) if each["kind"] == "MutatingWebhookConfiguration"
        ]
        return found["webhooks"][0].get("namespaceSelector")

    name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop"]}
    assert selector(SHOP) == {"matchExpressions": [name]}
    assert selector({"watchAllNamespaces": True}) is None


def test_services_lead_to_ports_that_the_operator_has(helm: Helm) -> None:
    objects = helm.render(SHOP)
    ports = {port["name"] for port in _operator(objects)["containers"][0]["ports"]}
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    services = [each for each in objects if each["kind"] == "Service"]
    assert len(services) == 2
    for service in services:
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_the_service_monitor_selects_the_metrics_service_alone(helm: Helm) -> None:
    objects = helm.render({**SHOP, "serviceMonitor": {"enabled": True, "labels": {"team": "x"}}})
    [monitor] = [each for each in objects if each["kind"] == "ServiceMonitor"]
    assert monitor["metadata"]["labels"]["team"] == "x"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    selected = [
        each["metadata"]["name"]
        for each in objects
        if each["kind"] == "Service" and wanted <= each["metadata"]["labels"].items()
    ]
    assert selected == ["namedqueue-metrics"]
    assert monitor["spec"]["endpoints"] == [
        {"port": "metrics", "interval": "30s", "honorLabels": True}
    ]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "set watchNamespaces to a list of them, or watchAllNamespaces=true"),
        ({**SHOP, "watchAllNamespaces": True}, "keep the one that you mean"),
        (
            {**SHOP, "operator": {"image": {"tag": "1", "digest": _DIGEST}}},
            "operator.image has both a tag and a digest; leave one of them empty",
        ),
        (
            {**SHOP, "sidecar": {"image": {"tag": "1", "digest": _DIGEST}}},
            "sidecar.image has both a tag and a digest; leave one of them empty",
        ),
        ({**SHOP, "alerts": {"enabled": True}}, "alerts.enabled needs serviceMonitor.enabled"),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_a_sentence(
    helm: Helm, values: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.refusal(values)


def _parts(schema: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Walk the parts of the values that have names of their own."""
    if "properties" in schema:
        yield at
    for name, below in schema.get("properties", {}).items():
        yield from _parts(below, (*at, name))


@pytest.mark.parametrize("at", list(_parts(SCHEMA)), ids=".".join)
def test_a_typo_is_refused_wherever_it_is(helm: Helm, at: tuple[str, ...]) -> None:
    values: dict[str, Any] = copy.deepcopy({**DEFAULTS, **SHOP})
    below = values
    for name in at:
        below = below[name]
    below["tpyo"] = 1
    assert "additional properties 'tpyo' not allowed" in helm.refusal(values)


def test_every_value_that_the_schema_knows_has_a_default() -> None:
    """The other way round is Helm's: it holds the defaults against the schema."""

    def missing(schema: Mapping[str, Any], defaults: object, at: str = "") -> Iterator[str]:
        for name, below in schema.get("properties", {}).items():
            if not isinstance(defaults, dict) or name not in defaults:
                yield f"{at}{name}"
            else:
                yield from missing(below, defaults[name], f"{at}{name}.")

    assert list(missing(SCHEMA, DEFAULTS)) == ["global"]


def test_the_example_with_rabbitmq_cluster_operator_renders(helm: Helm) -> None:
    example = CHART / "examples/values-rabbitmq-cluster-operator.yaml"
    volumes = _operator(helm.render(yaml.safe_load(example.read_text())))["volumes"]
    assert volumes == [{"name": "broker", "secret": {"secretName": "rabbit-default-user"}}]


def test_the_example_with_the_images_of_this_tree_names_what_is_built(helm: Helm) -> None:
    example = yaml.safe_load((CHART / "examples/values-this-tree.yaml").read_text())
    objects = helm.render({**SHOP, **example})
    built = {target: f"localhost/namedqueue/{target}:{images.TAG}" for target in images.TARGETS}
    assert _operator(objects)["containers"][0]["image"] == built["operator"]
    assert f"--sidecar-image={built['sidecar']}" in _arguments(objects)
