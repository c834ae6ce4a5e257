"""Batch delivery: one POST for many jobs, and an end of its own for each of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest
from aiohttp import web

from broker.port.play import NAMESPACE, Hands, answer, enqueue, eventually, job
from fixtures.planes import Got, Stage, stage
from namedqueue import batches
from namedqueue_sidecar.brokers.port import Broker, Depth, QueueKey

KEY = QueueKey(NAMESPACE, "orders")
QUICK = {"maxAttempts": 3, "delay": "0ms", "maxDelay": "0ms"}
WHEN_FULL = {"maxMessages": 10, "maxWait": "60s"}
"""Batches that go out only when they are full, however slowly the jobs come."""

Judge: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | None]


@pytest.fixture
async def scene(broker_under_test: Broker) -> AsyncIterator[Stage]:
    async with stage(broker=broker_under_test) as running:
        yield running


def judging(judge: Judge) -> Callable[[Got], web.Response]:
    """Answer each entry as the judge has it; no result for None."""

    def reply(got: Got) -> web.Response:
        said = [(entry["id"], judge(entry)) for entry in json.loads(got.body)]
        results = [{"id": job_id, **result} for job_id, result in said if result is not None]
        return web.json_response({"results": results})

    return reply


def fine(_: dict[str, Any]) -> dict[str, Any]:
    return {"status": 200}


def entries(scene: Stage) -> list[list[dict[str, Any]]]:
    return [json.loads(got.body) for got in scene.app.got]


async def begin(scene: Stage, jobs: int, **spec: Any) -> None:
    """Have jobs in the queue first, and then its worker."""
    spec = {"retry": QUICK, "worker_batch": {"maxMessages": 10, "maxWait": "200ms"}} | spec
    await scene.apply(scene.queue(worker=False, retry=spec["retry"]))
    sent = [{"payload": {"n": number}} for number in range(jobs)]
    posted = await scene.api.post("/v1/queues/orders/messages:batch", sent)
    assert posted.json == {"accepted": jobs}
    await scene.apply(scene.queue(**spec))


async def ends_with(scene: Stage, *, dead: int = 0) -> None:
    depth = scene.plane.broker.depth
    await answer(lambda: depth(KEY), lambda left: left == Depth(0, 0, 0, dead))


async def test_jobs_come_in_full_batches_and_each_comes_once(scene: Stage) -> None:
    scene.app.reply = judging(fine)
    await begin(scene, 30, worker_batch=WHEN_FULL)
    await ends_with(scene)
    assert [len(batch) for batch in entries(scene)] == [10, 10, 10]
    numbers = [entry["payload"]["n"] for batch in entries(scene) for entry in batch]
    assert sorted(numbers) == list(range(30))
    [first, *_] = scene.app.got
    assert (first.path, first.headers["nq-queue"]) == ("/jobs", "orders")
    assert first.headers["content-type"] == "application/json"


async def test_a_job_alone_waits_for_company_no_longer_than_it_has_to(scene: Stage) -> None:
    scene.app.reply = judging(fine)
    await begin(scene, 1)
    await ends_with(scene)
    [[entry]] = entries(scene)
    assert (entry["attempt"], entry["maxAttempts"], entry["encoding"]) == (1, 3, "json")


async def test_each_job_ends_by_its_own_result(scene: Stage) -> None:
    def judge(entry: dict[str, Any]) -> dict[str, Any] | None:
        match entry["payload"]["n"]:
            case 0:
                return {"status": 422, "code": "noStock", "message": "none left"}
            case 1:
                return None if entry["attempt"] < 3 else {"status": 200}
            case 2:
                return {"status": 500}
            case 3:
                return {"status": 500, "outcome": "ack"}
            case _:
                return {"status": 204}

    scene.app.reply = judging(judge)
    await begin(scene, 10)
    await ends_with(scene, dead=2)
    attempts = [entry["payload"]["n"] for batch in entries(scene) for entry in batch]
    assert [attempts.count(number) for number in range(5)] == [1, 3, 3, 1, 1]
    letters = (await scene.api.get("/v1/queues/orders/dead-letters")).json["items"]
    assert {
        letter["payloadSnapshot"]["n"]: (letter["terminalReasonCode"], letter["attemptCount"])
        for letter in letters
    } == {0: ("NO_STOCK", 1), 2: ("HTTP_500", 3)}


async def test_an_answer_to_the_whole_counts_for_every_job(scene: Stage) -> None:
    scene.app.status = 422
    await begin(scene, 10, worker_batch=WHEN_FULL)
    await ends_with(scene, dead=10)
    assert len(scene.app.got) == 1


async def test_while_the_app_is_away_no_attempt_is_counted(scene: Stage) -> None:
    await begin(scene, 10, worker_port=1)
    await eventually(lambda: bool(scene.plane.missing()), "the app is not there")
    scene.app.reply = judging(fine)
    await scene.apply(
        scene.queue(retry=QUICK, worker_batch={"maxMessages": 10, "maxWait": "200ms"})
    )
    await ends_with(scene)
    assert {entry["attempt"] for batch in entries(scene) for entry in batch} == {1}


async def test_a_wrong_payload_never_reaches_the_app_and_does_not_spoil_its_batch(
    scene: Stage,
) -> None:
    scene.app.reply = judging(fine)
    await begin(scene, 10, schema={"properties": {"n": {"maximum": 8}}})
    await ends_with(scene, dead=1)
    assert sorted(e["payload"]["n"] for batch in entries(scene) for e in batch) == list(range(9))


async def test_no_more_batches_are_under_way_than_the_concurrency_allows(scene: Stage) -> None:
    scene.app.reply = judging(fine)
    scene.app.open.clear()
    await begin(scene, 40, worker_concurrency=2, worker_batch=WHEN_FULL)
    await scene.app.jobs(2)
    await asyncio.sleep(0.5)
    assert len(scene.app.got) == 2
    scene.app.open.set()
    await ends_with(scene)
    assert len(scene.app.got) == 4


async def test_jobs_of_one_id_come_in_different_batches(scene: Stage) -> None:
    scene.app.reply = judging(fine)
    await scene.apply(scene.queue(worker=False))
    await enqueue(scene.plane.broker, KEY, *(job(id="same", payload=b"%d" % n) for n in range(3)))
    await scene.apply(scene.queue(worker_batch={"maxMessages": 10, "maxWait": "100ms"}))
    await ends_with(scene)
    assert sorted(entry["payload"] for [entry] in entries(scene)) == [0, 1, 2]


async def test_a_batch_stays_within_its_bytes(
    scene: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LARGEST_BODY", 2_000)
    scene.app.reply = judging(fine)
    await begin(scene, 10)
    await ends_with(scene)
    assert len(scene.app.got) > 1
    assert all(len(got.body) <= 2_000 for got in scene.app.got)


async def test_paths_by_type_are_batches_of_their_own(scene: Stage) -> None:
    scene.app.reply = judging(fine)
    await scene.apply(scene.queue(worker=False))
    sent = [{"type": kind, "payload": 1} for kind in ("new", "old") * 5]
    await scene.api.post("/v1/queues/orders/messages:batch", sent)
    batch = {"maxMessages": 10, "maxWait": "200ms"}
    await scene.apply(scene.queue(worker_path="/jobs/{type}", worker_batch=batch))
    await ends_with(scene)
    seen = {(got.path, entry["type"]) for got in scene.app.got for entry in json.loads(got.body)}
    assert seen == {("/jobs/new", "new"), ("/jobs/old", "old")}


async def test_a_batch_of_an_ephemeral_queue_goes_the_same_way(scene: Stage) -> None:
    scene.app.reply = judging(fine)
    spec: dict[str, Any] = {"type": "ephemeral"}
    await scene.apply(scene.queue(worker=False, **spec))
    sent = [{"payload": number} for number in range(20)]
    await scene.api.post("/v1/queues/orders/messages:batch", sent)
    await scene.apply(scene.queue(worker_batch=WHEN_FULL, **spec))
    await ends_with(scene)
    assert [len(batch) for batch in entries(scene)] == [10, 10]


async def test_a_drain_finishes_the_batch_that_is_under_way(scene: Stage) -> None:
    scene.app.reply = judging(fine)
    scene.app.open.clear()
    await begin(scene, 10, worker_batch=WHEN_FULL)
    await scene.app.jobs(1)
    draining = asyncio.create_task(scene.plane.drain(30))
    await asyncio.sleep(0.2)
    scene.app.open.set()
    await draining
    await ends_with(scene)
    hands = Hands()
    scene.plane.broker.subscribe(KEY, hands, prefetch=10)
    await asyncio.sleep(0.5)
    assert hands.came == []
