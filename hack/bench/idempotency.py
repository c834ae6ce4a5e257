"""What idempotency costs: jobs a second with it and without it, in one run.

    hack/python hack/bench/idempotency.py [JOBS]

The builtin broker in memory, one worker, an app in the same process that answers at once over real
HTTP; so what is compared is the sidecar's own work. Runs with a store and without take turns, and
the ratio is between the medians of the two.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.envelope import Job
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Main, QueueKey
from namedqueue_sidecar.plane import Plane
from namedqueue_sidecar.store.addresses import Address, Sqlite, from_url
from namedqueue_sidecar.store.sql import SqlStore
from testbed import postgresql

JOBS = 5_000
CONCURRENCY = 100
ROUNDS = 3
QUEUE = QueueKey("default", "bench")


class App:
    """Counts its calls."""

    def __init__(self, jobs: int) -> None:
        self.left = jobs
        self.done = asyncio.Event()

    async def handle(self, _request: web.BaseRequest) -> web.Response:
        self.left -= 1
        if self.left <= 0:
            self.done.set()
        return web.Response()


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[int]:
    runner = web.ServerRunner(web.Server(app.handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def manifest(port: int, *, guarded: bool) -> NamedQueue:
    spec: dict[str, Any] = {"worker": {"port": port, "concurrency": CONCURRENCY}}
    if guarded:
        spec["idempotency"] = {"key": "messageId"}
    return NamedQueue.model_validate({"metadata": {"name": QUEUE.name}, "spec": spec})


async def rate(jobs: int, address: Address | None, round_: int) -> float:
    """Return how many jobs a second one worker gets done, from their sending to the last call."""
    broker = BuiltinBroker(None)
    await broker.open()
    store = None
    if address is not None:
        store = SqlStore(lambda: address)
        await store.open()
    plane, app = Plane(broker, QUEUE.namespace, store=store), App(jobs)
    async with serving(app) as port:
        await plane.apply([manifest(port, guarded=bool(store))], declare=True, work=True)
        now = time.time_ns() // 1_000_000
        ids = (f"job-{round_}-{number}" for number in range(jobs))
        made = [Job(each, QUEUE.name, b"{}", now, now) for each in ids]
        began = time.perf_counter()
        await plane.send(QUEUE, [Main(QUEUE, each) for each in made])
        await app.done.wait()
        seconds = time.perf_counter() - began
        await plane.close()
    return jobs / seconds


def show(name: str, jobs: int, address: Address) -> None:
    """Print what a store costs, with keys that it has not seen."""
    pairs = [
        [uvloop.run(rate(jobs, each, round_)) for each in (None, address)]
        for round_ in range(ROUNDS)
    ]
    without, guarded = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    print(
        f"{name:18} without {without:7,.0f}/s   with {guarded:7,.0f}/s   "
        f"ratio {guarded / without:.2f}",
        flush=True,
    )


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    server = postgresql.start("bench-idempotency")
    try:
        show("PostgreSQL", jobs, from_url(server.create_database("bench")))
    finally:
        server.remove()
    with tempfile.TemporaryDirectory(prefix="nq-bench-") as place:
        show("SQLite, file", jobs, Sqlite(Path(place) / "store.sqlite"))
    show("SQLite, in memory", jobs, Sqlite())


if __name__ == "__main__":
    main()
