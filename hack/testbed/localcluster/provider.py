"""The local provider: a cluster's parts brought up in order, and taken down without a trace.

`start` is safe to repeat: a cluster that runs is left alone, the remains of an interrupted start
are cleared first. `stop` works from the blueprint alone, whatever state things are in.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.debian import ensure_packages, only_one
from testbed.leases import exclusively
from testbed.localcluster import addons, binaries, blueprint, controlplane, images, network, node
from testbed.localcluster.blueprint import MAX_NODES, Blueprint
from testbed.ports import free_ports
from testbed.processes import TestbedError, wait_until
from testbed.progress import say, step

_CONTROL_PLANE_PACKAGES = ("etcd-server",)
_NODE_PACKAGES = (
    "containerd",
    "containernetworking-plugins",
    "gcc",
    "iproute2",
    "iptables",
    "libc6-dev",
    "runc",
)


class LocalCluster:
    """A cluster of processes on this machine."""

    provider = "local"

    def __init__(self, plan: Blueprint) -> None:
        self.plan = plan
        self.name = plan.name
        self.kubeconfig = plan.kubeconfig
        self.audit_log: Path | None = plan.audit_log
        """Who asked the API server for what, one JSON object a line."""
        self.host_address: str | None = plan.host_address
        """Where pods reach a server of this machine."""

    @property
    def kubectl(self) -> Path:
        return binaries.path("kubectl")

    @property
    def helm(self) -> Path:
        return binaries.path("helm")

    @property
    def node_names(self) -> list[str]:
        return [each.name for each in self.plan.nodes]

    def load_image(self, archive: Path) -> None:
        """Give every running node the images of a docker-archive or OCI archive."""
        if not self.plan.node_count:
            raise TestbedError(f"cluster {self.name} has no nodes that could take an image")
        for each in self.plan.nodes:
            if node.running(self.plan, each):
                node.load_image(self.plan, each, archive)

    def stop_node(self, name: str) -> None:
        """End a node at once, as a power cut would."""
        node.kill(self.plan, self.plan.node(name))
        network.route(self.plan, self._running_nodes())

    def start_node(self, name: str) -> None:
        """Start a stopped node again, with the disk it had; return when it is Ready."""
        node.begin(self.plan, self.plan.node(name))
        network.route(self.plan, self._running_nodes())
        self.wait_for_nodes([name])

    def stop(self) -> None:
        """Take everything down and forget it."""
        with exclusively(f"cluster-{self.name}"):
            _take_down(self.plan)

    def logs(self) -> dict[str, Path]:
        """Return the log file of each component."""
        files = sorted(self.plan.folder.glob("*.log")) + sorted(
            self.plan.folder.glob("node-*/log/*.log")
        )
        return {
            f"{file.parents[1].name}/{file.stem}" if file.parent.name == "log" else file.stem: file
            for file in files
        }

    def broken_parts(self) -> list[str]:
        """Return the components that should run and do not."""
        dead = [name for name, found in controlplane.components(self.plan).items() if not found]
        dead += [each.name for each in self.plan.nodes if not node.running(self.plan, each)]
        return dead

    def describe(self) -> list[str]:
        """Say what runs where, a line each."""
        plan = self.plan
        lines = [
            f"version     {binaries.kubernetes_version()}",
            f"server      {plan.server}",
            f"kubeconfig  {plan.kubeconfig}",
            f"folder      {plan.folder}",
        ]
        for name, found in controlplane.components(plan).items():
            lines.append(f"process     {name} {f'pid {found.pid}' if found else 'NOT RUNNING'}")
        for each in plan.nodes:
            pid = node.init_pid(plan, each)
            state = f"pid {pid}" if pid else "NOT RUNNING"
            lines.append(f"node        {each.name} {each.address} pods {each.pod_range} {state}")
        if plan.node_count:
            lines.append(f"services    {plan.service_range}, DNS {plan.dns_address}")
            lines.append(f"this host   {plan.host_address} as pods see it (bridge {plan.bridge})")
        return lines

    def _running_nodes(self) -> list[blueprint.NodePlan]:
        return [each for each in self.plan.nodes if node.running(self.plan, each)]

    def wait_for_nodes(self, names: list[str]) -> None:
        """Wait until these nodes are Ready."""
        wanted = [f"node/{name}" for name in names]
        with step(f"waiting for {', '.join(names)} to be Ready"):
            wait_until(
                lambda: controlplane.kubectl(self.plan).succeeds(
                    "wait", "--for=condition=Ready", "--timeout=2s", *wanted
                ),
                what=f"{', '.join(names)} Ready",
                deadline=120,
            )


def start(name: str, *, nodes: int, control_plane_only: bool) -> LocalCluster:
    """Bring up a cluster of this name, or return the one that runs."""
    wanted_nodes = 0 if control_plane_only else nodes
    if not 0 <= wanted_nodes <= MAX_NODES or (wanted_nodes == 0 and not control_plane_only):
        raise TestbedError(f"a cluster has 1 to {MAX_NODES} nodes, not {nodes}")
    build(control_plane_only=control_plane_only)
    with exclusively(f"cluster-{name}"):
        running = find(name)
        if running is not None and not running.broken_parts():
            _refuse_other_shape(running, wanted_nodes)
            say(f"cluster {name} is already up; nothing to do")
            return running
        if running is not None:
            say(f"clearing a cluster {name} of which {running.broken_parts()[0]} does not run")
            _take_down(running.plan)
        cluster = LocalCluster(_plan(name, wanted_nodes))
        with _stopping_on_failure(cluster):
            _bring_up(cluster)
        say(f"cluster {name} is up: Kubernetes {binaries.kubernetes_version()}, built here")
        return cluster


def find(name: str) -> LocalCluster | None:
    """Return the cluster of this name if one was begun here."""
    plan = blueprint.read(name)
    return None if plan is None else LocalCluster(plan)


def build(*, control_plane_only: bool) -> None:
    """Make sure that every program and package is there."""
    if control_plane_only:
        binaries.ensure(binaries.CONTROL_PLANE)
        ensure_packages(*_CONTROL_PLANE_PACKAGES)
        return
    if os.geteuid() != 0:
        raise TestbedError("nodes need root for their namespaces; --control-plane-only does not")
    binaries.ensure(binaries.WHOLE_CLUSTER)
    ensure_packages(*_CONTROL_PLANE_PACKAGES, *_NODE_PACKAGES)


def _plan(name: str, node_count: int) -> Blueprint:
    api, etcd, etcd_peer = free_ports(3)
    if node_count == 0:
        plan = Blueprint(name, 0, None, api, etcd, etcd_peer)
        plan.write()
        return plan
    with only_one("cluster-network"):
        subnet = network.choose_subnet(name)
        plan = Blueprint(name, node_count, subnet, api, etcd, etcd_peer)
        plan.write()
        network.make_bridge(plan)
    return plan


def _bring_up(cluster: LocalCluster) -> None:
    plan = cluster.plan
    controlplane.make_credentials(plan)
    apiserver = controlplane.begin(plan)
    controlplane.wait_for_api(plan, apiserver)
    controllers = controlplane.begin_controllers(plan)
    if plan.node_count:
        _bring_up_nodes(cluster)
    controlplane.wait_for_controllers(plan, controllers)


def _bring_up_nodes(cluster: LocalCluster) -> None:
    plan = cluster.plan
    with step(f"starting {plan.node_count} node(s)"):
        for each in plan.nodes:
            node.begin(plan, each)
        network.route(plan, plan.nodes)
        for archive in (images.pause(), images.coredns()):
            cluster.load_image(archive)
    addons.apply(plan)
    cluster.wait_for_nodes(cluster.node_names)
    addons.wait(plan)


@contextmanager
def _stopping_on_failure(cluster: LocalCluster) -> Iterator[None]:
    """End what was started when the rest fails, but keep the logs to be read."""
    try:
        yield
    except BaseException:
        _end_processes(cluster.plan)
        say(f"the logs of the failed start are in {cluster.plan.folder}")
        raise


def _take_down(plan: Blueprint) -> None:
    _end_processes(plan)
    shutil.rmtree(plan.folder)


def _end_processes(plan: Blueprint) -> None:
    for each in plan.nodes:
        node.kill(plan, each)
    controlplane.end(plan)
    if plan.node_count:
        network.remove_bridge(plan)


def _refuse_other_shape(running: LocalCluster, wanted_nodes: int) -> None:
    if running.plan.node_count != wanted_nodes:
        raise TestbedError(
            f"cluster {running.name} runs with {running.plan.node_count} node(s) and you asked for "
            f"{wanted_nodes}: run `hack/cluster down --name {running.name}` first"
        )
