"""Triage while the broker or the store goes away: the answer says so, and no letter is lost."""

import asyncio

import pytest

from broker.port.play import QUEUE, Hands, answer, bury_all, bury_at_once, eventually, letter
from fixtures.adapters import rabbitmq_client
from fixtures.brokers import VERSIONS
from fixtures.planes import Stage, stage
from namedqueue_sidecar.store.addresses import Sqlite
from namedqueue_sidecar.store.sql import SqlStore
from testbed.rabbitmq import Broker

LETTERS = "/v1/queues/orders/dead-letters"


@pytest.mark.parametrize("broker_version", VERSIONS[-1:], indirect=True)
async def test_a_broker_that_is_killed_ends_a_redrive_with_a_sentence_and_loses_no_letter(
    private_broker: Broker,
) -> None:
    client = rabbitmq_client(private_broker, "/")
    await client.open()
    async with stage(broker=client) as scene:
        scene.plane.allow_edit = True
        await scene.apply(scene.queue(worker=False))
        sent = await bury_at_once(client, QUEUE, 200)
        going = asyncio.create_task(
            scene.api.post("/v1/queues/orders/redrive", {"ratePerSecond": 10})
        )
        await eventually(lambda: under_way(scene) >= 10, "the redrive is under way")
        await asyncio.to_thread(private_broker.settle)
        await asyncio.to_thread(private_broker.kill)
        cut = await going
        assert (cut.status, cut.code) == (503, "BROKER_UNAVAILABLE"), cut
        for path in (LETTERS, f"{LETTERS}/groups", f"{LETTERS}/{sent[-1]}"):
            away = await scene.api.get(path)
            assert (away.status, away.code) == (503, "BROKER_UNAVAILABLE"), away
        edited = await scene.api.post(f"{LETTERS}/{sent[-1]}/edit", {"order": 1})
        assert (edited.status, edited.code) == (503, "BROKER_UNAVAILABLE"), edited
        await asyncio.to_thread(private_broker.start)

        async def again() -> int:
            return (await scene.api.post("/v1/queues/orders/redrive")).status

        await answer(again, lambda status: status == 200)
        hands = Hands()
        subscription = client.subscribe(QUEUE, hands, prefetch=1000)
        await eventually(lambda: set(hands.ids) == set(sent), "each job is there", within=60)
        await subscription.close()


@pytest.mark.parametrize("broker_version", VERSIONS[-1:], indirect=True)
async def test_what_is_not_on_the_broker_is_unavailable_and_no_fault(
    broker: Broker, vhost: str
) -> None:
    client = rabbitmq_client(broker, vhost)
    await client.open()
    async with stage(broker=client) as scene:
        stream = scene.queue("audit", worker=False, type="stream")
        await scene.apply(scene.queue(worker=False), stream)
        for queue in scene.plane.queues:
            await client.undeclare(queue)
        for path in (LETTERS, f"{LETTERS}/groups", f"{LETTERS}/1", "/v1/streams/audit"):
            missing = await scene.api.get(path)
            assert (missing.status, missing.code) == (503, "BROKER_UNAVAILABLE"), path
            assert "the operator makes" in missing.json["detail"]


def under_way(scene: Stage) -> int:
    run = scene.plane.redrives.latest(QUEUE)
    return 0 if run is None else run.redriven


async def test_a_store_that_is_away_is_named_and_edits_wait_for_it() -> None:
    store = SqlStore(lambda: Sqlite(None))
    await store.open()
    async with stage(store=store) as scene:
        scene.plane.allow_edit = True
        await scene.apply(scene.queue(worker=False))
        record = letter()
        await bury_all(scene.plane.broker, QUEUE, record)
        await store.close()
        path = f"{LETTERS}/{record.job.id}"
        answers = [await scene.api.get(each) for each in (LETTERS, f"{LETTERS}/groups", path)]
        answers.append(await scene.api.post(f"{path}/edit", {"order": 1}))
        answers.append(await scene.api.call("PATCH", path, b'{"state": "reviewed"}'))
        assert {(each.status, each.code) for each in answers} == {(503, "STORE_UNAVAILABLE")}
        assert await scene.plane.broker.dead_letters(QUEUE).find(record.job.id) == record
        sent = await scene.api.post("/v1/queues/orders/redrive")
        assert sent.json == {"queue": "orders", "redriven": 1}
