"""`python -m namedqueue_sidecar redrive`: the Job of a QueueRedrive, killed again and again."""

import asyncio
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.port.play import Hands, bury_at_once, eventually, named_queue
from fixtures.adapters import rabbitmq_client
from fixtures.scale import FULL, scaled
from namedqueue.triage import Review
from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.store.addresses import from_url
from namedqueue_sidecar.store.database import Database
from namedqueue_sidecar.store.letters import Letters
from namedqueue_sidecar.store.port import Met, Search
from testbed import rabbitmq

KEY = QueueKey("shop", "orders")
UID = "5f1d7a84"
KILLS = 10 if FULL else 3


class Place:
    """A queue with dead letters, and the files that its redrive is given."""

    def __init__(self, node: rabbitmq.Broker, vhost: str, folder: Path) -> None:
        self.client: RabbitMQBroker = rabbitmq_client(node, vhost)
        self.binding, self.redrive = folder / "binding", folder / "redrive.json"
        self.summary = folder / "termination-log"
        self.binding.mkdir()
        queue = named_queue().model_dump(mode="json", by_alias=True, exclude_none=True)
        (self.binding / "orders.json").write_text(json.dumps(queue))
        (self.binding / "connection_string").write_text(node.amqp_url(vhost))
        (self.binding / "vhost").write_text(vhost)

    def ask(self, **spec: Any) -> None:
        """Write the QueueRedrive."""
        metadata = {"name": "fix", "namespace": "shop", "uid": UID}
        document = {"apiVersion": "namedqueue.io/v1alpha1", "kind": "QueueRedrive"}
        spec = {"queue": "orders", **spec}
        self.redrive.write_text(json.dumps({**document, "metadata": metadata, "spec": spec}))

    async def start(self, *more: str) -> asyncio.subprocess.Process:
        """Start the Job's process."""
        arguments = [*more, "--binding", self.binding, "--redrive", self.redrive]
        arguments += ["--summary", self.summary, "--every", "0.05"]
        command = [sys.executable, "-m", "namedqueue_sidecar", "redrive", *map(str, arguments)]
        return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)

    def result(self) -> dict[str, Any]:
        """Return what the operator would read from the pod."""
        found: dict[str, Any] = json.loads(self.summary.read_text())
        return found

    async def jobs(self, count: int) -> list[str]:
        """Take all jobs out of the main queue and name them, once so many have come."""
        hands = Hands()
        subscription = self.client.subscribe(KEY, hands, prefetch=10_000)

        def acked() -> bool:
            subscription.ack(hands.take())
            return len(hands.came) >= count

        await eventually(acked, f"{count} jobs are in the main queue", within=120)
        await asyncio.sleep(0.5)  # one too many would come now
        subscription.ack(hands.take())
        await subscription.close()
        return hands.ids


@pytest.fixture
async def place(broker: rabbitmq.Broker, vhost: str, tmp_path: Path) -> Any:
    """Give a declared, empty queue."""
    place = Place(broker, vhost, tmp_path)
    await place.client.open()
    await place.client.declare(named_queue())
    yield place
    await place.client.close()


async def progress(process: asyncio.subprocess.Process, wanted: Callable[[Any], bool]) -> Any:
    """Read lines until one is as wanted; None if the process ended before."""
    assert process.stdout is not None
    async for line in process.stdout:
        if wanted(told := json.loads(line)):
            return told
    return None


@pytest.mark.timeout(900)
async def test_a_redrive_killed_again_and_again_sends_each_job_exactly_once(place: Place) -> None:
    jobs = scaled(50_000)
    sent = await bury_at_once(place.client, KEY, jobs)
    place.ask(ratePerSecond=jobs // 20)
    kills, seen = 0, 0
    while True:
        process = await place.start()
        if kills == KILLS:
            break
        goal = seen + jobs // (KILLS + 2)
        told = await progress(process, lambda line, goal=goal: line["redriven"] >= goal)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        if told is None:
            break
        await asyncio.sleep(random.uniform(0, 0.1))  # noqa: S311 - any moment of a batch
        process.kill()
        await process.communicate()
        kills, seen = kills + 1, told["redriven"]
    await process.communicate()
    assert process.returncode == 0
    result = place.result()
    assert (result["phase"], result["matched"], result["redriven"]) == ("Succeeded", jobs, jobs)
    assert result["remaining"] == 0
    arrived = Counter(await place.jobs(jobs))
    assert arrived == Counter(dict.fromkeys(sent, 1))
    assert await place.client.dead_letters(KEY).browse(None, 1) == ([], None)
    assert kills == KILLS
    print(f"{jobs} dead letters, {kills} kills, {arrived.total()} jobs in the main queue")  # noqa: T201 - a figure


async def test_a_terminated_redrive_says_how_far_it_came_and_goes_on(place: Place) -> None:
    sent = await bury_at_once(place.client, KEY, 200)
    place.ask(ratePerSecond=20)
    process = await place.start()
    assert await progress(process, lambda line: line["redriven"] >= 20)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 4
    stopped = place.result()
    assert stopped["phase"] == "Stopped"
    assert stopped["redriven"] + stopped["remaining"] == stopped["matched"] == 200
    place.ask()
    again = await place.start()
    await again.communicate()
    assert again.returncode == 0
    assert sorted(await place.jobs(200)) == sorted(sent)


async def test_a_dry_run_counts_by_reason_and_sends_nothing(place: Place) -> None:
    await bury_at_once(place.client, KEY, 7)
    await bury_at_once(place.client, KEY, 5, "TIMEOUT")
    place.ask(reason="HTTP_422", dryRun=True)
    process = await place.start()
    await process.communicate()
    assert process.returncode == 0
    result = place.result()
    assert (result["matched"], result["redriven"], result["phase"]) == (7, 0, "Succeeded")
    assert len((await place.client.dead_letters(KEY).browse(None, 100))[0]) == 12


async def test_a_redrive_without_its_queue_says_which_is_missing(place: Place) -> None:
    place.ask(queue="payments")
    process = await place.start()
    await process.communicate()
    assert process.returncode == 2


async def test_a_redrive_whose_store_has_no_usable_address_does_not_start(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "connection_string").write_text("mysql://nq:hidden@db/nq")
    place.ask()
    process = await place.start("--store", str(tmp_path / "store"))
    await process.communicate()
    assert process.returncode == 2


async def test_a_redrive_marks_in_the_store_what_it_sent(
    place: Place, database: str, tmp_path: Path
) -> None:
    sent = await bury_at_once(place.client, KEY, 12)
    store = Database(lambda: from_url(database))
    await store.open()
    records = Letters(store, *KEY)
    page, _ = await place.client.dead_letters(KEY).browse(None, 100)
    await records.write([Met(record, "cause", 90_000_000) for record in page])
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "connection_string").write_text(database)
    place.ask(limit=7)
    process = await place.start("--store", str(tmp_path / "store"))
    await process.communicate()
    assert process.returncode == 0
    replayed, _ = await records.page(Search(frozenset({Review.REPLAYED})), 0, 100)
    left, _ = await place.client.dead_letters(KEY).browse(None, 100)
    assert len(replayed) == 7
    ids = {kept.record.job.id for kept in replayed} | {record.job.id for record in left}
    assert ids == set(sent)
    assert {kept.redrive for kept in replayed} == {UID}
    await store.close()
