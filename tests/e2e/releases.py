"""A release of the chart, installed and looked after as the pages of the documentation say.

Whoever follows them here has another broker, database and port than those that are written, and no
registry to pull a Python from. The rest is done word for word.
"""

import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import workers
from e2e.director import directing
from e2e.relays import relayed
from fixtures.operators import Market
from fixtures.pages import ROOT, Step, Terminal, steps
from testbed import processes, prometheus
from testbed.helm import Helm
from testbed.images import Image
from testbed.kubectl import Kubectl
from testbed.ports import free_ports
from testbed.postgresql import Postgres
from testbed.prometheus import Prometheus
from testbed.providers import Cluster
from testbed.rabbitmq import Broker

HOME, SHOP, RELEASE = "namedqueue", "shop", "namedqueue"
EXAMPLE = "examples/cluster/orders.yaml"
_MANAGEMENT, _POSTGRESQL = 15672, 5432
_READY = '{.status.conditions[?(@.type=="Ready")].status}'
_MONITORED = {
    "watchNamespaces": [SHOP],
    "serviceMonitor": {"enabled": True},
    "podMonitor": {"enabled": True},
    "alerts": {"enabled": True},
}


class Guide(Terminal):
    """Somebody who follows the pages on the tests' cluster."""

    def __init__(self, folder: Path, cluster: Cluster, others: Mapping[str, str]) -> None:
        """Put `others` in for what is written, by regular expressions."""
        [api] = free_ports(1)
        super().__init__(ROOT, folder / "terminal.log", api)
        self._cluster = cluster
        self._others = {
            r"hack/cluster ([a-z-]+)": rf"hack/cluster \1 --name {cluster.name}",
            r"(\w+\.tar)": rf"{folder}/\1",
            r"helm install": "helm install --take-ownership",  # other tests made the CRDs
            r"(port-forward \S+) 3550": rf"\1 {api}:3550",
            **others,
        }
        example = folder / "orders.yaml"
        example.write_text(self.rewritten((ROOT / EXAMPLE).read_text()))
        self._others[re.escape(EXAMPLE)] = str(example)

    def rewritten(self, text: str) -> str:
        for written, other in self._others.items():
            text = re.sub(written, other, text)
        return text

    def environment(self) -> dict[str, str]:
        known = super().environment()
        programs = [str(program.parent) for program in (self._cluster.helm, self._cluster.kubectl)]
        path = os.pathsep.join([*programs, known["PATH"]])
        return {**known, "PATH": path, "KUBECONFIG": str(self._cluster.kubeconfig)}


@dataclass(frozen=True)
class Release:
    """What was installed, the namespace that it serves, and who watches it."""

    guide: Guide
    home: Kubectl
    market: Market
    prometheus: Prometheus
    cluster: Cluster
    since: float

    def deploy(self, **scaling: Any) -> None:
        """Have the workers do what the director says, also for a stream; wait until they do."""
        worker = {"port": 8080, "path": "/jobs", "timeout": "5m", "concurrency": 5}
        self.market.apply(
            "audit",
            type="stream",
            stream={"consumers": [{"group": "audit", "from": "first", "onError": "halt"}]},
            worker=worker,
        )
        template = self.market.template()
        template["metadata"] = {"annotations": {"namedqueue.io/consume": "audit"}}
        quickly: dict[str, Any] = {"messagesPerReplica": 20, "pollInterval": "1s"}
        quickly["scaleDown"] = {"stabilization": "0s", "maxStep": "100%"}
        self.market.apply(
            worker={**worker, "template": template},
            idempotency={"key": "body.order", "ttl": "1d"},
            scaling={**quickly, **scaling},
        )
        self.market.ready()
        self.market.kubectl("rollout", "status", "deployment/nq-orders", "--timeout=120s")

    def worker(self) -> str:
        """Wait for a worker that is ready and not about to end, and name it."""
        found: list[str] = []

        def some() -> bool:
            found[:] = [name for name in self.market.workers() if self._is_ready(name)]
            return bool(found)

        self.market.eventually(some, "a worker is ready")
        return found[0]

    def _is_ready(self, pod: str) -> bool:
        asked = ("get", "pod", pod, "--ignore-not-found", f"--output=jsonpath={_READY}")
        return self.market.kubectl(*asked) == "True"


def page(name: str) -> list[Step]:
    """Return what a page asks its reader to do."""
    return steps((ROOT / "docs" / name).read_text())


@contextmanager
def installed(
    folder: Path, cluster: Cluster, broker: Broker, postgres: Postgres, python: Image
) -> Iterator[Release]:
    """Follow «getting started» up to the installation; remove all of it at the end."""
    host = str(cluster.host_address)
    cluster.load_image(python.archive)
    name = f"chart_{uuid.uuid4().hex[:12]}"
    loopback, reachable = f"127.0.0.1:{postgres.port}", f"{host}:{_POSTGRESQL}"
    database = postgres.create_database(name).replace(loopback, reachable)
    others = {
        r"rabbit\.example": host,
        r"username=admin": f"username={broker.username}",
        r"password=secret": f"password={broker.password}",
        r"postgresql://\S+": database,
        r"python:3\.13-slim": python.name,
    }
    guide = Guide(folder, cluster, others)
    administrator = Kubectl(cluster.kubectl, cluster.kubeconfig)
    home, shop = administrator.within(HOME), administrator.within(SHOP)
    with (
        relayed(host, broker.management_port, at=_MANAGEMENT),
        relayed(host, postgres.port, at=_POSTGRESQL),
        directing(host) as director,
    ):
        _, *preparations, install, _, _, _, _ = page("getting-started.md")
        try:
            for step in (*preparations, install):
                guide.follow(step)
            follow = home.command("logs", "-f", f"deployment/{RELEASE}", "--all-pods")
            log = processes.start("operators", follow, folder).log
            shop.apply(workers.inside())
            with _watched(folder, cluster) as watching:
                market = Market(shop, broker, log, director, python)
                yield Release(guide, home, market, watching, cluster, time.time())
        finally:
            processes.stop("operators", folder)
            _remove(cluster, administrator)
            broker.delete_vhost(f"nq-{SHOP}")
            postgres.drop_database(name)


@contextmanager
def _watched(folder: Path, cluster: Cluster) -> Iterator[Prometheus]:
    """Run a Prometheus with the chart's own monitors and alerts."""
    objects = Helm(cluster.helm).render(_MONITORED, release=RELEASE, namespace=HOME)
    monitors = [each for each in objects if each["kind"] in ("ServiceMonitor", "PodMonitor")]
    [rules] = [each["spec"] for each in objects if each["kind"] == "PrometheusRule"]
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    with prometheus.running(folder, monitors, rules, kubectl) as server:
        yield server


def _remove(cluster: Cluster, administrator: Kubectl) -> None:
    """Leave nothing of the release, whatever state it is in."""
    where = [f"--kubeconfig={cluster.kubeconfig}", f"--namespace={HOME}"]
    processes.run(
        [cluster.helm, "uninstall", RELEASE, *where, "--ignore-not-found", "--wait"],
        what="helm uninstall",
    )
    shop = administrator.within(SHOP)
    kinds = administrator("get", "crd", "--output=name")
    queues = shop("get", "nq", "--output=name") if "namedqueues" in kinds else ""
    for name in queues.split():
        # The one who would take the finalizer away is gone.
        shop("patch", name, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
    for namespace in (SHOP, HOME):
        administrator("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
