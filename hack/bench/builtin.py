"""How fast the builtin broker enqueues and works jobs off, in memory and in a file.

    hack/python hack/bench/builtin.py [JOBS]

Each row is one run over the same jobs of 256 bytes. «one by one» waits for each confirm before it
sends the next, as a script does; «64 at once» has as many publishers at work, as an HTTP server
has; «in batches» sends 100 with each call. «work» is deliver and ack, with a prefetch of 20.

huey on SQLite and persist-queue are run the same way if they can be imported; they are no
dependencies of ours (`uv pip install huey persist-queue` into a throwaway venv, and its
site-packages on PYTHONPATH). Both confirm from the calling thread. huey keeps SQLite's default of
synchronous=FULL only if asked to (`fsync=True`), so both of its ways are shown.
"""

import asyncio
import importlib
import importlib.util
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.envelope import Job
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Delivery, Main, QueueKey, Subscription, Verdict

JOBS = 20_000
FEW = 10
"""One by one is slow where each confirm is a sync, so it gets this part of the jobs."""

PUBLISHERS = 64
BATCH = 100
PREFETCH = 20
QUEUE = QueueKey("default", "bench")
MANIFEST = NamedQueue.model_validate({"metadata": {"name": "bench"}})
PAYLOAD = b"x" * 256


def job(number: int) -> Job:
    now = time.time_ns() // 1_000_000
    return Job(f"job-{number}", "bench", PAYLOAD, now, now)


async def publish(broker: BuiltinBroker, jobs: Sequence[Job]) -> None:
    """Publish a batch and wait for its confirm."""
    settled: asyncio.Future[Sequence[Verdict]] = asyncio.get_running_loop().create_future()
    broker.publish([Main(QUEUE, each) for each in jobs], settled.set_result)
    if set(await settled) != {Verdict.CONFIRMED}:
        raise RuntimeError("a job was not confirmed")


async def one_by_one(broker: BuiltinBroker, count: int) -> None:
    for number in range(count):
        await publish(broker, [job(number)])


async def many_at_once(broker: BuiltinBroker, count: int) -> None:
    numbers = iter(range(count))

    async def publisher() -> None:
        for number in numbers:
            await publish(broker, [job(number)])

    await asyncio.gather(*(publisher() for _ in range(PUBLISHERS)))


async def in_batches(broker: BuiltinBroker, count: int) -> None:
    numbers = iter(range(count))
    while numbers_of_batch := list(islice(numbers, BATCH)):
        await publish(broker, [job(number) for number in numbers_of_batch])


class Worker:
    """Acknowledges what it is given at once."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = asyncio.Event()
        self.subscription: Subscription | None = None

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.left -= len(deliveries)
        if self.subscription is not None:
            self.subscription.ack(deliveries)
        if self.left == 0:
            self.done.set()

    def lost(self) -> None:
        pass


async def work(broker: BuiltinBroker, count: int) -> None:
    """Work everything off, and wait until the last ack is safe: a publish after it is."""
    worker = Worker(count)
    worker.subscription = broker.subscribe(QUEUE, worker, PREFETCH)
    await worker.done.wait()
    await publish(broker, [job(count)])
    await worker.subscription.close()


class Meter:
    """Measures in seconds of the clock, which others on the machine slow down, and of the CPU."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._clock, self._cpu = time.perf_counter(), time.process_time()

    def read(self, count: int) -> str:
        """Return the rate since the last reading."""
        clock, cpu = time.perf_counter() - self._clock, time.process_time() - self._cpu
        self._begin()
        return f"{count / clock:8,.0f}/s {cpu / count * 1e6:5.0f} µs CPU"


async def builtin(name: str, data: Path | None, jobs: int) -> None:
    broker = BuiltinBroker(data)
    await broker.open()
    try:
        await broker.declare(MANIFEST)
        for how, enqueue, count in (
            ("one by one", one_by_one, jobs // FEW if data else jobs),
            ("64 at once", many_at_once, jobs),
            ("in batches", in_batches, jobs),
        ):
            await broker.undeclare(QUEUE)
            await broker.declare(MANIFEST)
            meter = Meter()
            await enqueue(broker, count)
            enqueued = meter.read(count)
            await work(broker, count)
            show(name, how, enqueued, meter.read(count))
    finally:
        await broker.close()


def huey(data: Path, jobs: int, *, fsync: bool) -> None:
    storage_of: Any = importlib.import_module("huey.storage")
    storage = storage_of.SqliteStorage(filename=str(data / f"huey-{fsync}.db"), fsync=fsync)
    count = jobs // FEW
    meter = Meter()
    for _ in range(count):
        storage.enqueue(PAYLOAD)
    enqueued = meter.read(count)
    while storage.dequeue() is not None:
        pass
    show(f"huey, SQLite, fsync={fsync}", "one by one", enqueued, meter.read(count))
    storage.close()


def persist_queue(data: Path, jobs: int) -> None:
    module: Any = importlib.import_module("persistqueue")
    queue = module.SQLiteAckQueue(str(data / "persist-queue"), auto_commit=True)
    count = jobs // FEW
    meter = Meter()
    for _ in range(count):
        queue.put(PAYLOAD)
    enqueued = meter.read(count)
    for _ in range(count):
        queue.ack(queue.get())
    show("persist-queue, ack queue", "one by one", enqueued, meter.read(count))
    queue.close()


def show(name: str, how: str, enqueued: str, worked: str) -> None:
    print(f"{name:26} {how:11} enqueue {enqueued}   work {worked}", flush=True)


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    with tempfile.TemporaryDirectory(prefix="nq-bench-") as place:
        data = Path(place)
        asyncio.run(builtin("builtin, memory", None, jobs))
        asyncio.run(builtin("builtin, file", data / "builtin", jobs))
        if importlib.util.find_spec("huey"):
            huey(data, jobs, fsync=True)
            huey(data, jobs, fsync=False)
        if importlib.util.find_spec("persistqueue"):
            persist_queue(data, jobs)


if __name__ == "__main__":
    main()
