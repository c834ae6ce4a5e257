"""Two replicas and one Lease: one works, and the other takes over."""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from control_plane.operating import DEADLINE, Operated, broker_secret
from fixtures.brokers import VERSIONS
from fixtures.kubernetes import ControlPlane
from testbed import processes
from testbed.kubectl import Kubectl
from testbed.rabbitmq import Broker


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
    command = [sys.executable, "-m", "namedqueue_operator", f"--namespace={namespace}"]
    options = [f"--broker-secret={namespace}/broker", f"--lease={namespace}/operator", "--port=0"]
    env = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)}
    for name in ("first", "second"):
        started = processes.start(name, [*command, *options], tmp_path, env=env)
        processes.wait_until(partial(_waits, started), what=f"{name} runs", watching=started)
    yield Operated(kubectl, broker, tmp_path / "first.log")
    kubectl("delete", "nq", "--all", f"--timeout={DEADLINE:.0f}s")
    for name in ("first", "second"):
        processes.stop(name, tmp_path)
    administrator("delete", "namespace", namespace, "--wait=false")
    broker.delete_vhost(f"nq-{namespace}")


def _waits(started: processes.Started) -> bool:
    return "waiting for the lease" in started.log.read_text()


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
    [leader] = _leaders(tmp_path)
    processes.kill(leader, tmp_path)
    killed = time.monotonic()
    replicas.apply("late")
    replicas.eventually(lambda: _leaders(tmp_path) != [], "another one leads")
    took = time.monotonic() - killed
    assert took < 20
    replicas.ready("late")


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
