"""The test bed's cluster behaves like anybody's: pods, names, Services, logs, exec, webhooks."""

import base64
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e import pods
from testbed.kubectl import Kubectl
from testbed.localcluster import images, pki
from testbed.processes import TestbedError, run, wait_until
from testbed.providers import Cluster

pytestmark = pytest.mark.usefixtures("cluster")

_PAGE = "written by the sidecar"
_WEBHOOK_IMAGE = "testbed.namedqueue.io/refuser:1"


@pytest.fixture
def web(kubectl: Kubectl, namespace: str, busybox: str) -> str:
    """Run a web server whose page a native sidecar writes, in a restricted namespace."""
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    shared = {"volumeMounts": [{"name": "pages", "mountPath": "/pages"}]}
    sidecar = pods.shell(
        "sidecar",
        busybox,
        f"echo '{_PAGE}' > /pages/index.html; echo sidecar is ready; exec sleep 3600",
        restartPolicy="Always",
        startupProbe={"exec": {"command": ["test", "-f", "/pages/index.html"]}, "periodSeconds": 1},
        **shared,
    )
    server = pods.shell(
        "server",
        busybox,
        "cat /pages/index.html; exec httpd -f -v -p 8080 -h /pages",
        readinessProbe={"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        **shared,
    )
    spec = {
        "initContainers": [sidecar],
        "containers": [server],
        "volumes": [{"name": "pages", "emptyDir": {}}],
        "terminationGracePeriodSeconds": 1,
    }
    kubectl.apply(pods.deployment("web", spec), pods.service("web", 80, 8080))
    kubectl("rollout", "status", "deployment/web", "--timeout=120s")
    inside = ("exec", "deployment/web", "--container=server", "--")
    wait_until(
        lambda: kubectl.succeeds(*inside, "timeout", "5", "wget", "-qO-", "http://web"),
        what="the Service leads to the pod",
    )
    return "web"


def test_a_pod_reaches_a_service_by_name(
    kubectl: Kubectl, web: str, namespace: str, busybox: str
) -> None:
    for host in (web, f"{web}.{namespace}", f"{web}.{namespace}.svc.cluster.local"):
        assert _output_of(kubectl, busybox, f"timeout 10 wget -qO- http://{host}/") == _PAGE


def test_a_pod_reaches_the_service_that_it_is_behind(kubectl: Kubectl, web: str) -> None:
    inside = kubectl("exec", f"deployment/{web}", "--", "wget", "-qO-", f"http://{web}")
    assert inside.strip() == _PAGE


def test_a_name_outside_the_cluster_is_denied_at_once(
    cluster: Cluster, kubectl: Kubectl, busybox: str
) -> None:
    if cluster.provider != "local":
        pytest.skip("only the local provider is sure to have no way out")
    answer = _output_of(kubectl, busybox, "nslookup -type=a somewhere.example. 2>&1 || true")
    assert "NXDOMAIN" in answer


def test_a_sidecar_starts_before_the_main_container_and_its_logs_are_seen(
    kubectl: Kubectl, web: str
) -> None:
    assert kubectl("logs", f"deployment/{web}", "--container=sidecar").strip() == "sidecar is ready"
    assert kubectl("logs", f"deployment/{web}", "--container=server").startswith(_PAGE)


def test_exec_runs_a_command_in_a_container(kubectl: Kubectl, web: str) -> None:
    assert kubectl("exec", f"deployment/{web}", "--", "cat", "/pages/index.html").strip() == _PAGE
    with pytest.raises(TestbedError, match="exit 7"):
        kubectl("exec", f"deployment/{web}", "--", "sh", "-c", "exit 7")


def test_a_forwarded_port_reaches_the_pod(kubectl: Kubectl, web: str) -> None:
    with _forwarded(kubectl, f"deployment/{web}", 8080) as address:
        assert _fetch(address) == _PAGE


def test_this_machine_reaches_pods_and_services(
    cluster: Cluster, kubectl: Kubectl, web: str
) -> None:
    if cluster.provider != "local":
        pytest.skip("only the local provider routes pods and Services to this machine")
    assert _fetch(f"http://{kubectl.get('service', web)['spec']['clusterIP']}") == _PAGE
    pod = kubectl("get", "pods", "--output=jsonpath={.items[0].status.podIP}")
    assert _fetch(f"http://{pod}:8080") == _PAGE


def test_a_deleted_deployment_takes_its_pods_along(kubectl: Kubectl, web: str) -> None:
    kubectl("delete", "deployment", web)
    wait_until(
        lambda: not kubectl("get", "pods", "--output=name").strip(),
        what="the pods are gone",
        deadline=60,
    )


def test_a_pod_that_finishes_does_not_wait_for_its_sidecar(kubectl: Kubectl, busybox: str) -> None:
    sidecar = pods.shell("sidecar", busybox, "exec sleep 3600", restartPolicy="Always")
    spec = {
        "initContainers": [sidecar],
        "containers": [pods.shell("main", busybox, "echo done")],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
    }
    kubectl.apply(pods.pod("finishing", spec))
    kubectl("wait", "pod/finishing", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")


def test_a_pod_may_call_the_api_with_its_own_account(kubectl: Kubectl, busybox: str) -> None:
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    address = "https://kubernetes.default.svc/apis"
    script = f"""
        timeout 10 wget -qO- --header "Authorization: Bearer $(cat {token})" {address}
        timeout 10 wget -qO- {address} 2>&1 || true
    """
    answer = _output_of(kubectl, busybox, script)
    assert "APIGroupList" in answer
    assert "401 Unauthorized" in answer


@pytest.mark.usefixtures("web")
def test_restricted_pod_security_refuses_a_privileged_pod(kubectl: Kubectl, busybox: str) -> None:
    privileged = pods.container("main", busybox, ["true"])
    privileged["securityContext"] = {"privileged": True}
    refusal = kubectl.refusal(pods.pod("privileged", {"containers": [privileged]}))
    assert 'violates PodSecurity "restricted' in refusal


def test_the_api_server_asks_a_webhook_in_a_pod(
    cluster: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    cluster.load_image(_refuser_image(tmp_path))
    authority = pki.make_authority(tmp_path, "ca")
    pair = authority.sign("refuser", "refuser", hosts=[f"refuser.{namespace}.svc"])
    files = (f"--cert={pair.certificate}", f"--key={pair.key}")
    kubectl("create", "secret", "tls", "refuser", *files)
    server = pods.container(
        "refuser",
        _WEBHOOK_IMAGE,
        volumeMounts=[{"name": "tls", "mountPath": "/tls", "readOnly": True}],
        readinessProbe={"tcpSocket": {"port": 8443}, "periodSeconds": 1},
    )
    volumes = [{"name": "tls", "secret": {"secretName": "refuser"}}]
    spec = {"containers": [server], "volumes": volumes}
    kubectl.apply(pods.deployment("refuser", spec), pods.service("refuser", 443, 8443))
    kubectl("rollout", "status", "deployment/refuser", "--timeout=120s")

    def in_force() -> bool:
        try:
            kubectl("create", "configmap", "unwanted", "--dry-run=server")
        except TestbedError as refusal:
            return "the pod does not want it" in str(refusal)
        return False

    kubectl.apply(_webhook(namespace, authority))
    try:
        wait_until(in_force, what="the webhook is in force")
        unwanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unwanted"}}
        assert "the pod does not want it" in kubectl.refusal(unwanted)
        assert "refused" in kubectl("logs", "deployment/refuser")
    finally:
        kubectl("delete", "validatingwebhookconfiguration", namespace)


def _output_of(kubectl: Kubectl, busybox: str, script: str) -> str:
    """Run a script in a pod of its own; return what it printed."""
    spec = {
        "containers": [pods.shell("main", busybox, script)],
        "restartPolicy": "Never",
    }
    kubectl.apply(pods.pod("client", spec))
    try:
        wait_until(
            lambda: kubectl.get("pod", "client")["status"]["phase"] in ("Succeeded", "Failed"),
            what="the client pod is done",
            deadline=120,
        )
        return kubectl("logs", "client").strip()
    finally:
        kubectl("delete", "pod", "client", "--grace-period=0", "--force")


@contextmanager
def _forwarded(kubectl: Kubectl, target: str, port: int) -> Iterator[str]:
    command = kubectl.command("port-forward", target, f":{port}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            local = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert local, f"kubectl port-forward said: {line!r}"
            yield f"http://127.0.0.1:{local.group(1)}"
        finally:
            process.terminate()


def _fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310
        return str(answer.read().decode().strip())


def _refuser_image(folder: Path) -> Path:
    program = folder / "refuser"
    source = Path(__file__).with_name("refuser")
    build = ["go", "build", "-trimpath", "-o", str(program), "."]
    static = {**os.environ, "CGO_ENABLED": "0"}
    run(build, what="building the webhook", cwd=source, env=static)
    archive = folder / "refuser.tar"
    images.write(
        archive, _WEBHOOK_IMAGE, {"refuser": program.read_bytes()}, entrypoint=["/refuser"]
    )
    return archive


def _webhook(namespace: str, authority: pki.Authority) -> dict[str, Any]:
    service = {"name": "refuser", "namespace": namespace, "path": "/refuse"}
    bundle = base64.b64encode(authority.certificate.read_bytes()).decode()
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    webhook = {
        "name": "refuser.namedqueue.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": service, "caBundle": bundle},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [rule],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [webhook],
    }
