"""Clusters made by kind, on machines where Docker can pull and run images."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

from testbed.kubectl import Kubectl
from testbed.localcluster import binaries
from testbed.paths import state_dir
from testbed.processes import TestbedError, run
from testbed.progress import say, step


class KindCluster:
    """A cluster whose nodes are Docker containers."""

    provider = "kind"
    audit_log: Path | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.kubeconfig = _folder(name) / "kubeconfig"

    @property
    def kubectl(self) -> Path:
        return binaries.path("kubectl")

    @property
    def helm(self) -> Path:
        return binaries.path("helm")

    @property
    def node_names(self) -> list[str]:
        return sorted(_kind("get", "nodes", "--name", self.name).split())

    @property
    def host_address(self) -> str | None:
        """Where pods reach a server of this machine: the gateway of kind's network."""
        gateways = '{{range .IPAM.Config}}{{.Gateway}}{{"\\n"}}{{end}}'
        found = _docker("network", "inspect", "kind", "--format", gateways).split()
        return next((address for address in found if ":" not in address), None)

    def load_image(self, archive: Path) -> None:
        """Give every node the images of a docker-archive or OCI archive."""
        _kind("load", "image-archive", str(archive), "--name", self.name)

    def stop_node(self, name: str) -> None:
        """End a node at once, as a power cut would."""
        _docker("kill", name)

    def start_node(self, name: str) -> None:
        """Start a stopped node again; return when it is Ready."""
        _docker("start", name)
        kubectl = Kubectl(self.kubectl, self.kubeconfig)
        kubectl("wait", f"node/{name}", "--for=condition=Ready", "--timeout=120s")

    def stop(self) -> None:
        """Delete the cluster and forget it."""
        _kind("delete", "cluster", "--name", self.name, "--kubeconfig", str(self.kubeconfig))
        shutil.rmtree(_folder(self.name))

    def logs(self) -> dict[str, Path]:
        """Export the logs of all nodes and return them."""
        exported = _folder(self.name) / "logs"
        _kind("export", "logs", str(exported), "--name", self.name)
        return {str(file.relative_to(exported)): file for file in sorted(exported.rglob("*.log"))}

    def broken_parts(self) -> list[str]:
        """Return the nodes that should run and do not."""
        if self.name not in _kind("get", "clusters").split():
            return ["the kind cluster"]
        running = "{{.State.Running}}"
        return [
            node
            for node in self.node_names
            if _docker("inspect", "--format", running, node).strip() != "true"
        ]

    def describe(self) -> list[str]:
        """Say what runs where, a line each."""
        nodes = [f"node        {name}" for name in self.node_names]
        return [f"kubeconfig  {self.kubeconfig}", *nodes]


def start(name: str, *, nodes: int) -> KindCluster:
    """Create a cluster of this name, or return the one that runs."""
    running = find(name)
    if running is not None and not running.broken_parts():
        if len(running.node_names) != nodes:
            raise TestbedError(
                f"cluster {name} runs with {len(running.node_names)} node(s) and you asked for "
                f"{nodes}: run `hack/cluster down --name {name}` first"
            )
        say(f"cluster {name} is already up; nothing to do")
        return running
    if running is not None:
        running.stop()
    cluster = KindCluster(name)
    cluster.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    roles = ["control-plane", *["worker"] * (nodes - 1)]
    config = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n"
    config += "".join(f"- role: {role}\n" for role in roles)
    create = ["create", "cluster", "--name", name, "--config=-", "--wait=180s"]
    with step(f"creating kind cluster {name}"):
        _kind(*create, "--kubeconfig", str(cluster.kubeconfig), document=config)
    say(f"cluster {name} is up: nodes in Docker, made by kind")
    return cluster


def find(name: str) -> KindCluster | None:
    """Return the cluster of this name if one was begun here."""
    return KindCluster(name) if _folder(name).exists() else None


@cache
def usable() -> bool:
    """Tell whether Docker really can pull and run an image here; tried once per process."""
    if shutil.which("docker") is None or not _succeeds("docker", "info"):
        return False
    with step("trying Docker"):
        return _succeeds("docker", "run", "--rm", "hello-world")


def _folder(name: str) -> Path:
    return state_dir("kind") / name


def _kind(*arguments: str, document: str | None = None) -> str:
    found = shutil.which("kind") or binaries.path("kind")
    return run([found, *arguments], what=f"kind {' '.join(arguments[:2])}", stdin=document)


def _docker(*arguments: str) -> str:
    return run(["docker", *arguments], what=f"docker {arguments[0]}")


def _succeeds(*command: str) -> bool:
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
