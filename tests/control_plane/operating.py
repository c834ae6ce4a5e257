"""A running operator as its users meet it: a namespace of theirs, kubectl, and the broker."""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fixtures.api_server import connection
from namedqueue import topology
from namedqueue.api import API_VERSION
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import read
from namedqueue.topology import Names, Topology, Version
from namedqueue.topology.management import observe
from namedqueue.topology.model import Vhost
from testbed.kubectl import Kubectl
from testbed.processes import wait_until
from testbed.rabbitmq import Broker

DEADLINE = 120.0


@dataclass(frozen=True)
class RunningOperator:
    """The process: which namespaces it minds, what it logs, and where its metrics are."""

    prefix: str
    log: Path
    observers: str


@dataclass(frozen=True)
class Operated:
    """A namespace that the operator watches, and the broker that its queues live on."""

    kubectl: Kubectl
    broker: Broker
    operator_log: Path

    @property
    def namespace(self) -> str:
        return self.kubectl.namespace

    @property
    def vhost(self) -> str:
        return f"nq-{self.namespace}"

    def on(self, broker: Broker) -> "Operated":
        """Return the same namespace with another broker, whose Secret `rabbit` is made."""
        self.kubectl.apply(broker_secret(broker, "rabbit"))
        return Operated(self.kubectl, broker, self.operator_log)

    def names(self, queue: str = "orders") -> Names:
        return Names(self.namespace, queue)

    def apply(self, name: str = "orders", **spec: Any) -> None:
        self.kubectl.apply(manifest(name, **spec))

    def queue(self, name: str = "orders") -> dict[str, Any]:
        return self._asked(f"/apis/{API_VERSION}/namespaces/{self.namespace}/namedqueues/{name}")

    def condition(self, kind: str, name: str = "orders") -> dict[str, Any]:
        conditions = self.queue(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def ready(self, name: str = "orders") -> None:
        """Wait as a script would, and until it is true of the newest spec."""
        self.kubectl("wait", f"nq/{name}", "--for=condition=Ready", f"--timeout={DEADLINE:.0f}s")

        def current() -> bool:
            queue = self.queue(name)
            seen = queue["status"]["observedGeneration"] == queue["metadata"]["generation"]
            return bool(seen) and self.condition("Ready", name)["status"] == "True"

        self.eventually(current, f"{name} is ready")

    def says(self, kind: str, status: str, words: str, name: str = "orders") -> dict[str, Any]:
        """Wait until a condition has a status and its reason or message has these words."""

        def holds() -> bool:
            found = self.condition(kind, name)
            told = f"{found.get('reason')}: {found.get('message')}"
            return found.get("status") == status and words in told

        self.eventually(holds, f"{kind} is {status} and says «{words}»")
        return self.condition(kind, name)

    def events(self, name: str = "orders") -> list[str]:
        """Return what `kubectl describe` would list, as `Reason: note`."""
        found = self._asked(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [
            f"{event['reason']}: {event['note']}"
            for event in found["items"]
            if event["regarding"]["name"] == name
        ]

    def told(self, words: str, name: str = "orders") -> None:
        """Wait until an event says this."""
        self.eventually(
            lambda: any(words in event for event in self.events(name)), f"an event says «{words}»"
        )

    def gone(self, name: str = "orders", deadline: float = DEADLINE) -> None:
        """Wait until the NamedQueue is gone."""
        found = ("get", f"nq/{name}", "--ignore-not-found", "--output=name")
        self.eventually(lambda: not self.kubectl(*found), f"{name} is gone", deadline)

    def delete(self, name: str = "orders") -> None:
        self.kubectl("delete", f"nq/{name}", "--wait=false")

    def observed(self, name: str = "orders") -> Topology:
        """Return what the broker has for a queue."""
        vhost = quote(self.vhost, safe="")
        if self.vhost not in [each["name"] for each in self.listed("vhosts")]:
            return topology.NOTHING
        kinds = ("exchanges", "queues", "bindings", "policies")
        listed: dict[str, Any] = {kind: self.listed(f"{kind}/{vhost}") for kind in kinds}
        listed |= {kind: self.listed(kind) for kind in ("users", "permissions")}
        return observe(self.names(name), Vhost(self.vhost), **listed)

    def desired(self, name: str = "orders") -> Topology:
        """Return what the compiler makes of the queue as it is stored."""
        queue = read(self.queue(name))
        assert isinstance(queue, NamedQueue)
        version = Version.parse(self.broker.version)
        return topology.compile(queue, topology.Broker(version=version))

    def in_place(self, name: str = "orders") -> None:
        """Wait until the broker has exactly what the compiler says."""
        self.eventually(
            lambda: self.observed(name) == self.desired(name), f"the topology of {name} is in place"
        )

    def listed(self, path: str) -> Any:
        return self.broker.api("GET", path).json()

    def send(self, count: int = 1, name: str = "orders") -> None:
        """Put jobs into a queue, as an administrator would."""
        vhost = quote(self.vhost, safe="")
        body = {"properties": {}, "routing_key": "", "payload": "{}", "payload_encoding": "string"}
        for _ in range(count):
            path = f"exchanges/{vhost}/{self.names(name).main_exchange}/publish"
            assert self.broker.api("POST", path, json=body).json()["routed"]

    def purge(self, queue: str) -> None:
        self.broker.api("DELETE", f"queues/{quote(self.vhost, safe='')}/{queue}/contents")

    def secret(self, role: str, name: str = "orders") -> dict[str, str]:
        data = self.kubectl.get("secret", f"nq-{name}-{role}")["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def _asked(self, path: str) -> dict[str, Any]:
        """Ask the API server itself: kubectl is a process for each question."""
        found: dict[str, Any] = (
            connection(self.kubectl.kubeconfig).get(path).raise_for_status().json()
        )
        return found

    def eventually(
        self, condition: Callable[[], bool], what: str, deadline: float = DEADLINE
    ) -> None:
        try:
            wait_until(_at_ease(condition), what=what, deadline=deadline)
        except Exception as error:
            tail = "\n".join(self.operator_log.read_text().splitlines()[-12:])
            raise AssertionError(f"{error}\nthe operator's last words:\n{tail}") from error


def manifest(name: str = "orders", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": "NamedQueue",
        "metadata": {"name": name},
        "spec": spec,
    }


def broker_secret(broker: Broker, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": binding(broker),
    }


def binding(broker: Broker) -> dict[str, str]:
    """Return the keys of a Service Binding."""
    return {
        "host": "127.0.0.1",
        "port": str(broker.amqp_port),
        "username": broker.username,
        "password": broker.password,
        "management_uri": broker.management_url,
    }


def _at_ease(condition: Callable[[], bool]) -> Callable[[], bool]:
    """Ask some times a second only: the machine is small."""

    def asked() -> bool:
        if condition():
            return True
        time.sleep(0.2)
        return False

    return asked
