"""Many NamedQueues and an operator of their own, asked over one connection to the API server."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from control_plane.operating import binding, manifest
from fixtures.kubernetes import ControlPlane
from namedqueue.api import GROUP, VERSION
from testbed import processes
from testbed.ports import accepts, free_port
from testbed.rabbitmq import Broker

Key: TypeAlias = tuple[str, str]
"""A namespace and the name of a queue in it."""

_OPERATOR = "operator"
_KIB_PER_MIB = 1024
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Crowd:
    """Namespaces full of queues, the broker that they live on, and the operator behind them."""

    http: httpx.Client
    prefix: str
    broker: Broker
    state: Path
    observers: str
    audit_log: Path | None

    def keys(self, count: int, *, each: int = 20) -> list[Key]:
        """Name so many queues, so many to a namespace."""
        return [(f"{self.prefix}{at // each}", f"queue-{at % each}") for at in range(count)]

    def apply(self, key: Key, **spec: Any) -> None:
        """Make or change a queue."""
        self.try_to_apply(key, spec).raise_for_status()

    def try_to_apply(self, key: Key, spec: Any) -> httpx.Response:
        """Apply a spec that need not even be an object; return what the API server says."""
        _, name = key
        return self.http.patch(
            self.path(key),
            params={"fieldManager": "test", "force": "true", "fieldValidation": "Strict"},
            content=json.dumps(manifest(name) | {"spec": spec}),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    def path(self, key: Key) -> str:
        """Return where the API server keeps a queue."""
        return _queues(*key)

    def log(self) -> str:
        """Return what the operator has logged."""
        started = processes.find(_OPERATOR, self.state)
        assert started is not None
        return started.log.read_text()

    def queue(self, key: Key) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(self.path(key)).json()
        return found

    def queues(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get(f"/apis/{GROUP}/{VERSION}/namedqueues").json()[
            "items"
        ]
        return [each for each in found if each["metadata"]["namespace"].startswith(self.prefix)]

    def all_ready(self, count: int, *, deadline: float) -> None:
        """Wait until so many queues are ready."""

        def ready() -> bool:
            time.sleep(0.5)  # a list of hundreds is not cheap
            return sum(is_ready(queue) for queue in self.queues()) >= count

        self.eventually(ready, f"{count} queues are ready", deadline=deadline)

    def eventually(self, condition: Callable[[], bool], what: str, *, deadline: float) -> None:
        started = processes.find(_OPERATOR, self.state)
        processes.wait_until(condition, what=what, deadline=deadline, watching=started)

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all labels but these."""
        shown = httpx.get(f"{self.observers}/metrics", trust_env=False, timeout=30).text
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in shown.splitlines()
            if line.partition("{")[0].partition(" ")[0] == name
            and all(label in line for label in wanted)
        )

    def memory_mib(self) -> float:
        """Return the operator's resident memory."""
        started = processes.find(_OPERATOR, self.state)
        assert started is not None
        status = Path(f"/proc/{started.pid}/status").read_text().splitlines()
        [resident] = [line for line in status if line.startswith("VmRSS:")]
        return int(resident.split()[1]) / _KIB_PER_MIB

    def writes(self, since: str) -> list[str]:
        """Return what the operator wrote in its namespaces since a moment, from the audit log."""
        assert self.audit_log is not None
        found = []
        for line in self.audit_log.read_text().splitlines():
            event = json.loads(line)
            place = event.get("objectRef") or {}
            if (
                event["verb"] in _WRITES
                and event["requestReceivedTimestamp"] >= since
                and str(place.get("namespace")).startswith(self.prefix)
                and not event["user"]["username"].startswith("system:")
                and "python-httpx" not in event.get("userAgent", "")
            ):
                found.append(f"{event['verb']} {place.get('resource')} {place.get('name')}")
        return found


def _queues(namespace: str, name: str) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/namedqueues/{name}"


def is_ready(queue: Mapping[str, Any]) -> bool:
    """Tell whether a queue is ready for its newest spec."""
    generation = queue["metadata"]["generation"]
    conditions = queue.get("status", {}).get("conditions", [])
    return any(
        (each["type"], each["status"], each["observedGeneration"]) == ("Ready", "True", generation)
        for each in conditions
    )


@contextmanager
def namespaces(http: httpx.Client, prefix: str, count: int) -> Iterator[None]:
    """Make namespaces `<prefix>0` and so on, and let them go at the end."""
    for number in range(count):
        body = {"metadata": {"name": f"{prefix}{number}"}}
        http.post("/api/v1/namespaces", json=body).raise_for_status()
    try:
        yield
    finally:
        for number in range(count):
            http.delete(f"/api/v1/namespaces/{prefix}{number}").raise_for_status()


@contextmanager
def operator_for(
    http: httpx.Client,
    prefix: str,
    broker: Broker,
    state: Path,
    cluster: ControlPlane,
    pace: tuple[float, float] = (1, 5),
    options: Sequence[str] = (),
) -> Iterator[Crowd]:
    """Run an operator for namespaces of a prefix; `pace` is its poll and drift intervals."""
    secret = state / "broker"
    secret.mkdir(exist_ok=True)
    for key, value in binding(broker).items():
        (secret / key).write_text(value)
    port = free_port()
    poll, drift = pace
    started = processes.start(
        _OPERATOR,
        [
            *(sys.executable, "-m", "namedqueue_operator", f"--broker={secret}"),
            *(f"--namespace={prefix}*", f"--port={port}"),
            *(f"--poll-interval={poll}", f"--drift-interval={drift}"),
            *options,
        ],
        state,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
    )
    processes.wait_until(
        lambda: accepts(port), what="the operator answers", watching=started, deadline=120
    )
    try:
        yield Crowd(http, prefix, broker, state, f"http://127.0.0.1:{port}", cluster.audit_log)
        assert started.alive, processes.tail(started)
    finally:
        processes.stop(_OPERATOR, state)
