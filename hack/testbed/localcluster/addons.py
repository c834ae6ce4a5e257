"""What every cluster runs on top: CoreDNS, as a Deployment behind the Service kube-dns.

It answers for cluster.local and denies every other name at once: pods of a test bed have no way
out, and a name that hangs would look like a slow cluster.
"""

from testbed.localcluster import controlplane, images
from testbed.localcluster.blueprint import Blueprint
from testbed.progress import step

_NAMESPACE = "kube-system"
_LABELS = {"k8s-app": "kube-dns"}
_PORT = 1053
_COREFILE = f"""\
cluster.local:{_PORT} in-addr.arpa:{_PORT} ip6.arpa:{_PORT} {{
    errors
    health :8080
    ready :8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
    cache 5
    loadbalance
}}
.:{_PORT} {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def apply(plan: Blueprint) -> None:
    """Create CoreDNS; it starts when there is a node."""
    parts = (_account(), _role(), _role_binding(), _config(), _deployment(), _service(plan))
    controlplane.kubectl(plan).within(_NAMESPACE).apply(*parts)


def wait(plan: Blueprint) -> None:
    """Wait until DNS answers."""
    with step("waiting for DNS"):
        kubectl = controlplane.kubectl(plan).within(_NAMESPACE)
        kubectl("rollout", "status", "deployment/coredns", "--timeout=120s")


def _account() -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata("coredns")}


def _role() -> dict[str, object]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["services", "pods", "namespaces"],
                "verbs": ["list", "watch"],
            },
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["list", "watch"],
            },
        ],
    }


def _role_binding() -> dict[str, object]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:coredns",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": _NAMESPACE}],
    }


def _config() -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata("coredns"),
        "data": {"Corefile": _COREFILE},
    }


def _deployment() -> dict[str, object]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata("coredns"),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": _pod()},
        },
    }


def _pod() -> dict[str, object]:
    container = {
        "name": "coredns",
        "image": images.coredns_reference(),
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": _PORT, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": _PORT, "protocol": "TCP"},
        ],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "failureThreshold": 5},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }


def _service(plan: Blueprint) -> dict[str, object]:
    ports = [
        {"name": name, "port": 53, "targetPort": _PORT, "protocol": protocol}
        for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP"))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_metadata("kube-dns"), "labels": _LABELS},
        "spec": {"selector": _LABELS, "clusterIP": plan.dns_address, "ports": ports},
    }


def _metadata(name: str) -> dict[str, object]:
    return {"name": name, "namespace": _NAMESPACE}
