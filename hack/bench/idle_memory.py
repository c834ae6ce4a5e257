"""How much memory a sidecar takes while it has nothing to do, and how quickly it is there.

    hack/python hack/bench/idle_memory.py [VERSION]

A RabbitMQ of that version is started with one queue on it, and beside it a sidecar as in a pod,
with an app that is there and no job. «resident» is what `kubectl top` comes near to; «own» is what
one more sidecar on the same node costs, because the files of the image are shared. Fails if the
resident memory is 80 MiB or more.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials
from testbed import rabbitmq
from testbed.ports import free_ports
from testbed.processes import wait_until
from testbed.rabbitmq import Broker

MOST_MIB = 80.0
SETTLED_SECONDS = 5.0
"""Idle is what it is after the first heartbeats, not right after the start."""

NAMESPACE = "bench"
KIB_PER_MIB = 1024


def manifest(app_port: int) -> dict[str, object]:
    return {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": "NamedQueue",
        "metadata": {"name": "orders", "namespace": NAMESPACE},
        "spec": {"worker": {"port": app_port}},
    }


async def declare(node: Broker, queue: NamedQueue) -> None:
    """Do the operator's part."""
    credentials = partial(Credentials.from_url, node.amqp_url())
    url = node.management_url
    broker = RabbitMQBroker(credentials, vhost=f"nq-{NAMESPACE}", management_url=url)
    await broker.open()
    await broker.declare(queue)
    await broker.close()


@contextmanager
def app() -> Iterator[int]:
    """Run an app that accepts connections; give its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield server.server_port
        server.shutdown()


@contextmanager
def sidecar(node: Broker, queue: dict[str, object]) -> Iterator[tuple[int, float]]:
    """Run a sidecar; give its pid when it is ready, and the seconds that took."""
    with tempfile.TemporaryDirectory() as folder:
        queues, broker = Path(folder, "queues"), Path(folder, "broker")
        queues.mkdir()
        broker.mkdir()
        (queues / "orders.json").write_text(json.dumps(queue))
        (broker / "connection_string").write_text(node.amqp_url())
        port, observed = free_ports(2)
        options = [f"--queues={queues}", f"--broker={broker}", f"--namespace={NAMESPACE}"]
        options += [f"--port={port}", f"--observe-port={observed}", "--observe-host=127.0.0.1"]
        command = [sys.executable, "-m", "namedqueue_sidecar", *options, "--log-level=error"]
        began = time.monotonic()
        with subprocess.Popen(command) as process:
            try:
                wait_until(partial(is_ready, observed), what="the sidecar is ready")
                yield process.pid, time.monotonic() - began
            finally:
                process.terminate()


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz/ready", trust_env=False).is_success
    except httpx.TransportError:
        return False


def memory(pid: int) -> dict[str, float]:
    """Return the kinds of memory of a process in MiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kinds = {line.split(":")[0]: int(line.split()[1]) / KIB_PER_MIB for line in text}
    own = kinds["Private_Clean"] + kinds["Private_Dirty"]
    return {"resident": kinds["Rss"], "proportional": kinds["Pss"], "own": own}


def main() -> int:
    version = sys.argv[1] if len(sys.argv) > 1 else rabbitmq.VERSIONS[-1]
    node = rabbitmq.start(version, f"bench-idle-memory-{os.getpid()}")
    try:
        node.create_vhost(f"nq-{NAMESPACE}")
        with app() as port:
            queue = manifest(port)
            asyncio.run(declare(node, NamedQueue.model_validate(queue)))
            with sidecar(node, queue) as (pid, seconds):
                time.sleep(SETTLED_SECONDS)
                found = memory(pid)
    finally:
        node.remove()
    print(f"ready after    {seconds:6.2f} s")
    for kind, mebibytes in found.items():
        print(f"{kind:14} {mebibytes:6.1f} MiB")
    return 0 if found["resident"] < MOST_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
