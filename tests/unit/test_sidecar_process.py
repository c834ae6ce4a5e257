"""The sidecar as a process while its broker is away: what it says, and how it ends."""

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.ports import free_ports
from testbed.processes import wait_until

_MANIFEST = {
    "apiVersion": "namedqueue.io/v1alpha1",
    "kind": "NamedQueue",
    "metadata": {"name": "orders", "namespace": "shop"},
    "spec": {"worker": {"port": 1}},
}

_GRACE = 20


class Sidecar(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int
    observers: int

    def ask(self, method: str, path: str, port: int | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=30)
        try:
            connection.request(method, path, body=b"{}" if method == "POST" else None)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def answers(self) -> bool:
        assert self.process.poll() is None, "it ended"
        try:
            return self.ask("GET", "/healthz/live", self.observers)[0] == 200
        except OSError:
            return False


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    """Run a sidecar with one queue, whose broker and whose app do not exist."""
    broker, queues = tmp_path / "broker", tmp_path / "queues"
    queues.mkdir()
    (queues / "orders.json").write_text(json.dumps(_MANIFEST))
    away, port, observers = free_ports(3)
    keys = {"host": "127.0.0.1", "port": str(away), "username": "nq", "password": "hidden"}
    broker.mkdir()
    for key, value in keys.items():
        (broker / key).write_text(value)
    options = [f"--queues={queues}", f"--broker={broker}", "--namespace=shop", f"--grace={_GRACE}"]
    options += [f"--port={port}", f"--observe-port={observers}", "--observe-host=127.0.0.1"]
    command = [sys.executable, "-m", "namedqueue_sidecar", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        running = Sidecar(process, port, observers)
        wait_until(running.answers, what="the sidecar answers")
        yield running
        process.kill()
        log = process.communicate()[1]
    assert b"hidden" not in log
    assert b"Traceback" not in log, log.decode()


def test_a_queue_is_unavailable_and_not_unknown_while_the_broker_is_away(sidecar: Sidecar) -> None:
    status, problem = sidecar.ask("POST", "/v1/queues/orders/messages")
    assert (status, problem["code"]) == (503, "BROKER_UNAVAILABLE")
    assert sidecar.ask("POST", "/v1/queues/others/messages")[0] == 404


def test_readiness_names_the_broker_and_the_app_from_its_first_answer_on(sidecar: Sidecar) -> None:
    status, document = sidecar.ask("GET", "/healthz/ready", sidecar.observers)
    assert status == 503
    first, second = document["missing"]
    assert first.startswith("broker: ")
    assert second == "the app of shop/orders does not answer yet"


def test_the_way_out_is_not_open_to_observers(sidecar: Sidecar) -> None:
    assert sidecar.ask("POST", "/drain", sidecar.observers)[0] == 404


def test_it_ends_by_one_signal_although_the_broker_never_came(sidecar: Sidecar) -> None:
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.process.wait(timeout=30) == 0


def test_the_drain_command_drains_and_a_signal_then_ends_it_at_once(sidecar: Sidecar) -> None:
    command = [sys.executable, "-m", "namedqueue_sidecar.drain", f"--port={sidecar.port}"]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
    for port in (sidecar.port, sidecar.observers):
        assert sidecar.ask("GET", "/wait-for-drain", port) == (200, {"status": "drained"})
    assert "draining" in sidecar.ask("GET", "/healthz/ready")[1]["missing"]
    began = time.monotonic()
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.process.wait(timeout=30) == 0
    assert time.monotonic() - began < _GRACE


def test_the_drain_command_says_so_when_there_is_nothing_to_drain() -> None:
    command = [sys.executable, "-m", "namedqueue_sidecar.drain", f"--port={free_ports(1)[0]}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("nothing to drain: ")
    assert "Traceback" not in done.stderr


def test_how_full_the_queues_are_is_a_503_in_time_while_the_broker_is_away(
    sidecar: Sidecar,
) -> None:
    began = time.monotonic()
    for path in ("/v1/queues", "/v1/queues/orders", "/v1/queues/orders/dead-letters"):
        status, problem = sidecar.ask("GET", path)
        assert (status, problem["code"]) == (503, "BROKER_UNAVAILABLE"), path
    assert time.monotonic() - began < 45
