"""Debian's Prometheus on loopback, which scrapes in a cluster what the chart's monitors select.

A ServiceMonitor or PodMonitor means something only to the Prometheus operator, and Debian builds
its Prometheus without the discovery of Kubernetes. So both are done here, for the fields that the
chart uses: a thread asks the API server what a monitor selects and writes it to a file that
Prometheus follows. Whatever a monitor selects wrongly is not scraped here either.
"""

import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from testbed import debian, processes
from testbed.kubectl import Kubectl
from testbed.ports import free_ports
from testbed.processes import TestbedError

Sample: TypeAlias = tuple[dict[str, str], list[tuple[float, float]]]
"""A series: its labels, and its values by the second."""
Monitor: TypeAlias = Mapping[str, Any]
Target: TypeAlias = dict[str, Any]

_NAME = "prometheus"
_EVERY = "1s"
_LOOK_SECONDS = 2.0
_OVER = ("Failed", "Succeeded")


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    address: str

    def value(self, query: str) -> float | None:
        """Return the one value of a query, or None if it finds nothing."""
        found = self._ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None

    def series(self, query: str, start: float, end: float, step: float) -> list[Sample]:
        """Return what a query gives from one second to another."""
        asked = self._ask("query_range", query=query, start=start, end=end, step=step)
        return [
            (each["metric"], [(float(at), float(value)) for at, value in each["values"]])
            for each in asked["result"]
        ]

    def firing(self) -> list[dict[str, Any]]:
        """Return the alerts that fire."""
        return [each for each in self._ask("alerts")["alerts"] if each["state"] == "firing"]

    def scraped(self) -> list[str]:
        """Return the job of each target that answers."""
        targets = self._ask("targets", state="active")["activeTargets"]
        return [each["labels"]["job"] for each in targets if each["health"] == "up"]

    def _ask(self, what: str, **query: object) -> Any:
        url = f"{self.address}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own loopback
            return json.load(answer)["data"]


@contextmanager
def running(
    folder: Path, monitors: Sequence[Monitor], rules: Mapping[str, Any], kubectl: Kubectl
) -> Iterator[Prometheus]:
    """Scrape what the monitors select in a cluster, every second, and judge it by the rules."""
    debian.ensure_packages("prometheus")
    files = {folder / f"{each['kind']}.json": each for each in monitors}
    config = {
        "global": {"scrape_interval": _EVERY, "evaluation_interval": _EVERY},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [_scraping(each, file) for file, each in files.items()],
    }
    (folder / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    [port] = free_ports(1)
    options = [
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with _followed(files, kubectl):
        server = processes.start(_NAME, ["prometheus", *options], folder)
        address = f"http://127.0.0.1:{port}"
        try:
            processes.wait_until(
                lambda: _is_ready(address), what="Prometheus is ready", watching=server
            )
            yield Prometheus(address)
        finally:
            processes.stop(_NAME, folder)


def _scraping(monitor: Monitor, file: Path) -> dict[str, Any]:
    return {
        "job_name": monitor["kind"],
        "honor_labels": _endpoint(monitor)["honorLabels"],
        "file_sd_configs": [{"files": [str(file)], "refresh_interval": _EVERY}],
    }


@contextmanager
def _followed(files: Mapping[Path, Monitor], kubectl: Kubectl) -> Iterator[None]:
    """Keep the files up to date for as long as a block of code."""
    over = threading.Event()

    def follow() -> None:
        while True:
            for file, monitor in files.items():
                with suppress(TestbedError):  # an API server that is busy is asked again
                    _rewrite(file, json.dumps(list(selected(monitor, kubectl))))
            if over.wait(_LOOK_SECONDS):
                return

    following = threading.Thread(target=follow, name="discovery")
    following.start()
    try:
        yield
    finally:
        over.set()
        following.join()


def _rewrite(file: Path, text: str) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.rename(file)


def selected(monitor: Monitor, kubectl: Kubectl) -> Iterator[Target]:
    """Ask the API server what a monitor selects, as the Prometheus operator has it scraped."""
    spec, home = monitor["spec"], monitor["metadata"]["namespace"]
    port = _endpoint(monitor)["port"]
    wanted = ",".join(f"{key}={value}" for key, value in _labels(spec).items())
    where = spec.get("namespaceSelector") or {"matchNames": [home]}
    for namespace in where["matchNames"]:
        here = kubectl.within(namespace)
        if monitor["kind"] == "PodMonitor":
            yield from _of_pods(_listed(here, "pods", wanted), port)
            continue
        for service in _listed(here, "services", wanted):
            name = service["metadata"]["name"]
            slices = _listed(here, "endpointslices", f"kubernetes.io/service-name={name}")
            yield from _of_slices(slices, port)


def _endpoint(monitor: Monitor) -> Mapping[str, Any]:
    spec = monitor["spec"]
    [endpoint] = spec.get("endpoints") or spec["podMetricsEndpoints"]
    found: Mapping[str, Any] = endpoint
    return found


def _labels(spec: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = spec["selector"].get("matchLabels", {})
    return found


def _listed(kubectl: Kubectl, kind: str, wanted: str) -> list[Any]:
    answer = json.loads(kubectl("get", kind, f"--selector={wanted}", "--output=json"))
    items: list[Any] = answer["items"]
    return items


def _of_pods(pods: Sequence[Any], port: str) -> Iterator[Target]:
    for pod in pods:
        address = pod["status"].get("podIP")
        if address is None or pod["status"]["phase"] in _OVER:
            continue
        containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
        ports = [each for container in containers for each in container.get("ports", [])]
        for each in ports:
            if each.get("name") == port:
                yield _target(f"{address}:{each['containerPort']}", pod["metadata"])


def _of_slices(slices: Sequence[Any], port: str) -> Iterator[Target]:
    for one in slices:
        numbers = [each["port"] for each in one["ports"] or () if each["name"] == port]
        for endpoint in one["endpoints"] or ():
            for number in numbers:
                yield _target(f"{endpoint['addresses'][0]}:{number}", endpoint["targetRef"])


def _target(address: str, pod: Mapping[str, str]) -> Target:
    labels = {"namespace": pod["namespace"], "pod": pod["name"]}
    return {"targets": [address], "labels": labels}


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/-/ready", timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)  # noqa: PLR2004 - what success is in HTTP
    except OSError:
        return False
