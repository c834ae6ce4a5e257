"""The API server with our CRDs on it, and an operator that runs on it."""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from control_plane.operating import Operated, RunningOperator, binding
from fixtures.api_server import ApiServer
from fixtures.brokers import VERSIONS
from fixtures.kubernetes import ControlPlane
from testbed import processes
from testbed.kubectl import Kubectl
from testbed.ports import accepts, free_port
from testbed.rabbitmq import Broker

_CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> None:
    """Put the CRDs in place, and wait until the API server serves them."""
    Kubectl(control_plane.kubectl, control_plane.kubeconfig).establish(*_CRDS.glob("*.yaml"))


@pytest.fixture(scope="session")
def api_server(control_plane: ControlPlane, crds: None) -> Iterator[ApiServer]:  # noqa: ARG001  # the CRDs come first
    """Give a namespace of one's own on an API server that knows our kinds."""
    with ApiServer.connect(control_plane.kubeconfig) as server:
        yield server


GIVE_UP_SECONDS = 12
SIDECAR = "registry.example/namedqueue/sidecar:test"


@pytest.fixture(scope="session")
def operator(
    control_plane: ControlPlane,
    crds: None,  # noqa: ARG001  # the CRDs come first
    shared_broker: Callable[[str], Broker],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningOperator]:
    """Run the operator as a process of its own; it minds only namespaces of a prefix of ours."""
    state = tmp_path_factory.mktemp("operator")
    secret = state / "broker"
    secret.mkdir()
    for key, value in binding(shared_broker(VERSIONS[-1])).items():
        (secret / key).write_text(value)
    prefix, port = f"op{uuid.uuid4().hex[:8]}-", free_port()
    command = [sys.executable, "-m", "namedqueue_operator", f"--broker={secret}"]
    pace = ["--poll-interval=1", "--drift-interval=5", f"--give-up-deleting={GIVE_UP_SECONDS}"]
    started = processes.start(
        "operator",
        [*command, *pace, f"--namespace={prefix}*", f"--port={port}", f"--sidecar-image={SIDECAR}"],
        state,
        env={**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)},
    )
    running = RunningOperator(prefix, started.log, f"http://127.0.0.1:{port}")
    processes.wait_until(
        lambda: accepts(port) and _knows_namespaces(running),
        what="the operator hears of namespaces",
        watching=started,
        deadline=120,
    )
    yield running
    assert started.alive, processes.tail(started)
    processes.stop("operator", state)
    _clear(shared_broker(VERSIONS[-1]), prefix)


def _knows_namespaces(operator: RunningOperator) -> bool:
    """Tell whether kopf watches namespaces: one that is made just before, it would not see."""
    shown = httpx.get(f"{operator.observers}/metrics", trust_env=False, timeout=30).text
    return 'watch_granted_timestamp_seconds{resource="namespaces"}' in shown


@pytest.fixture
def operated(
    operator: RunningOperator,
    control_plane: ControlPlane,
    shared_broker: Callable[[str], Broker],
) -> Iterator[Operated]:
    """Give an empty namespace that the operator watches."""
    administrator = Kubectl(control_plane.kubectl, control_plane.kubeconfig)
    namespace = f"{operator.prefix}{uuid.uuid4().hex[:8]}"
    administrator("create", "namespace", namespace)
    broker = shared_broker(VERSIONS[-1])
    yield Operated(administrator.within(namespace), broker, operator.log)
    administrator("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


def _clear(broker: Broker, prefix: str) -> None:
    """Remove what the operator made; only now, for it would have put it back."""
    for kind, start in (("vhosts", f"nq-{prefix}"), ("users", f"nq.{prefix}")):
        for found in broker.api("GET", kind).json():
            if found["name"].startswith(start):
                broker.api("DELETE", f"{kind}/{found['name']}")
