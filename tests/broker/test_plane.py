"""A plane whose manifests change under way: no job in flight is dropped, none is run twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from broker.port.play import NAMESPACE, answer, eventually
from fixtures.planes import Stage, stage, tiny_app
from namedqueue_sidecar.brokers.port import Depth, QueueKey

KEY = QueueKey(NAMESPACE, "orders")
QUICK = {"maxAttempts": 2, "delay": "0ms", "maxDelay": "0ms"}


@pytest.fixture
async def scene() -> AsyncIterator[Stage]:
    """Serve a plane with no queue yet."""
    async with stage() as running:
        yield running


async def enqueue(scene: Stage, count: int, queue: str = "orders") -> None:
    entries = [{"payload": {"queue": queue, "n": n}} for n in range(count)]
    sent = await scene.api.post(f"/v1/queues/{queue}/messages:batch", entries)
    assert sent.json == {"accepted": count}


async def until_done(scene: Stage, key: QueueKey = KEY) -> None:
    await answer(lambda: scene.plane.broker.depth(key), lambda depth: depth == Depth(0, 0, 0, 0))


async def change_under_way(scene: Stage, *, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Change the queue while the app holds jobs; then let it go on until all are done."""
    await scene.apply(scene.queue(**before))
    scene.app.open.clear()
    await enqueue(scene, 20)
    await eventually(lambda: bool(scene.app.got), "the app is at work")
    changing = asyncio.create_task(scene.apply(scene.queue(**after)))
    await asyncio.sleep(0)
    scene.app.open.set()
    await changing
    await until_done(scene)
    ids = [job.headers["ce-id"] for job in scene.app.got]
    assert len(set(ids)) == len(ids) == 20


@pytest.mark.parametrize(
    "after",
    [
        {"worker_concurrency": 50},
        {"worker_concurrency": 1},
        {"retry": {"maxAttempts": 9}},
        {"schema": {"type": "object"}},
        {"worker_path": "/elsewhere"},
        {"worker_timeout": "60s"},
        {"worker_rateLimit": {"requests": 1000}},
        {"durable": {"maxLength": 5}},
        {"subscriptions": [{"topic": "a"}]},
    ],
    ids=str,
)
async def test_a_change_under_way_drops_no_job_and_runs_none_twice(
    scene: Stage, after: dict[str, Any]
) -> None:
    await change_under_way(scene, before={"worker_concurrency": 4}, after=after)


async def test_more_concurrency_holds_at_once(scene: Stage) -> None:
    await scene.apply(scene.queue(worker_concurrency=2))
    scene.app.open.clear()
    await enqueue(scene, 10)
    await scene.app.jobs(2)
    await scene.apply(scene.queue(worker_concurrency=5))
    await scene.app.jobs(5)
    assert len(scene.plane.workers[KEY].flights) == 5
    scene.app.open.set()
    await until_done(scene)


async def test_less_concurrency_holds_as_soon_as_what_was_begun_is_done(scene: Stage) -> None:
    await scene.apply(scene.queue(worker_concurrency=5))
    scene.app.open.clear()
    await enqueue(scene, 20)
    await scene.app.jobs(5)
    await scene.apply(scene.queue(worker_concurrency=1))
    most = 0

    def seen() -> bool:
        nonlocal most
        if scene.app.finished >= 5:
            most = max(most, len(scene.app.got) - scene.app.finished)
        return scene.app.finished == 20

    scene.app.open.set()
    await eventually(seen, "all jobs were done")
    assert most <= 1
    assert len(scene.app.got) == 20


async def test_a_changed_retry_holds_for_the_next_decision(scene: Stage) -> None:
    scene.app.status = 500
    scene.app.open.clear()
    await scene.apply(
        scene.queue(retry=QUICK | {"maxAttempts": 50, "delay": "1s", "maxDelay": "1s"})
    )
    await enqueue(scene, 1)
    await scene.app.jobs(1)
    await scene.apply(scene.queue(retry=QUICK))
    scene.app.open.set()
    await answer(lambda: scene.plane.broker.depth(KEY), lambda depth: depth == Depth(0, 0, 0, 1))
    assert len(scene.app.got) == 2


async def test_a_changed_schema_holds_for_what_comes_in_and_for_what_is_there(
    scene: Stage,
) -> None:
    await scene.apply(scene.queue(worker=False))
    await enqueue(scene, 1)
    await scene.apply(scene.queue(schema={"type": "string"}))
    refused = await scene.api.post("/v1/queues/orders/messages", {"n": 1})
    assert (refused.status, refused.code) == (422, "SCHEMA_VIOLATION")
    page = await answer(
        lambda: scene.api.get("/v1/queues/orders/dead-letters"), lambda got: bool(got.json["items"])
    )
    [dead] = page.json["items"]
    assert dead["terminalReasonCode"] == "VALIDATION_ERROR"
    assert scene.app.got == []


async def test_a_schema_that_is_dropped_lets_everything_in_again(scene: Stage) -> None:
    await scene.apply(scene.queue(schema={"type": "string"}))
    await scene.apply(scene.queue())
    await enqueue(scene, 1)
    await until_done(scene)
    assert len(scene.app.got) == 1


async def test_after_a_change_of_port_jobs_go_to_the_new_app_and_the_old_one_finishes(
    scene: Stage,
) -> None:
    async with tiny_app() as other:
        await scene.apply(scene.queue(worker_concurrency=2))
        scene.app.open.clear()
        await enqueue(scene, 10)
        await scene.app.jobs(2)
        moving = asyncio.create_task(
            scene.apply(scene.queue(worker_concurrency=2, worker_port=other.port))
        )
        await asyncio.sleep(0)
        scene.app.open.set()
        await moving
        await until_done(scene)
        came = [job.headers["ce-id"] for job in (*scene.app.got, *other.got)]
        assert len(set(came)) == len(came) == 10
        assert scene.app.finished == len(scene.app.got)
        assert len(other.got) >= 1


async def test_a_queue_that_is_removed_finishes_what_is_in_flight_and_keeps_the_rest(
    scene: Stage,
) -> None:
    await scene.apply(scene.queue(worker_concurrency=2), scene.queue("other"))
    scene.app.open.clear()
    await enqueue(scene, 5)
    await scene.app.jobs(2)
    removing = asyncio.create_task(scene.apply(scene.queue("other")))
    await eventually(lambda: scene.plane.workers[KEY]._draining, "the removal began")
    assert not removing.done()
    scene.app.open.set()
    await removing
    assert (scene.app.finished, len(scene.app.got)) == (2, 2)
    assert await scene.plane.broker.depth(KEY) == Depth(3, 0, 0, 0)
    assert (await scene.api.get("/v1/queues/orders")).status == 404
    await scene.apply(scene.queue(), scene.queue("other"))
    await until_done(scene)
    assert len(scene.app.got) == 5


async def test_a_queue_whose_worker_is_taken_away_keeps_taking_jobs(scene: Stage) -> None:
    await scene.apply(scene.queue())
    await scene.apply(scene.queue(worker=False))
    await enqueue(scene, 3)
    assert await scene.plane.broker.depth(KEY) == Depth(3, 0, 0, 0)
    assert scene.plane.workers == {}
    await scene.apply(scene.queue())
    await until_done(scene)
    assert len(scene.app.got) == 3


async def test_two_queues_work_side_by_side(scene: Stage) -> None:
    async with tiny_app() as slow:
        slow.open.clear()
        await scene.apply(scene.queue(), scene.queue("slow", worker_port=slow.port))
        await enqueue(scene, 30, "slow")
        await enqueue(scene, 30)
        await until_done(scene)
        assert {job.headers["nq-queue"] for job in scene.app.got} == {"orders"}
        assert slow.finished == 0
        slow.open.set()
        await until_done(scene, QueueKey(NAMESPACE, "slow"))
        assert {job.headers["nq-queue"] for job in slow.got} == {"slow"}
        assert (len(scene.app.got), len(slow.got)) == (30, 30)


async def test_a_queue_that_stays_is_not_disturbed_by_one_that_changes(scene: Stage) -> None:
    await scene.apply(scene.queue(), scene.queue("other"))
    workers = dict(scene.plane.workers)
    for concurrency in range(1, 10):
        await scene.apply(scene.queue(), scene.queue("other", worker_concurrency=concurrency))
        await enqueue(scene, 5)
    assert scene.plane.workers == workers
    await until_done(scene)
    assert len(scene.app.got) == 45


async def test_a_drained_plane_starts_no_work_when_manifests_change(scene: Stage) -> None:
    await scene.apply(scene.queue())
    await scene.plane.drain(patience=10)
    await scene.apply(scene.queue(worker_concurrency=3), scene.queue("other"))
    assert scene.plane.workers == {}
    await enqueue(scene, 1)
    assert await scene.plane.broker.depth(KEY) == Depth(1, 0, 0, 0)


async def test_a_manifest_that_changes_during_a_drain_starts_no_work(scene: Stage) -> None:
    await scene.apply(scene.queue())
    scene.app.open.clear()
    await enqueue(scene, 1)
    await scene.app.jobs(1)
    async with tiny_app() as other:
        moving = asyncio.create_task(scene.apply(scene.queue(worker_port=other.port)))
        await eventually(lambda: scene.plane.workers[KEY]._draining, "the old worker is ending")
        draining = asyncio.create_task(scene.plane.drain(patience=30))
        await eventually(lambda: scene.plane.draining, "the drain began")
        assert not scene.plane.drained.is_set()
        scene.app.open.set()
        await asyncio.gather(moving, draining)
        assert (scene.plane.workers, scene.app.finished, other.got) == ({}, 1, [])


async def test_what_cannot_finish_in_time_is_handed_back_uncounted(scene: Stage) -> None:
    await scene.apply(scene.queue())
    scene.app.open.clear()
    await enqueue(scene, 1)
    await scene.app.jobs(1)
    await scene.plane.drain(patience=0.05)
    assert await scene.plane.broker.depth(KEY) == Depth(1, 0, 0, 0)


async def test_a_fifo_queue_is_worked_off_in_the_order_of_its_groups(scene: Stage) -> None:
    await scene.apply(scene.queue(durable={"fifo": {"groupBy": "body.account"}}))
    entries = [{"payload": {"account": n % 5, "n": n}} for n in range(100)]
    sent = await scene.api.post("/v1/queues/orders/messages:batch", entries)
    assert sent.json == {"accepted": 100}
    await until_done(scene)
    for account in range(5):
        of_account = [job for job in scene.app.got if job.headers["nq-group"] == str(account)]
        assert [orjson.loads(job.body)["n"] for job in of_account] == list(range(account, 100, 5))
    refused = await scene.api.post("/v1/queues/orders/messages", {"n": 1})
    assert (refused.status, refused.code) == (422, "MISSING_GROUP")


async def test_a_queue_that_becomes_fifo_gets_another_worker(scene: Stage) -> None:
    await change_under_way(
        scene,
        before={"worker_concurrency": 4},
        after={"durable": {"fifo": {"groupBy": "messageId"}}},
    )


async def test_a_queue_that_asks_for_what_is_not_there_waits_and_readiness_says_why(
    scene: Stage,
) -> None:
    await scene.apply(scene.queue(idempotency={"key": "messageId"}))
    ready = await scene.api.get("/healthz/ready")
    assert ready.status == 503
    assert "spec.idempotency needs a store" in " ".join(ready.json["missing"])
    await scene.apply(scene.queue())
    await eventually(lambda: scene.plane.missing() == [], "nothing is missing any more")
