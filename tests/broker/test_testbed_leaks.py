"""What the test bed starts it also ends: no process, mount, port or file stays.

Processes are recognised by the instance's folder, which is mounted in the namespace that a server
gets: whatever a server begins lives in it, under any name and any parent.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testbed import instances, postgresql, processes, rabbitmq
from testbed.ports import accepts
from testbed.processes import wait_until

HACK = Path(__file__).parents[2] / "hack"


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path
    for name in instances.names(rabbitmq.KIND):
        rabbitmq.remove(name)
    for name in instances.names(postgresql.KIND):
        postgresql.remove(name)


def command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"testbed.{module}", *arguments]


def begin(module: str, *arguments: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(HACK)}
    return subprocess.Popen(
        command(module, *arguments),
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def call(module: str, *arguments: str) -> str:
    with begin(module, *arguments) as process:
        output, complaints = process.communicate(timeout=240)
    assert process.returncode == 0, complaints
    return output + complaints


def living_off(folder: Path) -> list[str]:
    """Return the living processes that see the folder mounted: a server and all it began."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(folder) in (entry / "mountinfo").read_text():
                found.append(f"pid {entry.name}")
    return found


def nothing_lives_off(folder: Path) -> None:
    """Wait until what was ended is gone: a killed server's helpers end by themselves."""
    wait_until(lambda: living_off(folder) == [], what="what was ended is gone", deadline=30)


def mounts_of(folder: Path) -> list[str]:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in mounts if str(folder) in line or "roots/rabbitmq-" in line]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def test_a_broker_that_was_up_twice_leaves_nothing(broker_version: str, state_home: Path) -> None:
    for _ in range(2):
        call("broker", "up", "--version", broker_version)
        assert "already runs" in call("broker", "up", "--version", broker_version)
        broker = rabbitmq.find(broker_version)
        assert broker is not None
        assert len(living_off(state_home)) > 2, "the node, its port mapper and more"
        assert broker.amqp_url() in call("broker", "url", "--version", broker_version)
        assert "Server startup complete" in call("broker", "logs", "--version", broker_version)

        call("broker", "down", "--version", broker_version)

        nothing_lives_off(state_home)
        assert mounts_of(state_home) == []
        ports = broker.ports
        assert not any(map(accepts, (*ports.public, ports.distribution, ports.epmd)))
        assert files_in(state_home) == []


def test_a_broker_whose_caller_was_killed_half_way_is_cleaned_up(
    broker_version: str, state_home: Path
) -> None:
    state = instances.folder(rabbitmq.KIND, broker_version)
    with begin("broker", "up", "--version", broker_version) as caller:
        wait_until(lambda: processes.find("rabbitmq", state) is not None, what="the node begins")
        caller.kill()
    assert living_off(state_home), "the node outlives its caller"

    call("broker", "down", "--version", broker_version)

    nothing_lives_off(state_home)
    assert mounts_of(state_home) == []
    assert files_in(state_home) == []


def test_an_interrupted_start_leaves_nothing(state_home: Path) -> None:
    version = rabbitmq.VERSIONS[-1]
    state = instances.folder(rabbitmq.KIND, version)
    with begin("broker", "up", "--version", version) as caller:
        wait_until(lambda: processes.find("rabbitmq", state) is not None, what="the node begins")
        caller.send_signal(signal.SIGINT)
        caller.communicate(timeout=60)
    nothing_lives_off(state_home)
    assert mounts_of(state_home) == []
    assert files_in(state_home) == []


def test_a_database_that_was_up_twice_leaves_nothing(state_home: Path) -> None:
    for _ in range(2):
        call("postgres", "up")
        assert "already runs" in call("postgres", "up")
        server = postgresql.find("default")
        assert server is not None
        assert len(living_off(state_home)) > 2, "the server and its workers"

        call("postgres", "down")

        nothing_lives_off(state_home)
        assert mounts_of(state_home) == []
        assert not accepts(server.port)
        assert files_in(state_home) == []


def test_a_failed_start_names_the_log_and_leaves_no_process(
    state_home: Path, broker_version: str
) -> None:
    with pytest.raises(processes.TestbedError, match=r"rabbitmq\.log"):
        rabbitmq.start(broker_version, "broken", settings={"no_such_setting": "1"})
    state = instances.folder(rabbitmq.KIND, "broken")
    assert processes.find("rabbitmq", state) is None
    assert processes.find("epmd", state) is None
    assert "no_such_setting" in (state / "rabbitmq.log").read_text()
    assert mounts_of(state_home) == []
