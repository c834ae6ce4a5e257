"""The test bed's API server behaves like anybody's: it refuses, authorises, asks and cleans up."""

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from testbed.kubectl import Kubectl
from testbed.localcluster import pki
from testbed.processes import TestbedError, wait_until
from testbed.providers import Cluster

_WORDS = "the webhook does not want it"


def test_a_request_without_credentials_is_refused(control_plane: Cluster) -> None:
    config = json.loads(control_plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(config["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    for path in ("/api", "/version", "/readyz"):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(config["server"] + path, context=context)  # noqa: S310
        with refusal.value as answer:
            assert answer.code == 401


def test_the_server_certificate_comes_from_the_cluster_authority(control_plane: Cluster) -> None:
    config = json.loads(control_plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(config["server"], context=ssl.create_default_context())  # noqa: S310


def test_an_account_may_do_what_a_role_grants_and_nothing_else(
    kubectl: Kubectl, namespace: str
) -> None:
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    kubectl(
        "create",
        "rolebinding",
        "reader",
        "--role=reader",
        f"--serviceaccount={namespace}:reader",
    )

    def may(*action: str) -> bool:
        who = f"--as=system:serviceaccount:{namespace}:reader"
        return kubectl.succeeds("auth", "can-i", *action, who)

    wait_until(lambda: may("list", "configmaps"), what="the role is in force")
    assert not may("delete", "configmaps")
    assert not may("list", "secrets")
    assert not may("list", "configmaps", "--namespace=kube-system")


def test_a_token_of_a_service_account_is_accepted_as_that_account(
    kubectl: Kubectl, namespace: str
) -> None:
    token = kubectl("create", "token", "default").strip()
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    answer = json.loads(kubectl("create", "--filename=-", "--output=json", document=review))
    assert answer["status"]["authenticated"]
    assert answer["status"]["user"]["username"] == f"system:serviceaccount:{namespace}:default"


def test_a_validating_webhook_on_this_machine_refuses(
    kubectl: Kubectl, namespace: str, refuser: "Refuser"
) -> None:
    def in_force() -> bool:
        try:
            kubectl("create", "configmap", "unwanted", "--dry-run=server")
        except TestbedError as refusal:
            return _WORDS in str(refusal)
        return False

    kubectl.apply(_webhook(namespace, refuser))
    try:
        wait_until(in_force, what="the webhook is in force")
        refusal = kubectl.refusal(_config_map("unwanted"))
        assert _WORDS in refusal
        assert refuser.asked_about(namespace)
    finally:
        kubectl("delete", "validatingwebhookconfiguration", namespace)
    wait_until(
        lambda: kubectl.succeeds("create", "configmap", "wanted", "--dry-run=server"),
        what="the webhook is gone",
    )


def test_aggregated_discovery_lists_every_group(kubectl: Kubectl) -> None:
    groups = {group["name"] for group in json.loads(kubectl("get", "--raw", "/apis"))["groups"]}
    assert {"apps", "batch", "rbac.authorization.k8s.io", "apiregistration.k8s.io"} <= groups
    waiting = ("wait", "apiservices", "--all", "--for=condition=Available", "--timeout=5s")
    # One that is new, of a CRD that another test makes, says nothing of itself for a moment.
    wait_until(lambda: kubectl.succeeds(*waiting), what="every group is served")


def test_a_deleted_namespace_takes_its_objects_along(kubectl: Kubectl, namespace: str) -> None:
    doomed = f"{namespace}-doomed"
    kubectl("create", "namespace", doomed)
    kubectl.within(doomed)("create", "configmap", "inside")
    kubectl("delete", "namespace", doomed, "--timeout=180s")
    with pytest.raises(TestbedError, match="NotFound"):
        kubectl.get("namespace", doomed)


def test_controllers_turn_a_deployment_into_pods(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=none", "--replicas=2")
    wait_until(
        lambda: len(kubectl("get", "pods", "--output=name").split()) == 2,
        what="two pods of the deployment exist",
    )


def test_restricted_pod_security_refuses_a_privileged_pod(kubectl: Kubectl, namespace: str) -> None:
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", namespace, enforce)
    container = {"name": "main", "image": "none", "securityContext": {"privileged": True}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged"},
        "spec": {"containers": [container]},
    }
    assert 'violates PodSecurity "restricted' in kubectl.refusal(pod)


def test_the_audit_log_says_who_did_what(
    control_plane: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    if control_plane.audit_log is None:
        pytest.skip(f"the audit log of provider {control_plane.provider} is out of reach")
    kubectl("create", "configmap", "traced")
    log = control_plane.audit_log

    def traced() -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in log.read_text().splitlines() if namespace in line]
        return [each for each in entries if each["objectRef"].get("resource") == "configmaps"]

    wait_until(lambda: any(each["verb"] == "create" for each in traced()), what="it is in the log")
    created = next(each for each in traced() if each["user"]["username"] == "kubernetes-admin")
    assert created["responseStatus"]["code"] == 201


class Refuser(HTTPServer):
    """A webhook server with TLS that refuses all it is asked about, and remembers it."""

    def __init__(self, address: str, authority: pki.Authority) -> None:
        super().__init__((address, 0), _Handler)
        pair = authority.sign("webhook", "webhook", hosts=[address])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"https://{address}:{self.server_port}/"
        self.authority = base64.b64encode(authority.certificate.read_bytes()).decode()
        self.requests: list[dict[str, Any]] = []

    def asked_about(self, namespace: str) -> bool:
        return any(request["namespace"] == namespace for request in self.requests)


class _Handler(BaseHTTPRequestHandler):
    server: Refuser

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(review["request"])
        review["response"] = {
            "uid": review["request"]["uid"],
            "allowed": False,
            "status": {"message": _WORDS},
        }
        answer = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def refuser(control_plane: Cluster, tmp_path: Path) -> Iterator[Refuser]:
    if control_plane.host_address is None:
        pytest.skip(f"provider {control_plane.provider} cannot reach this machine")
    authority = pki.make_authority(tmp_path, "webhook-ca")
    with Refuser(control_plane.host_address, authority) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _webhook(namespace: str, server: Refuser) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "refuser.namedqueue.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {"url": server.url, "caBundle": server.authority},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
            }
        ],
    }


def _config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
