"""Two replicas and one Lease: one works, and the other takes over."""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from control_plane.operating import DEADLINE, Operated, broker_secret
from fixtures.brokers import VERSIONS
from fixtures.kubernetes import ControlPlane
from fixtures.scale import FULL
from testbed import processes
from testbed.kubectl import Kubectl
from testbed.rabbitmq import Broker

_TRIES = 1 if FULL else 3


@pytest.fixture
def replicas(
    control_plane: ControlPlane,
    crds: None,  # noqa: ARG001  # the CRDs come first
    shared_broker: Callable[[str], Broker],
    tmp_path: Path,
) -> Iterator[Operated]:
    """Run two operators, called `first` and `second`, for one namespace."""
    administrator = Kubectl(control_plane.kubectl, control_plane.kubeconfig)
    namespace = f"replicas-{uuid.uuid4().hex[:8]}"
    administrator("create", "namespace", namespace)
    broker = shared_broker(VERSIONS[-1])
    kubectl = administrator.within(namespace)
    kubectl.apply(broker_secret(broker, "broker"))
    for name in ("first", "second"):
        _start(name, kubectl, tmp_path)
    yield Operated(kubectl, broker, tmp_path / "first.log")
    kubectl("delete", "nq", "--all", f"--timeout={DEADLINE:.0f}s")
    for name in ("first", "second"):
        processes.stop(name, tmp_path)
    administrator("delete", "namespace", namespace, "--wait=false")
    broker.delete_vhost(f"nq-{namespace}")


def _start(name: str, kubectl: Kubectl, folder: Path) -> None:
    """Run an operator for the namespace, with a new log, and wait until it waits for the Lease."""
    namespace = kubectl.namespace
    command = [sys.executable, "-m", "namedqueue_operator", f"--namespace={namespace}"]
    options = [f"--broker-secret={namespace}/broker", f"--lease={namespace}/operator", "--port=0"]
    env = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)}
    (folder / f"{name}.log").unlink(missing_ok=True)
    started = processes.start(name, [*command, *options], folder, env=env)
    processes.wait_until(
        lambda: "waiting for the lease" in started.log.read_text(),
        what=f"{name} runs",
        watching=started,
        deadline=120,
    )


def _leaders(folder: Path) -> list[str]:
    return [
        name
        for name in ("first", "second")
        if '"message": "leading"' in (folder / f"{name}.log").read_text()
        and processes.find(name, folder) is not None
    ]


def test_the_standby_takes_over_within_twenty_seconds_of_a_crash(
    replicas: Operated, tmp_path: Path
) -> None:
    replicas.apply()
    replicas.ready()
    # A takeover that takes longer does so each time; one on a busy machine does not.
    assert any(_takeover(replicas, tmp_path) < 20 for _ in range(_TRIES))
    replicas.ready("late")


def _takeover(replicas: Operated, folder: Path) -> float:
    """Kill the one that leads; return how many seconds nobody did, and have two of them again."""
    [leader] = _leaders(folder)
    processes.kill(leader, folder)
    killed = time.monotonic()
    replicas.apply("late")
    replicas.eventually(lambda: _leaders(folder) != [], "another one leads")
    took = time.monotonic() - killed
    _start(leader, replicas.kubectl, folder)
    return took


def test_a_leader_that_ends_in_good_order_is_followed_at_once(
    replicas: Operated, tmp_path: Path
) -> None:
    replicas.apply()
    replicas.ready()
    [leader] = _leaders(tmp_path)
    processes.stop(leader, tmp_path)
    assert replicas.kubectl.get("lease", "operator")["spec"]["holderIdentity"] != leader
    replicas.apply("late")
    replicas.ready("late")
