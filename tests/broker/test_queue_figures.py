"""How full a queue is, how fast it moves, and who wants its jobs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.port.play import answer
from fixtures.planes import Stage, stage
from namedqueue_sidecar.brokers.port import Broker


@pytest.fixture
async def scene(broker_under_test: Broker) -> AsyncIterator[Stage]:
    async with stage(broker=broker_under_test) as running:
        yield running


async def test_a_queue_shows_its_rates_and_its_consumers(scene: Stage) -> None:
    await scene.apply(scene.queue(worker=False))
    idle = (await scene.api.get("/v1/queues/orders")).json
    assert idle["rates"] == {"enqueued": 0, "processed": 0}
    assert idle["consumers"] == 0
    await scene.apply(scene.queue())
    entries = [{"payload": number} for number in range(20)]
    await scene.api.post("/v1/queues/orders/messages:batch", entries)
    moving = await answer(
        lambda: scene.api.get("/v1/queues/orders"),
        lambda shown: shown.json["rates"] == {"enqueued": 2, "processed": 2},
    )
    assert moving.json["consumers"] >= 1

    async def both() -> tuple[dict[str, Any], list[Any]]:
        one = await scene.api.get("/v1/queues/orders")
        return one.json, (await scene.api.get("/v1/queues")).json["items"]

    await answer(both, lambda got: not any(got[0]["depth"].values()) and got[1] == [got[0]])


async def test_jobs_that_were_pulled_count_as_processed_too(scene: Stage) -> None:
    await scene.apply(scene.queue(worker=False))
    await scene.api.post("/v1/queues/orders/messages", b"1")
    leases = "/v1/queues/orders/leases"
    [item] = (await scene.api.post(leases, {"wait": "30s"})).json["items"]
    await scene.api.post(f"{leases}/{item['lease']}", {"outcome": "ack"})
    await answer(
        lambda: scene.api.get("/v1/queues/orders"),
        lambda shown: shown.json["rates"] == {"enqueued": 0.1, "processed": 0.1},
    )
