"""A real API server takes all that the chart renders, and grants what it says and no more."""

import copy
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures.kubernetes import ControlPlane
from testbed import monitoring
from testbed.helm import Helm
from testbed.kubectl import Kubectl
from testbed.processes import TestbedError, run, wait_until

_ROLES = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_FOREIGN = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


def _try(kubectl: Kubectl, *objects: dict[str, Any]) -> None:
    """Have the API server check objects as if they were applied."""
    every = {"apiVersion": "v1", "kind": "List", "items": objects}
    options = ["--server-side", "--force-conflicts", "--dry-run=server", "--filename=-"]
    kubectl("apply", *options, document=every)


@pytest.mark.parametrize("everywhere", [False, True], ids=["some namespaces", "all namespaces"])
def test_the_api_server_takes_every_object(helm: Helm, kubectl: Kubectl, everywhere: bool) -> None:
    namespaces = {"watchAllNamespaces": True} if everywhere else {"watchNamespaces": ["default"]}
    values = {**namespaces, "broker": {"secretName": "rabbit"}, "dashboard": {"enabled": True}}
    objects = helm.render(values, namespace=kubectl.namespace)
    assert not {each["kind"] for each in objects} & set(_FOREIGN)
    account = [each for each in objects if each["kind"] == "ServiceAccount"]
    kubectl.apply(*account)  # or no pod could be of it
    _try(kubectl.within("default"), *_here(objects, "default"))
    _try(kubectl, *_here(objects, kubectl.namespace))


@pytest.fixture
def monitored(control_plane: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """Let the API server know the kinds of the Prometheus operator."""
    administrator = Kubectl(control_plane.kubectl, control_plane.kubeconfig)
    crds = _written(monitoring.crds(), tmp_path)
    administrator.establish(crds)
    yield
    administrator("delete", "--wait=false", f"--filename={crds}")


@pytest.mark.usefixtures("monitored")
def test_the_kinds_of_the_prometheus_operator_take_monitors_and_rules(
    helm: Helm, kubectl: Kubectl
) -> None:
    chosen = {"labels": {"team": "shop"}, "enabled": True}
    values = {"serviceMonitor": chosen, "podMonitor": chosen, "alerts": chosen}
    for namespaces in ({"watchNamespaces": ["shop"]}, {"watchAllNamespaces": True}):
        objects = helm.render({**values, **namespaces}, namespace=kubectl.namespace)
        ours = [each for each in objects if each["kind"] in _FOREIGN]
        assert {each["kind"] for each in ours} == set(_FOREIGN)
        _try(kubectl, *ours)
        for each in ours:
            careless = copy.deepcopy(each)
            careless["spec"]["tpyo"] = 1
            with pytest.raises(TestbedError, match='unknown field "tpyo"'):
                _try(kubectl, careless)


def _here(objects: list[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """Return the objects of a namespace; those of none go with the `default` one."""
    return [each for each in objects if each["metadata"].get("namespace", "default") == namespace]


def test_a_restricted_namespace_takes_the_pods(helm: Helm, kubectl: Kubectl) -> None:
    level = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", kubectl.namespace, level)
    objects = helm.render({"watchNamespaces": ["default"]}, namespace=kubectl.namespace)
    kubectl.apply(*(each for each in objects if each["kind"] == "ServiceAccount"))
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    [test] = [each for each in objects if each["kind"] == "Pod"]
    operator = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
    operator["metadata"] = {**operator["metadata"], "name": "operator"}
    for pod in (operator, test):
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
        _try(kubectl, pod)
        careless = copy.deepcopy(pod)
        del careless["spec"]["containers"][0]["securityContext"]
        with pytest.raises(TestbedError, match='violates PodSecurity "restricted'):
            _try(kubectl, careless)


def test_the_notes_name_two_commands_that_work(
    helm: Helm, control_plane: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    values = {"watchNamespaces": [kubectl.namespace], "crds": {"enabled": False}}
    notes = helm.notes(values, kubeconfig=control_plane.kubeconfig, namespace=kubectl.namespace)
    assert f"helm test namedqueue --namespace {kubectl.namespace}" in notes
    crds = [each for each in helm.render({"watchAllNamespaces": True}) if _is_crd(each)]
    kubectl.establish(_written(crds, tmp_path))
    copied = notes[notes.index(f"kubectl apply --namespace {kubectl.namespace}") :]
    path = f"{control_plane.kubectl.parent}{os.pathsep}{os.environ['PATH']}"
    known = {**os.environ, "PATH": path, "KUBECONFIG": str(control_plane.kubeconfig)}
    script = f"{copied}\necho it goes on\n"
    said = run(["sh", "-eu"], what="the notes' command", env=known, stdin=script)
    assert said.endswith("it goes on\n"), "the document ends where it should"
    assert kubectl.get("nq", "orders")["spec"]["type"] == "durable"


def _is_crd(each: dict[str, Any]) -> bool:
    return bool(each["kind"] == "CustomResourceDefinition")


def _written(items: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    path = folder / "objects.json"
    path.write_text(json.dumps(_list(items)))
    return path


def _list(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.fixture
def granted(helm: Helm, kubectl: Kubectl) -> Iterator[str]:
    """Grant what the chart grants for the test's namespace; give the operator's name."""
    release = f"namedqueue-{uuid.uuid4().hex[:8]}"
    values = {"watchNamespaces": [kubectl.namespace]}
    home = kubectl.within("default")
    objects = helm.render(values, release=release, namespace="default")
    roles = [each for each in objects if each["kind"] in _ROLES]
    for namespace in ("default", kubectl.namespace):
        kubectl.within(namespace).apply(*_here(roles, namespace))
    yield f"system:serviceaccount:default:{release}"
    home("delete", "--filename=-", "--wait=false", document=_list(_here(roles, "default")))


def test_the_operator_may_do_its_work_where_it_serves_and_nothing_elsewhere(
    granted: str, kubectl: Kubectl
) -> None:
    def may(verb: str, what: str, *, where: str = kubectl.namespace) -> bool:
        return kubectl.within(where).succeeds("auth", "can-i", verb, what, f"--as={granted}")

    def comes_to(verb: str, what: str, *, where: str = kubectl.namespace) -> None:
        """Wait until it may: the API server learns of roles a moment after it took them."""
        wait_until(lambda: may(verb, what, where=where), what=f"it may {verb} {what}")

    comes_to("patch", "namedqueues.namedqueue.io")
    comes_to("create", "secrets")
    comes_to("get", "secrets/anything")
    webhook = f"secrets/{granted.rpartition(':')[2]}-webhook"
    comes_to("update", webhook, where="default")
    assert not may("delete", "secrets")
    assert not may("create", "pods/exec")
    assert not may("get", "pods/log")
    assert not may("create", "rolebindings.rbac.authorization.k8s.io")
    assert not may("get", "secrets/anything", where="default")
    assert not may("get", "secrets/anything", where="kube-system")
    assert not may("patch", "namedqueues.namedqueue.io", where="kube-system")


@pytest.mark.parametrize("everywhere", [False, True], ids=["some namespaces", "all namespaces"])
def test_no_role_has_a_wildcard_or_leads_to_more(helm: Helm, everywhere: bool) -> None:
    values = {"watchAllNamespaces": True} if everywhere else {"watchNamespaces": ["shop"]}
    roles = [each for each in helm.render(values) if each["kind"] in ("Role", "ClusterRole")]
    for rule in (rule for role in roles for rule in role["rules"]):
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert "*" not in json.dumps(rule)
        assert not words & {"pods/exec", "escalate", "bind", "impersonate", "tokenreviews"}
