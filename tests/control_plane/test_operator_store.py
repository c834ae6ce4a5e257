"""The store's Secret reaches the queues' sidecars, follows its source, and goes away again."""

import base64
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from control_plane.operating import DEADLINE, Operated, broker_secret
from fixtures.brokers import VERSIONS
from fixtures.kubernetes import ControlPlane
from testbed import processes
from testbed.kubectl import Kubectl
from testbed.rabbitmq import Broker

_IDEMPOTENT: dict[str, Any] = {"idempotency": {"key": "messageId"}}
_KEYS = {"host": "db.example", "username": "nq", "database": "store"}


class Storing:
    """An operator of this test's own, that can be started anew with other options."""

    def __init__(self, operated: Operated, folder: Path, kubeconfig: Path) -> None:
        self.operated = operated
        self._folder = folder
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def start(self, *options: str) -> None:
        namespace = self.operated.namespace
        what = [f"--namespace={namespace}", f"--broker-secret={namespace}/rabbit", "--port=0"]
        command = [sys.executable, "-m", "namedqueue_operator", *what, *options]
        pace = ["--poll-interval=1", "--drift-interval=2"]
        processes.start("operator", [*command, *pace], self._folder, env=self._env)

    def stop(self) -> None:
        processes.stop("operator", self._folder)

    def give(self, **keys: str) -> None:
        metadata = {"name": "db"}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys}
        self.operated.kubectl.apply(secret)

    def has(self, password: str | None, queue: str = "orders") -> None:
        """Wait until a queue's own Secret has this password of the store; None for none."""
        path = "--output=jsonpath={.data.password}"
        found = ("get", f"secret/nq-{queue}-store", "--ignore-not-found", path)
        wanted = "" if password is None else base64.b64encode(password.encode()).decode()

        def holds() -> bool:
            return self.operated.kubectl(*found).strip() == wanted

        self.operated.eventually(holds, f"the store's Secret of {queue} is as it shall be")


@pytest.fixture
def storing(
    control_plane: ControlPlane,
    crds: None,  # noqa: ARG001  # the CRDs come first
    shared_broker: Callable[[str], Broker],
    tmp_path: Path,
) -> Iterator[Storing]:
    """Give a namespace with a broker's Secret `rabbit`, for an operator to be started in it."""
    administrator = Kubectl(control_plane.kubectl, control_plane.kubeconfig)
    namespace = f"storing-{uuid.uuid4().hex[:8]}"
    administrator("create", "namespace", namespace)
    broker = shared_broker(VERSIONS[-1])
    kubectl = administrator.within(namespace)
    kubectl.apply(broker_secret(broker, "rabbit"))
    operated = Operated(kubectl, broker, tmp_path / "operator.log")
    storing = Storing(operated, tmp_path, control_plane.kubeconfig)
    yield storing
    kubectl("delete", "nq", "--all", f"--timeout={DEADLINE:.0f}s")
    storing.stop()
    administrator("delete", "namespace", namespace, "--wait=false")
    broker.delete_vhost(f"nq-{namespace}")


def test_the_store_reaches_its_queues_follows_its_secret_and_goes_away_again(
    storing: Storing,
) -> None:
    operated = storing.operated
    storing.start(f"--store-secret={operated.namespace}/db")
    operated.apply(**_IDEMPOTENT)
    operated.apply("audit", type="stream")
    missing = "SecretMissing: spec.idempotency needs the store: Secret db is not in namespace"
    operated.says("Ready", "False", missing)

    storing.give(**_KEYS, password="first-secret")
    operated.ready()
    storing.has("first-secret")
    operated.says("StoreBound", "True", "sidecars are sent to the store at db.example:5432/store")
    owner = operated.kubectl.get("secret", "nq-orders-store")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("NamedQueue", "orders")
    operated.ready("audit")
    storing.has(None, "audit")

    storing.give(**_KEYS, password="second-secret")
    storing.has("second-secret")
    assert not [each for each in operated.events() if "nq-orders-store" in each], "no repair"
    operated.kubectl("delete", "secret", "nq-orders-store")
    operated.told("Repaired: wrote Secret nq-orders-store")
    storing.has("second-secret")

    operated.kubectl("delete", "secret", "db")
    operated.says("StoreBound", "False", missing)
    storing.has("second-secret")

    told = [str(operated.queue()), str(operated.events()), operated.operator_log.read_text()]
    assert not [each for each in told if "first-secret" in each or "second-secret" in each]

    storing.stop()
    storing.start()
    storing.has(None)
    assert set(operated.secret("store")) == {"type", "provider"}, "nothing of it is left"
    operated.says("Ready", "False", "NoStore: spec.idempotency needs a store; start the operator")
    operated.apply()
    operated.ready()
    operated.says("StoreBound", "True", "NotNeeded")
