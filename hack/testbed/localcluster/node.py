"""A node: a set of namespaces with a containerd, a kubelet and a kube-proxy of its own.

The whole node hangs on one process. Killing that one ends every container on it, and drops its
mounts and interfaces, as pulling the plug of a machine would; what remains is its disk, a folder
in the cluster's folder, from which it can start again. The mount points, empty folders in this
machine's /var/lib, are left in place: other nodes may be using them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed import processes
from testbed.leases import exclusively
from testbed.localcluster import binaries, cgroups, images, network, pki
from testbed.localcluster.blueprint import Blueprint, NodePlan
from testbed.localcluster.node_init import CONTAINERD_SOCKET
from testbed.processes import Started, TestbedError, find, start, wait_until

_ENDPOINT = f"unix://{CONTAINERD_SOCKET}"
_LOGS = Path("/var/log")
_DISKS = (Path("/var/lib/containerd"), Path("/var/lib/kubelet"), Path("/var/lib/cni"))


def begin(plan: Blueprint, node: NodePlan) -> None:
    """Start a node; return when its containerd takes images."""
    folder = _folder(plan, node)
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    for mount_point, own in _own_folders(folder).items():
        own.mkdir(parents=True, exist_ok=True)
        mount_point.mkdir(exist_ok=True)
    cgroups.make(node.cgroup)
    _write_configuration(plan, node)
    started = start(
        node.name,
        [
            *("unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork"),
            *("--mount-proc", "--kill-child", sys.executable, "-m"),
            *("testbed.localcluster.node_init", folder / "init.json"),
        ],
        plan.folder,
        env={**os.environ, "PYTHONPATH": str(binaries.HACK)},
    )
    wait_until(
        lambda: init_pid(plan, node) is not None,
        what=f"{node.name} has its namespaces",
        watching=started,
    )
    network.connect(plan, node, started.pid)
    wait_until(
        lambda: _ctr_answers(plan, node), what=f"{node.name} runs containerd", watching=started
    )


def kill(plan: Blueprint, node: NodePlan) -> None:
    """End a node at once with all that runs on it; its disk stays."""
    processes.kill(node.name, plan.folder)
    network.disconnect(node)
    cgroups.remove(node.cgroup)


def running(plan: Blueprint, node: NodePlan) -> bool:
    return init_pid(plan, node) is not None


def init_pid(plan: Blueprint, node: NodePlan) -> int | None:
    """Return the pid, on this machine, of the node's first process."""
    started = find(node.name, plan.folder)
    return None if started is None else _child(started)


def load_image(plan: Blueprint, node: NodePlan, archive: Path) -> None:
    """Import the images of an archive into the node's containerd."""
    # Two imports of one image at a time fail: each finds that the other made it already.
    with exclusively(f"import-{plan.tag}-{node.name}"), archive.open("rb") as content:
        done = subprocess.run(
            [*_ctr(plan, node), "images", "import", "-"],
            check=False,
            stdin=content,
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise TestbedError(f"{node.name} did not take {archive}: {done.stderr.strip()}")


def _ctr(plan: Blueprint, node: NodePlan) -> list[str]:
    pid = init_pid(plan, node)
    if pid is None:
        raise TestbedError(f"{node.name} of cluster {plan.name} does not run")
    address = f"/proc/{pid}/root{CONTAINERD_SOCKET}"
    return ["ctr", "--address", address, "--namespace", "k8s.io"]


def _ctr_answers(plan: Blueprint, node: NodePlan) -> bool:
    command = [*_ctr(plan, node), "version"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _child(started: Started) -> int | None:
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    try:
        pids = children.read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(pids[0]) if pids else None


def _folder(plan: Blueprint, node: NodePlan) -> Path:
    return plan.folder / node.name


def _own_folders(folder: Path) -> dict[Path, Path]:
    """Return, for each place where a node's programs write, the folder it really is."""
    disks = {place: folder / "disk" / place.name for place in _DISKS}
    return {_LOGS: folder / "log", **disks}


def _write_configuration(plan: Blueprint, node: NodePlan) -> None:
    folder = _folder(plan, node)
    authority = pki.open_authority(plan.pki, "ca")
    client = authority.sign(f"{node.name}-client", f"system:node:{node.name}", group="system:nodes")
    authority.sign(f"{node.name}-server", node.name, hosts=[node.name, node.address])
    pki.write_kubeconfig(
        folder / "kubelet.kubeconfig",
        cluster=plan.name,
        server=plan.server,
        authority=authority.certificate,
        pair=client,
    )
    (folder / "containerd.toml").write_text(_containerd(folder))
    _write_json(folder / "cni" / "10-pods.conflist", _cni(node))
    _write_json(folder / "kubelet.json", _kubelet(plan, node))
    _write_json(folder / "kube-proxy.json", _kube_proxy(plan, node))
    _write_json(folder / "init.json", _init(plan, node))


def _init(plan: Blueprint, node: NodePlan) -> dict[str, object]:
    folder = _folder(plan, node)
    kubelet = [
        f"--config={folder / 'kubelet.json'}",
        f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
    ]
    return {
        "name": node.name,
        "address": node.address,
        "routes": {each.pod_range: each.address for each in plan.nodes if each != node},
        "mounts": {str(point): str(own) for point, own in _own_folders(folder).items()},
        "environment": {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
        },
        "services": {
            "containerd": ["containerd", f"--config={folder / 'containerd.toml'}"],
            "kubelet": [str(binaries.path("kubelet")), *kubelet],
            "kube-proxy": [
                str(binaries.path("kube-proxy")),
                f"--config={folder / 'kube-proxy.json'}",
                f"--hostname-override={node.name}",
            ],
        },
    }


def _containerd(folder: Path) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{CONTAINERD_SOCKET}"

[{cri}]
sandbox_image = "{images.PAUSE}"
# Without CAP_SYS_RESOURCE, as in some virtual machines, no sandbox could start otherwise.
restrict_oom_score_adj = true

[{cri}.cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{folder / "cni"}"

[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def _cni(node: NodePlan) -> dict[str, object]:
    """Route to each pod instead of bridging: then Services work without br_netfilter."""
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": node.pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _kubelet(plan: Blueprint, node: NodePlan) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plan.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(plan.pki / f"{node.name}-server.crt"),
        "tlsPrivateKeyFile": str(plan.pki / f"{node.name}-server.key"),
        "clusterDNS": [plan.dns_address],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "containerRuntimeEndpoint": _ENDPOINT,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        # The disk is the whole machine's: neither pods nor images are thrown out because of it.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # Tests wait for these, and there is one node's worth of pods at most.
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "serializeImagePulls": False,
        "maxPods": 200,
    }


def _kube_proxy(plan: Blueprint, node: NodePlan) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": node.address,
        "clientConnection": {"kubeconfig": str(plan.folder / "kube-proxy.kubeconfig")},
        "clusterCIDR": plan.pod_range,
        "mode": "iptables",
        "nodePortAddresses": ["primary"],
        "iptables": {"minSyncPeriod": "100ms"},
        "conntrack": {
            "maxPerCore": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def _write_json(file: Path, content: Mapping[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2))
