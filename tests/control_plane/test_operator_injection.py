"""The API server asks our webhook about each labelled pod; the webhook is really called."""

import base64
import json
import os
import socket
import ssl
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from control_plane.operating import manifest
from e2e import pods
from fixtures.kubernetes import ControlPlane
from testbed import processes
from testbed.helm import Helm
from testbed.kubectl import Kubectl
from testbed.ports import free_ports
from testbed.processes import TestbedError, wait_until

_HOW_TO = Path(__file__).parents[2] / "docs/how-to/workers.md"
_QUEUES = ("orders", "payments", "invoices")
_LIFETIME = 45
_SIDECAR = "registry.example/namedqueue/sidecar:test"


@dataclass(frozen=True)
class Injected:
    """A namespace whose labelled pods two operators are asked about, by turns of their ports."""

    kubectl: Kubectl
    ports: tuple[int, int]
    state: Path

    @property
    def configuration(self) -> dict[str, Any]:
        return self.kubectl.get("mutatingwebhookconfiguration", self.kubectl.namespace)

    @property
    def bundle(self) -> str:
        return base64.b64decode(
            self.configuration["webhooks"][0]["clientConfig"].get("caBundle", "")
        ).decode()

    def call(self, port: int) -> None:
        """Have the API server ask the operator at a port."""
        url = {"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": _url(port)}
        self.kubectl(
            *("patch", "mutatingwebhookconfiguration", self.kubectl.namespace, "--type=json"),
            *("-p", json.dumps([url])),
        )

    def create(self, pod: dict[str, Any], *options: str) -> dict[str, Any]:
        made = self.kubectl("create", "--filename=-", "--output=json", *options, document=pod)
        answer: dict[str, Any] = json.loads(made)
        return answer

    def refusal(self, pod: dict[str, Any]) -> str:
        with pytest.raises(TestbedError) as refused:
            self.create(pod, "--dry-run=server")
        return str(refused.value)

    def serial(self, port: int) -> int:
        """Return the certificate of an operator, which has to be one that is trusted now."""
        trusting = ssl.create_default_context(cadata=self.bundle)
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            return int(str((secured.getpeercert() or {})["serialNumber"]), 16)

    def works(self) -> bool:
        try:
            self.create(_pod(), "--dry-run=server")
        except TestbedError:
            return False
        return True


def _url(port: int) -> str:
    return f"https://127.0.0.1:{port}/inject"


def _pod(consume: str = "orders", *, label: str = "true", **spec: Any) -> dict[str, Any]:
    pod = pods.pod(f"pod-{uuid.uuid4().hex[:8]}", {"containers": [_APP], **spec})
    pod["metadata"]["labels"] = {"namedqueue.io/inject": label}
    pod["metadata"]["annotations"] = {"namedqueue.io/consume": consume} if consume else {}
    return pod


_APP = pods.container("app", "registry.example/app:1")


@pytest.fixture(scope="module")
def injected(
    control_plane: ControlPlane,
    crds: None,  # noqa: ARG001  # the CRDs come first
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Injected]:
    """Run two operators that have nothing to do but to answer for the pods of one namespace."""
    state = tmp_path_factory.mktemp("injection")
    administrator = Kubectl(control_plane.kubectl, control_plane.kubeconfig)
    namespace = f"inject-{uuid.uuid4().hex[:8]}"
    administrator("create", "namespace", namespace)
    kubectl = administrator.within(namespace)
    ports = free_ports(2)
    registration = _registration(Helm(control_plane.helm), namespace, ports[0])
    kubectl.apply(registration, *(manifest(queue) for queue in _QUEUES))
    env = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)}
    for name, port in zip(("first", "second"), ports, strict=True):
        processes.start(name, _command(namespace, port), state, env=env)
    running = Injected(kubectl, (ports[0], ports[1]), state)
    wait_until(running.works, what="the webhook answers", deadline=120)
    yield running
    kubectl("delete", "mutatingwebhookconfiguration", namespace)
    for name in ("first", "second"):
        processes.stop(name, state)
    administrator("delete", "namespace", namespace, "--wait=false")


def _command(namespace: str, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "namedqueue_operator", "--port=0"),
        *(f"--namespace={namespace}-other", f"--lease={namespace}/operator"),
        *(f"--sidecar-image={_SIDECAR}", f"--webhook-port={port}"),
        *(f"--webhook-configuration={namespace}", f"--webhook-secret={namespace}/webhook"),
        f"--webhook-certificate-lifetime={_LIFETIME}",
    ]


def _registration(helm: Helm, namespace: str, port: int) -> dict[str, Any]:
    """Return what the chart installs for one namespace, for a server that is no Service."""
    objects = helm.render({"watchNamespaces": [namespace]})
    configuration = next(each for each in objects if each["kind"] == "MutatingWebhookConfiguration")
    configuration["metadata"]["name"] = namespace
    configuration["webhooks"][0]["clientConfig"] = {"url": _url(port)}
    return configuration


def test_a_labelled_pod_gets_the_sidecar_and_no_other_does(injected: Injected) -> None:
    made = injected.create(_pod("orders, payments"))
    [sidecar] = made["spec"]["initContainers"]
    assert (sidecar["name"], sidecar["image"]) == ("namedqueue", _SIDECAR)
    sources = json.dumps(made["spec"]["volumes"])
    assert "nq-orders-consumer" in sources
    assert "nq-payments-consumer" in sources
    plain = injected.create(_pod("nothing-like-it", label="false"))
    assert "initContainers" not in plain["spec"]


def test_the_how_tos_metadata_is_all_that_a_pod_needs(injected: Injected) -> None:
    second = _HOW_TO.read_text().split("```yaml\n")[2].split("```")[0]
    pod = _pod()
    pod["metadata"] = {"name": pod["metadata"]["name"], **yaml.safe_load(second)["metadata"]}
    made = injected.create(pod, "--dry-run=server")
    accounts = json.dumps(made["spec"]["volumes"])
    for account in ("nq-orders-consumer", "nq-payments-producer", "nq-invoices-producer"):
        assert account in accounts


def test_the_pods_token_is_mounted_in_the_app_and_not_in_the_sidecar(injected: Injected) -> None:
    made = injected.create(_pod(), "--dry-run=server")
    place = "/var/run/secrets/kubernetes.io/serviceaccount"

    def volume(container: dict[str, Any]) -> str:
        [found] = [each["name"] for each in container["volumeMounts"] if each["mountPath"] == place]
        return str(found)

    assert volume(made["spec"]["containers"][0]).startswith("kube-api-access-")
    assert volume(made["spec"]["initContainers"][0]) == "namedqueue-no-token"


def test_a_pod_that_asks_for_nothing_or_for_what_is_not_there_is_refused_with_a_sentence(
    injected: Injected,
) -> None:
    assert "asks for a sidecar and for no queue; annotate it with" in injected.refusal(_pod(""))
    refusal = injected.refusal(_pod("orders,orderz"))
    where = f"there is no such NamedQueue in namespace {injected.kubectl.namespace}"
    assert f"the pod asks for the queue orderz, and {where}; create it" in refusal
    named = _pod(containers=[_APP | {"name": "namedqueue"}])
    assert "the pod has a container named namedqueue; give it another name" in injected.refusal(
        named
    )


def test_a_restricted_pod_stays_one(injected: Injected) -> None:
    namespace = injected.kubectl.namespace
    level = "pod-security.kubernetes.io/enforce"
    injected.kubectl("label", "namespace", namespace, f"{level}=restricted")
    try:
        made = injected.create(_pod(), "--dry-run=server")
    finally:
        injected.kubectl("label", "namespace", namespace, f"{level}-")
    assert made["spec"]["initContainers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_a_dry_run_makes_nothing_and_a_pod_made_again_is_the_same(injected: Injected) -> None:
    dry = injected.create(_pod(), "--dry-run=server")
    assert not injected.kubectl("get", "pod", dry["metadata"]["name"], "--ignore-not-found")
    kept = {key: dry["metadata"][key] for key in ("name", "labels", "annotations")}
    again = injected.create({**dry, "metadata": kept, "status": {}}, "--dry-run=server")
    assert again["spec"] == dry["spec"]


def test_the_replica_that_stands_by_answers_too(injected: Injected) -> None:
    logs = [injected.state / f"{name}.log" for name in ("first", "second")]
    wait_until(
        lambda: sum('"message": "leading"' in log.read_text() for log in logs) == 1,
        what="one of them leads",
    )
    for port in injected.ports:
        injected.call(port)
        wait_until(injected.works, what=f"port {port} answers")


def test_certificates_change_in_time_and_no_pod_is_refused_meanwhile(injected: Injected) -> None:
    serials: dict[int, set[int]] = {port: set() for port in injected.ports}
    began, made = time.monotonic(), 0
    while any(len(seen) < 3 for seen in serials.values()):
        assert time.monotonic() - began < 5 * _LIFETIME, f"certificates do not change: {serials}"
        for port, seen in serials.items():
            seen.add(injected.serial(port))
        injected.create(_pod(), "--dry-run=server")
        made += 1
    assert made > 10
    assert injected.bundle.count("BEGIN CERTIFICATE") <= 3


def test_a_lost_secret_and_a_damaged_bundle_are_made_anew(injected: Injected) -> None:
    injected.kubectl("delete", "secret", "webhook")
    bundle = {"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}
    injected.kubectl(
        *("patch", "mutatingwebhookconfiguration", injected.kubectl.namespace, "--type=json"),
        *("-p", json.dumps([bundle])),
    )
    wait_until(lambda: injected.works() and bool(injected.bundle), what="it works")
    secret = injected.kubectl.get("secret", "webhook")
    authority = base64.b64decode(secret["data"]["ca.crt"]).decode()
    wait_until(lambda: authority in injected.bundle, what="the bundle is in line")


def test_without_the_operator_only_labelled_pods_have_to_wait(injected: Injected) -> None:
    [gone] = free_ports(1)
    injected.call(gone)
    try:
        wait_until(lambda: not injected.works(), what="it is away")
        assert "connection refused" in injected.refusal(_pod())
        assert injected.create(_pod(label="false"), "--dry-run=server")
    finally:
        injected.call(injected.ports[0])
