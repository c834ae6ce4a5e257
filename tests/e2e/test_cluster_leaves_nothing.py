"""A local cluster that is taken down leaves nothing on the machine, however its start ended."""

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import existing, kind, providers
from testbed.kubectl import Kubectl
from testbed.localcluster import images, provider
from testbed.localcluster.blueprint import Blueprint
from testbed.processes import run, wait_until

pytestmark = pytest.mark.timeout(900)  # each starts clusters of its own

_COMMAND = Path(__file__).parents[2] / "hack" / "cluster"


@pytest.fixture
def name() -> Iterator[str]:
    """Give the name of a local cluster that does not exist; take down what the test made of it."""
    if providers.unavailable_reason() or existing.find() or kind.usable() or os.geteuid() != 0:
        pytest.skip("only root can run the local provider, and only it is ours to look behind")
    provider.build(control_plane_only=False)
    chosen = f"pytest-traces-{uuid.uuid4().hex[:8]}"
    yield chosen
    found = provider.find(chosen)
    if found is not None:
        found.stop()


def test_a_cluster_comes_up_twice_and_goes_without_a_trace(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = provider.start(name, nodes=2, control_plane_only=False)
    again = provider.start(name, nodes=2, control_plane_only=False)
    assert again.plan == cluster.plan
    assert "already up; nothing to do" in capsys.readouterr().err

    cluster.load_image(images.busybox())
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    image = f"--image={images.BUSYBOX}"
    kubectl("create", "deployment", "some", image, "--replicas=4", "--", "sleep", "3600")
    kubectl("rollout", "status", "deployment/some", "--timeout=120s")
    running = _processes(cluster.plan)
    assert len(running) > 10
    cluster.stop()
    _assert_no_trace(cluster.plan, running)

    provider.start(name, nodes=1, control_plane_only=False).stop()
    _assert_no_trace(cluster.plan, {})


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_start_is_cleaned_up_by_down(name: str, sign: signal.Signals) -> None:
    with subprocess.Popen([_COMMAND, "up", "--name", name, "--provider", "local"]) as up:
        wait_until(lambda: _has_a_node(name), what="the first node is starting", deadline=120)
        found = provider.find(name)
        assert found is not None
        running = _processes(found.plan)
        up.send_signal(sign)
    assert up.returncode != 0
    run([_COMMAND, "down", "--name", name], what="down")
    _assert_no_trace(found.plan, running)


def _has_a_node(name: str) -> bool:
    found = provider.find(name)
    return found is not None and (found.plan.folder / "node-1.pid").exists()


def _processes(plan: Blueprint) -> dict[int, str]:
    """Return pid and start time of the cluster's processes and all their descendants."""
    stats = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        stats[int(entry.parent.name)] = (int(fields[1]), fields[19])
    ours = {pid for pid in stats if str(plan.folder) in _command_line(pid)}
    while more := {pid for pid, (parent, _) in stats.items() if parent in ours} - ours:
        ours |= more
    return {pid: stats[pid][1] for pid in ours}


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _assert_no_trace(plan: Blueprint, running: dict[int, str]) -> None:
    # A dead process is a zombie until the machine's init has seen it: give it that time.
    wait_until(
        lambda: not running.items() & _processes_of(running).items(),
        what="every process is gone",
        deadline=30,
    )
    assert not _processes(plan)
    assert not plan.folder.exists()
    assert plan.tag not in Path("/proc/self/mountinfo").read_text()
    assert str(plan.folder) not in Path("/proc/self/mountinfo").read_text()
    assert not list(Path("/sys/class/net").glob(f"{plan.tag}*"))
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{plan.tag}"))
    assert f"10.{plan.subnet}." not in run(["ip", "route", "show", "table", "all"], what="ip")
    assert f"10.{plan.subnet}." not in run(["iptables-save"], what="iptables-save")


def _processes_of(pids: dict[int, str]) -> dict[int, str]:
    """Return those of the pids that exist, with their start times."""
    found = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[pid] = fields[19]
    return found
