"""Leases that no worker ends: the sidecar drains, the queue goes, a connection is cut."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from broker.port.play import answer, eventually
from broker.test_rabbitmq_adapter import ended_connections
from fixtures.adapters import Place, rabbitmq_client
from fixtures.planes import Stage, stage
from fixtures.pulling import (
    KEY,
    LEASES,
    NONE,
    ORDERS,
    QUICK,
    dead_letters,
    enqueue,
    finish,
    held,
    lease,
    lease_one,
    until,
)
from namedqueue_sidecar.brokers.port import Depth
from testbed import rabbitmq


async def test_a_drain_waits_for_leases_and_refuses_new_ones(pulled: Stage) -> None:
    await enqueue(pulled, 2)
    item = await lease_one(pulled)
    waiting = asyncio.create_task(pulled.api.post(LEASES, {"max": 5, "wait": "60s"}))
    [second] = (await waiting).json["items"]
    waiting = asyncio.create_task(pulled.api.post(LEASES, {"wait": "60s"}))
    await eventually(lambda: bool(pulled.plane.leasing(KEY)._pulls), "a worker waits")
    draining = asyncio.create_task(pulled.plane.drain(patience=60))
    told = await waiting
    assert (told.status, told.code) == (503, "DRAINING")
    refused = await pulled.api.post(LEASES, {})
    assert (refused.status, refused.code) == (503, "DRAINING")
    assert not draining.done()
    assert (await finish(pulled, second, "nack")).json["decision"] == "retry"
    assert (await finish(pulled, item, "extend", visibility="1m")).status == 200
    assert (await finish(pulled, item, "ack")).status == 200
    await draining
    await answer(
        lambda: pulled.plane.broker.depth(KEY),
        lambda depth: depth in (Depth(0, 0, 1, 0), Depth(1, 0, 0, 0)),
    )


async def test_a_lease_that_is_not_finished_in_the_grace_period_is_handed_back_uncounted(
    scene: Stage, another_client: Place
) -> None:
    await scene.apply(scene.queue(worker=False, retry=QUICK))
    await enqueue(scene, 1)
    item = await lease_one(scene, visibility="20m")
    await scene.plane.drain(patience=0.1)
    late = await finish(scene, item, "ack")
    assert (late.status, late.code) == (410, "LEASE_HANDED_BACK")
    async with stage(broker=await another_client()) as other:
        await other.plane.apply([other.queue(worker=False)], declare=False, work=False)
        again = await lease_one(other)
        assert (again["id"], again["attempt"]) == (item["id"], 1)
        assert (await finish(other, again, "ack")).status == 200


async def test_a_queue_that_is_removed_gives_its_workers_time_to_finish(pulled: Stage) -> None:
    await enqueue(pulled, 1)
    item = await lease_one(pulled)
    removing = asyncio.create_task(pulled.apply())
    await eventually(lambda: pulled.plane.leases[KEY]._draining, "the removal began")
    assert (await finish(pulled, item, "ack")).status == 200
    await removing
    assert (await finish(pulled, item, "ack")).code == "UNKNOWN_QUEUE"
    await until(pulled, NONE)


@pytest.fixture
async def cuttable(broker: rabbitmq.Broker, vhost: str) -> AsyncIterator[Stage]:
    """Serve queue `orders` on a RabbitMQ whose connections a test can end."""
    async with AsyncExitStack() as opened:
        client = rabbitmq_client(broker, vhost)
        opened.push_async_callback(client.close)
        await client.open()
        running = await opened.enter_async_context(stage(broker=client))
        await running.apply(running.queue(worker=False, retry=QUICK))
        yield running


async def test_leases_on_a_lost_connection_are_void_but_what_was_processed_is_not_run_again(
    cuttable: Stage, broker: rabbitmq.Broker, vhost: str
) -> None:
    await enqueue(cuttable, 4)
    items = [await lease_one(cuttable, visibility="20m") for _ in range(4)]
    processed, failed, kept, rejected = items
    leases = cuttable.plane.leasing(KEY)
    await ended_connections(broker, vhost)
    await eventually(lambda: held(cuttable) == 0, "the loss is known")
    for item, outcome in ((failed, "nack"), (rejected, "reject")):
        void = await finish(cuttable, item, outcome)
        assert (void.status, void.code) == (410, "LEASE_LOST")
        assert "delivered again" in void.json["detail"]
    assert (await finish(cuttable, kept, "extend")).code == "LEASE_LOST"
    assert (await finish(cuttable, processed, "ack")).json == {"decision": "ack"}
    again: list[dict[str, Any]] = []
    while len(again) < 2:
        again += await lease(cuttable, max=1)
    assert {(item["id"], item["attempt"]) for item in again} == {
        *((failed["id"], 1), (rejected["id"], 1)),
    }
    for item in again:
        assert (await finish(cuttable, item, "ack")).status == 200
    assert await lease(cuttable, wait="500ms") == []
    lease_of_kept = leases._leased.find(kept["lease"])
    assert lease_of_kept.delivery is not None
    assert (await finish(cuttable, kept, "ack")).json == {"decision": "ack"}
    await until(cuttable, NONE)


async def test_what_a_puller_processed_on_a_lost_connection_is_not_pushed_again(
    cuttable: Stage, broker: rabbitmq.Broker, vhost: str
) -> None:
    await enqueue(cuttable, 1)
    item = await lease_one(cuttable)
    await ended_connections(broker, vhost)
    await eventually(lambda: held(cuttable) == 0, "the loss is known")
    assert (await finish(cuttable, item, "ack")).status == 200
    await cuttable.plane.apply([cuttable.queue(retry=QUICK)], declare=False, work=True)
    await until(cuttable, NONE)
    assert cuttable.app.got == []


async def test_every_job_ends_whatever_workers_do_while_connections_are_cut(
    cuttable: Stage, broker: rabbitmq.Broker, vhost: str
) -> None:
    await cuttable.apply(cuttable.queue(worker=False, retry=QUICK | {"maxAttempts": 50}))
    await enqueue(cuttable, 150)
    choose = random.Random(7)  # noqa: S311 - dice, not secrets
    acked, rejected = set[str](), set[str]()
    cuts = 0

    async def puller() -> None:
        while len(acked | rejected) < 150 or cuts < 2:
            got = await cuttable.api.post(
                LEASES, {"max": choose.randint(1, 20), "wait": "300ms", "visibility": "800ms"}
            )
            assert got.status in (200, 503), got
            for item in got.json.get("items", ()):
                outcome = choose.choice(["ack", "ack", "nack", "reject", "extend", "crash"])
                if outcome == "crash":
                    continue
                said = await finish(cuttable, item, outcome)
                assert said.status in (200, 410, 503), said
                if said.status == 200 and outcome in ("ack", "reject"):
                    (acked if outcome == "ack" else rejected).add(item["id"])

    pullers = [asyncio.create_task(puller()) for _ in range(4)]
    for _ in range(2):
        await ended_connections(broker, vhost)
        cuts += 1
        await enqueue_when_there(cuttable)
    await asyncio.gather(*pullers)
    await answer(lambda: drained_by_acks(cuttable), lambda depth: depth[:3] == (0, 0, 0))
    dead = {letter["eventId"] for letter in await dead_letters(cuttable)}
    assert dead >= rejected
    assert len(acked | dead) >= 150


async def enqueue_when_there(scene: Stage) -> None:
    """Send one more job as soon as the broker takes it again."""
    await answer(
        lambda: scene.api.post(f"{ORDERS}/messages", b"{}"), lambda sent: sent.status == 202
    )


async def drained_by_acks(scene: Stage) -> Depth:
    """Ack all that can be leased, and return what is left."""
    for item in await lease(scene, max=100, wait="300ms"):
        await finish(scene, item, "ack")
    left = await scene.plane.broker.depth(KEY)
    assert left is not None
    return left
