"""What one cluster consists of: its names, addresses, ports and folders, all decided up front.

A blueprint is written down before the first process starts. So whatever becomes of a start,
`down` knows every name it may have to clean up.

A cluster with nodes has one 10.x.0.0/16 of its own, on a bridge of its own:

    10.x.0.1           this machine, where the API server listens
    10.x.0.11, .12 …   the nodes
    10.x.65.0/24, …    the pods of node 1, and so on
    10.x.128.0/20      Services; .10 is DNS

A control plane without nodes lives on loopback and needs none of this.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.paths import state_dir
from testbed.processes import TestbedError

MAX_NODES = 9
_FILE = "blueprint.json"


@dataclass(frozen=True)
class NodePlan:
    """One node's names and addresses."""

    name: str
    address: str
    pod_range: str
    host_link: str
    cgroup: str


@dataclass(frozen=True)
class Blueprint:
    """One cluster. `subnet` is the x of 10.x.0.0/16, or None without nodes."""

    name: str
    node_count: int
    subnet: int | None
    api_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def folder(self) -> Path:
        return folder_of(self.name)

    @property
    def tag(self) -> str:
        """A short name that is still the cluster's own, for interfaces and cgroups."""
        return f"nq{hashlib.sha256(self.name.encode()).hexdigest()[:6]}"

    @property
    def bridge(self) -> str:
        return self.tag

    @property
    def host_address(self) -> str:
        """The address of this machine as the cluster sees it."""
        return self._address(0, 1) if self.node_count else "127.0.0.1"

    @property
    def server(self) -> str:
        return f"https://{self.host_address}:{self.api_port}"

    @property
    def pod_range(self) -> str:
        return f"{self._address(64, 0)}/18"

    @property
    def service_range(self) -> str:
        return f"{self._address(128, 0)}/20"

    @property
    def api_service_address(self) -> str:
        return self._address(128, 1)

    @property
    def dns_address(self) -> str:
        return self._address(128, 10)

    @property
    def nodes(self) -> tuple[NodePlan, ...]:
        return tuple(self._node(number) for number in range(1, self.node_count + 1))

    def node(self, name: str) -> NodePlan:
        """Return the node of this name."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise TestbedError(f"cluster {self.name} has no node {name!r}, only: {known or 'none'}")

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _FILE).write_text(json.dumps(asdict(self), indent=2))

    def _node(self, number: int) -> NodePlan:
        return NodePlan(
            name=f"node-{number}",
            address=self._address(0, 10 + number),
            pod_range=f"{self._address(64 + number, 0)}/24",
            host_link=f"{self.tag}n{number}",
            cgroup=f"{self.tag}/node-{number}",
        )

    def _address(self, third: int, fourth: int) -> str:
        return f"10.{0 if self.subnet is None else self.subnet}.{third}.{fourth}"


def folder_of(name: str) -> Path:
    """Return the folder of the cluster of this name, whether it exists or not."""
    return state_dir("clusters") / name


def read(name: str) -> Blueprint | None:
    """Return the blueprint of a cluster that was begun and not yet taken down."""
    try:
        return Blueprint(**json.loads((folder_of(name) / _FILE).read_text()))
    except FileNotFoundError:
        return None
