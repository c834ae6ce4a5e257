"""A sidecar that is killed with jobs in its hands: the broker gives them out again, uncounted."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest

from broker.port.play import NAMESPACE, declare, enqueue, eventually, job, named_queue
from fixtures.adapters import rabbitmq_client
from fixtures.planes import TinyApp, tiny_app
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from testbed.rabbitmq import Broker

CONCURRENCY = 5


@pytest.fixture
async def app() -> AsyncIterator[TinyApp]:
    async with tiny_app() as running:
        yield running


@pytest.fixture
async def client(broker: Broker, vhost: str) -> AsyncIterator[RabbitMQBroker]:
    async with AsyncExitStack() as opened:
        opened.push_async_callback((made := rabbitmq_client(broker, vhost)).close)
        await made.open()
        yield made


def mounts(folder: Path, node: Broker, app: TinyApp) -> tuple[Path, Path]:
    """Write what a pod's sidecar finds mounted: its queue, and how to reach its broker."""
    queues, account = folder / "queues", folder / "broker"
    queues.mkdir()
    account.mkdir()
    worker = {"port": app.port, "path": "/jobs", "concurrency": CONCURRENCY}
    manifest = named_queue(worker=worker).model_dump(mode="json", by_alias=True, exclude_none=True)
    (queues / "orders.json").write_text(json.dumps(manifest))
    for key, value in {
        "host": "127.0.0.1",
        "port": str(node.amqp_port),
        "username": node.username,
        "password": node.password,
    }.items():
        (account / key).write_text(value)
    return queues, account


def sidecar(queues: Path, account: Path, vhost: str) -> "subprocess.Popen[bytes]":
    options = [f"--queues={queues}", f"--broker={account}", f"--vhost={vhost}"]
    options += [f"--namespace={NAMESPACE}", "--port=0", "--observe-port=0"]
    return subprocess.Popen([sys.executable, "-m", "namedqueue_sidecar", *options])


def calls(app: TinyApp) -> Counter[str]:
    """Count how often each job came to the app."""
    return Counter(got.headers["ce-id"] for got in app.got)


async def test_what_a_killed_sidecar_held_is_done_by_the_next_one_as_the_same_attempt(
    broker: Broker, vhost: str, client: RabbitMQBroker, app: TinyApp, tmp_path: Path
) -> None:
    queue = await declare(client)
    await enqueue(client, queue, *(sent := [job() for _ in range(50)]))
    where = mounts(tmp_path, broker, app)
    app.open.clear()
    with ExitStack() as processes:
        first = processes.enter_context(sidecar(*where, vhost))
        processes.callback(first.kill)
        await eventually(lambda: len(app.got) >= CONCURRENCY, "the first sidecar is at work")
        first.kill()
        held = {got.headers["ce-id"] for got in app.got}
        second = processes.enter_context(sidecar(*where, vhost))
        processes.callback(second.terminate)
        app.open.set()
        wanted = Counter(each.id for each in sent) + Counter(held)
        await eventually(lambda: calls(app) >= wanted, "all came, and what was held again")
        await asyncio.to_thread(second.terminate)
        assert await asyncio.to_thread(second.wait, 60) == 0
    assert {one for one, times in calls(app).items() if times > 1} == held
    assert {got.headers["nq-attempt"] for got in app.got} == {"1"}
    depth = await client.depth(queue)
    assert depth is not None
    assert depth.dead == 0
