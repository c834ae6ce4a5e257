"""The control plane: etcd, the API server, the controllers and the scheduler.

They are processes of this machine, each with its log in the cluster's folder. The API server takes
no anonymous request, authorises by RBAC and for nodes by the node authoriser, admits as upstream
does by default (Pod Security, webhooks, NodeRestriction too), serves aggregated APIs, and writes
an audit log of who asked for what.
"""

import json
from pathlib import Path

from testbed.kubectl import Kubectl
from testbed.localcluster import binaries, pki
from testbed.localcluster.blueprint import Blueprint
from testbed.ports import accepts
from testbed.processes import Started, find, start, stop, wait_until
from testbed.progress import step

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
_ISSUER = "https://kubernetes.default.svc.cluster.local"


def make_credentials(plan: Blueprint) -> None:
    """Make every certificate, key and kubeconfig that the control plane and its user need."""
    cluster = pki.make_authority(plan.pki, "ca")
    etcd = pki.make_authority(plan.pki, "etcd-ca")
    front_proxy = pki.make_authority(plan.pki, "front-proxy-ca")
    pki.make_signing_key(plan.pki, "service-accounts")
    etcd.sign("etcd", "etcd", hosts=["127.0.0.1"])
    etcd.sign("etcd-client", "kube-apiserver")
    front_proxy.sign("front-proxy", "front-proxy-client")
    cluster.sign("kubelet-client", "kube-apiserver-kubelet-client", group="system:masters")
    cluster.sign("apiserver", "kube-apiserver", hosts=_server_names(plan))
    for user in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        _write_kubeconfig(plan, plan.folder / f"{user}.kubeconfig", cluster, f"system:{user}", None)
    _write_kubeconfig(plan, plan.kubeconfig, cluster, "kubernetes-admin", "system:masters")


def begin(plan: Blueprint) -> Started:
    """Start etcd and the API server; return the latter without waiting for it."""
    etcd = start("etcd", _etcd(plan), plan.folder)
    wait_until(lambda: accepts(plan.etcd_port), what="etcd listens", deadline=60, watching=etcd)
    (plan.folder / "audit-policy.json").write_text(json.dumps(_AUDIT_POLICY))
    return start("kube-apiserver", _apiserver(plan), plan.folder)


def wait_for_api(plan: Blueprint, apiserver: Started) -> None:
    """Wait until the API server says it is ready."""
    with step("waiting for the API server"):
        wait_until(
            lambda: kubectl(plan).succeeds("get", "--raw", "/readyz"),
            what="the API server is ready",
            deadline=120,
            watching=apiserver,
        )


def begin_controllers(plan: Blueprint) -> Started:
    """Start the controllers, and the scheduler if there are nodes to schedule on."""
    if plan.node_count:
        start("kube-scheduler", _scheduler(plan), plan.folder)
    return start("kube-controller-manager", _controller_manager(plan), plan.folder)


def wait_for_controllers(plan: Blueprint, controllers: Started) -> None:
    """Wait until controllers act: the default namespace has its account and its CA."""
    with step("waiting for the controllers"):
        wait_until(
            lambda: kubectl(plan).succeeds(
                "get", "serviceaccount/default", "configmap/kube-root-ca.crt"
            ),
            what="the controllers made the default service account",
            deadline=120,
            watching=controllers,
        )


def end(plan: Blueprint) -> None:
    """Stop the whole control plane, the one who stores last."""
    for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
        # Nothing is lost by a short grace: the data is about to be thrown away.
        stop(name, plan.folder, grace=3)


def components(plan: Blueprint) -> dict[str, Started | None]:
    """Return each process that should run, and what runs."""
    names = ["etcd", "kube-apiserver", "kube-controller-manager"]
    if plan.node_count:
        names.append("kube-scheduler")
    return {name: find(name, plan.folder) for name in names}


def kubectl(plan: Blueprint) -> Kubectl:
    """Return kubectl as the cluster's administrator."""
    return Kubectl(binaries.path("kubectl"), plan.kubeconfig)


def _server_names(plan: Blueprint) -> list[str]:
    service = "kubernetes.default.svc"
    names = ["kubernetes", "kubernetes.default", service, f"{service}.cluster.local"]
    addresses = {"127.0.0.1", plan.host_address, plan.api_service_address}
    return ["localhost", *names, *sorted(addresses)]


def _write_kubeconfig(
    plan: Blueprint, file: Path, authority: pki.Authority, user: str, group: str | None
) -> None:
    pair = authority.sign(file.name, user, group=group)
    pki.write_kubeconfig(
        file,
        cluster=plan.name,
        server=plan.server,
        authority=authority.certificate,
        pair=pair,
    )


def _etcd(plan: Blueprint) -> list[str]:
    client, peer = (f"https://127.0.0.1:{port}" for port in (plan.etcd_port, plan.etcd_peer_port))
    trust = plan.pki / "etcd-ca.crt"
    server = [f"cert-file={plan.pki / 'etcd.crt'}", f"key-file={plan.pki / 'etcd.key'}"]
    return [
        "etcd",
        "--name=only",
        f"--data-dir={plan.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=only={peer}",
        f"--trusted-ca-file={trust}",
        "--client-cert-auth",
        f"--peer-trusted-ca-file={trust}",
        "--peer-client-cert-auth",
        *(f"--{option}" for option in server),
        *(f"--peer-{option}" for option in server),
        # A test bed's data need not survive a power cut.
        "--unsafe-no-fsync",
        "--logger=zap",
        "--log-level=warn",
    ]


def _apiserver(plan: Blueprint) -> list[str | Path]:
    keys = plan.pki
    # A loopback address is no valid endpoint, so without nodes the Service gets none.
    reconciler = "lease" if plan.node_count else "none"
    return [
        binaries.path("kube-apiserver"),
        f"--bind-address={plan.host_address}",
        f"--advertise-address={plan.host_address}",
        f"--secure-port={plan.api_port}",
        f"--endpoint-reconciler-type={reconciler}",
        f"--etcd-servers=https://127.0.0.1:{plan.etcd_port}",
        f"--etcd-cafile={keys / 'etcd-ca.crt'}",
        f"--etcd-certfile={keys / 'etcd-client.crt'}",
        f"--etcd-keyfile={keys / 'etcd-client.key'}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--client-ca-file={keys / 'ca.crt'}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={plan.service_range}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={keys / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={keys / 'service-accounts.key'}",
        f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={keys / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={keys / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys / 'front-proxy.crt'}",
        f"--proxy-client-key-file={keys / 'front-proxy.key'}",
        # This machine runs no kube-proxy: aggregated APIs and webhooks are reached pod by pod.
        "--enable-aggregator-routing=true",
        f"--audit-policy-file={plan.folder / 'audit-policy.json'}",
        f"--audit-log-path={plan.audit_log}",
        "--audit-log-maxsize=100",
        "--audit-log-maxbackup=2",
        "--shutdown-delay-duration=0s",
        "--profiling=false",
    ]


def _controller_manager(plan: Blueprint) -> list[str | Path]:
    keys = plan.pki
    config = plan.folder / "kube-controller-manager.kubeconfig"
    return [
        binaries.path("kube-controller-manager"),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--root-ca-file={keys / 'ca.crt'}",
        f"--service-account-private-key-file={keys / 'service-accounts.key'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}",
        f"--cluster-signing-key-file={keys / 'ca.key'}",
        # Debian's etcd is too old for streamed lists: each watch would begin with an error.
        "--feature-gates=WatchListClient=false",
        # A lost node is noticed in 20 s instead of 50: it is what tests wait for.
        "--node-monitor-grace-period=20s",
        "--node-monitor-period=2s",
        "--kube-api-qps=100",
        "--kube-api-burst=200",
        "--profiling=false",
    ]


def _scheduler(plan: Blueprint) -> list[str | Path]:
    config = plan.folder / "kube-scheduler.kubeconfig"
    return [
        binaries.path("kube-scheduler"),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--secure-port=0",
        "--leader-elect=false",
        "--profiling=false",
    ]
