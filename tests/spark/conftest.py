"""A Spark in local mode, a data plane in a process of its own, and an app that keeps a ledger."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from fixtures.brokers import VERSIONS
from testbed.ports import accepts, free_ports
from testbed.processes import wait_until
from testbed.rabbitmq import Broker

NQ = Path(sys.executable).parent / "nq"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give one Spark for all tests: two cores, and four tries for each task."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.log.level", "OFF")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


class Ledger:
    """What an app has done: how often for each job, and with which payload."""

    def __init__(self, answer: Callable[[Any], int] = lambda _: 204) -> None:
        self.answer = answer
        self.times: Counter[str] = Counter()
        self.payloads: dict[str, Any] = {}
        self.port = 0

    @contextmanager
    def open(self) -> Iterator["Ledger"]:
        """Serve the app whose handler writes here."""
        ledger = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                ledger.times[self.headers["ce-id"]] += 1
                ledger.payloads[self.headers["ce-id"]] = json.loads(body)
                self.send_response(ledger.answer(json.loads(body)))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


class Plane:
    """A data plane in a process of its own, as executors find it beside them."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        """Ask its API."""
        with urlopen(f"{self.endpoint}/v1/{path}") as answer:  # noqa: S310  # ours
            return json.load(answer)

    def depth(self, queue: str) -> dict[str, int]:
        return dict(self.get(f"queues/{queue}")["depth"])

    def work_off(self, queue: str = "orders") -> None:
        """Wait until no job is left at any stage."""
        nothing = {"ready": 0, "inFlight": 0, "waiting": 0, "dead": 0}
        wait_until(lambda: self.depth(queue) == nothing, what="all jobs are done", deadline=120)


Serve: TypeAlias = Callable[..., Plane]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Give a way to serve queues, on the builtin broker or with `--broker` on a RabbitMQ."""
    with ExitStack() as running:

        def begin(*options: str, **queues: dict[str, Any]) -> Plane:
            [port] = free_ports(1)
            manifests = [
                {
                    "apiVersion": "namedqueue.io/v1alpha1",
                    "kind": "NamedQueue",
                    "metadata": {"name": name, "namespace": "shop"},
                    "spec": spec,
                }
                for name, spec in queues.items()
            ]
            path = tmp_path / f"queues-{port}.yaml"
            path.write_text("\n---\n".join(json.dumps(each) for each in manifests))
            running.enter_context(_process(port, path, *options))
            return Plane(port)

        yield begin


@contextmanager
def _process(port: int, manifests: Path, *options: str) -> Iterator[None]:
    log = manifests.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [NQ, "run", f"--port={port}", *options, manifests],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(lambda: accepts(port), what="nq run serves", deadline=120)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=90) == 0, log.read_text()


@pytest.fixture
def on_rabbitmq(shared_broker: Callable[[str], Broker]) -> Iterator[tuple[str, ...]]:
    """Give the options that serve queues on an empty vhost of a RabbitMQ."""
    node, vhost = shared_broker(VERSIONS[-1]), f"spark-{os.urandom(6).hex()}"
    node.create_vhost(vhost)
    yield f"--broker={node.amqp_url(vhost)}", f"--management={node.management_url}"
    node.delete_vhost(vhost)


@pytest.fixture(params=["builtin", "rabbitmq"])
def on_either(request: pytest.FixtureRequest, on_rabbitmq: tuple[str, ...], serve: Serve) -> Serve:
    """Give a way to serve queues on each adapter in turn."""
    options = on_rabbitmq if request.param == "rabbitmq" else ()
    return partial(serve, *options)
