"""Rows a second from Spark into a quorum queue: the data source, and what one would write by hand.

    hack/python hack/bench/spark.py [ROWS] [ROUNDS]

One RabbitMQ, one Spark in local mode with two tasks, one DataFrame of rows of about 1 KiB as JSON.
It is written through the sidecar by the data source, and straight to the broker by code for
`foreachPartition`: with pika as its tutorial has it (a confirm awaited for each row) and as fast as
pika can (rows and confirms under way at the same time), and with aio-pika (so many at once as the
broker takes). All ways persist, confirm and count. They take turns, so that all have the same
weather; the best round of each counts.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aio_pika
import pika
from pika.adapters.select_connection import SelectConnection
from pyspark.sql import DataFrame, Row, SparkSession

from testbed import rabbitmq
from testbed.ports import accepts, free_ports
from testbed.processes import wait_until
from testbed.rabbitmq import VERSIONS, Broker

ROWS, ROUNDS = 400_000, 2
TASKS = 2
WINDOW = 1_000
"""Rows under way, for those ways that can have several."""

QUEUE = "orders"
EXCHANGE = f"nq.bench.{QUEUE}"
MAIN = f"{EXCHANGE}.main"
PERSISTENT: Final = 2


class Pipelined:
    """Publishes rows with pika's fastest connection: confirms come while more is sent."""

    def __init__(self, url: str, rows: Iterable[Row]) -> None:
        self._rows = iter(rows)
        self._sent = self._confirmed = 0
        self._ended = False
        self._properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        self._connection = SelectConnection(pika.URLParameters(url), on_open_callback=self._opened)

    def run(self) -> None:
        self._connection.ioloop.start()

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._ready)

    def _ready(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._answered, callback=lambda _: self._fill())

    def _fill(self) -> None:
        while self._sent - self._confirmed < WINDOW and not self._ended:
            row = next(self._rows, None)
            if row is None:
                self._ended = True
                break
            self._channel.basic_publish(EXCHANGE, "", body(row), self._properties, mandatory=True)
            self._sent += 1
        if self._ended and self._confirmed == self._sent:
            self._connection.ioloop.stop()

    def _answered(self, frame: Any) -> None:
        if not isinstance(frame.method, pika.spec.Basic.Ack):
            raise RuntimeError("the broker refused a row")  # noqa: TRY004  # not a wrong argument
        tag = frame.method.delivery_tag
        self._confirmed = tag if frame.method.multiple else self._confirmed + 1
        if self._sent - self._confirmed <= WINDOW // 2:
            self._fill()


def body(row: Row) -> bytes:
    return json.dumps(row.asDict()).encode()


def with_pika(url: str) -> Callable[[Iterable[Row]], None]:
    def send(rows: Iterable[Row]) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        for row in rows:
            channel.basic_publish(EXCHANGE, "", body(row), properties, mandatory=True)
        connection.close()

    return send


def with_pipelined_pika(url: str) -> Callable[[Iterable[Row]], None]:
    def send(rows: Iterable[Row]) -> None:
        Pipelined(url, rows).run()

    return send


def with_aio_pika(url: str) -> Callable[[Iterable[Row]], None]:
    async def publish(rows: Iterable[Row]) -> None:
        connection = await aio_pika.connect(url)
        async with connection:
            channel = await connection.channel(on_return_raises=True)
            exchange = await channel.get_exchange(EXCHANGE, ensure=False)
            flying: list[asyncio.Task[Any]] = []
            for row in rows:
                message = aio_pika.Message(body(row), delivery_mode=PERSISTENT)
                flying.append(asyncio.ensure_future(exchange.publish(message, "")))
                if len(flying) == WINDOW:
                    await asyncio.gather(*flying)
                    flying.clear()
            await asyncio.gather(*flying)

    def send(rows: Iterable[Row]) -> None:
        asyncio.run(publish(rows))

    return send


def with_source(endpoint: str) -> Callable[[DataFrame], None]:
    def write(frame: DataFrame) -> None:
        given = {"queue": QUEUE, "endpoint": endpoint}
        frame.write.format("namedqueue").options(**given).mode("append").save()

    return write


@contextmanager
def sidecar(broker: Broker, vhost: str) -> Iterator[str]:
    """Serve the queue on the broker, as a pod's sidecar does; it also makes the queue."""
    [port] = free_ports(1)
    manifest = {
        "apiVersion": "namedqueue.io/v1alpha1",
        "kind": "NamedQueue",
        "metadata": {"name": QUEUE, "namespace": "bench"},
        "spec": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queue.yaml"
        path.write_text(json.dumps(manifest))
        options = [f"--broker={broker.amqp_url(vhost)}", f"--management={broker.management_url}"]
        process = subprocess.Popen(
            [Path(sys.executable).parent / "nq", "run", f"--port={port}", *options, path],
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: accepts(port), what="the sidecar serves", deadline=60)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def by_hand(send: Callable[[Iterable[Row]], None]) -> Callable[[DataFrame], None]:
    return lambda frame: frame.rdd.foreachPartition(send)


def measure(
    broker: Broker, vhost: str, write: Callable[[DataFrame], None], frame: DataFrame
) -> float:
    """Return how long it took, with every row in the queue, which is emptied afterwards."""
    rows = frame.count()
    began = time.monotonic()
    write(frame)
    took = time.monotonic() - began
    depth = pika.BlockingConnection(pika.URLParameters(broker.amqp_url(vhost)))
    channel = depth.channel()
    there = channel.queue_declare(MAIN, passive=True).method.message_count
    channel.queue_purge(MAIN)
    depth.close()
    if there != rows:
        raise SystemExit(f"{there} of {rows} rows are in the queue")
    return took


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all of it ends with us
    given = [int(each) for each in sys.argv[1:3]]
    rows, rounds = (*given, *(ROWS, ROUNDS)[len(given) :])
    broker = rabbitmq.start(VERSIONS[-1], "bench-spark")
    try:
        broker.create_vhost("bench")
        url = broker.amqp_url("bench")
        with sidecar(broker, "bench") as endpoint, session() as spark:
            frame = spark.range(0, rows, 1, TASKS).selectExpr(
                "id", "concat('c-', id % 97) customer", "id / 100 price", "repeat('x', 900) note"
            )
            frame = frame.persist()
            few = frame.limit(max(rows // 20, 1)).repartition(TASKS).persist()
            ways = {
                "the data source": (with_source(endpoint), frame),
                "pika, pipelined": (by_hand(with_pipelined_pika(url)), frame),
                "aio-pika, 1,000 at once": (by_hand(with_aio_pika(url)), frame),
                "pika, as in its tutorial": (by_hand(with_pika(url)), few),
            }
            best: dict[str, float] = {}
            for _ in range(rounds):
                for name, (write, what) in ways.items():
                    rate = what.count() / measure(broker, "bench", write, what)
                    best[name] = max(best.get(name, 0.0), rate)
    finally:
        rabbitmq.remove("bench-spark")
    print("| written by | rows/s |\n|---|---|")
    for name, rate in best.items():
        print(f"| {name} | {rate:,.0f} |")
    if best["the data source"] < max(best.values()):
        raise SystemExit("the data source is not the fastest")


if __name__ == "__main__":
    main()
