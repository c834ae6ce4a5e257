"""Readiness, metrics and drains as an observer sees them."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from broker.http_api.orders import MESSAGES, depth
from broker.port.play import answer, eventually
from fixtures.planes import OPENAPI, Stage
from namedqueue_sidecar.brokers.port import Depth


async def test_readiness_names_the_app_that_is_missing(scene: Stage) -> None:
    await scene.apply(scene.queue(), scene.queue("lonely", worker_port=1))
    await eventually(
        lambda: len(scene.plane.missing()) == 1, "the app that is there was found to be there"
    )
    for api in (scene.api, scene.observers):
        unready = await api.get("/healthz/ready")
        assert unready.status == 503
        assert unready.json["missing"] == ["the app of shop/lonely does not answer yet"]
        assert (await api.get("/healthz/live")).json == {"status": "live"}


async def test_the_observers_port_serves_health_and_metrics_and_nothing_else(
    working: Stage,
) -> None:
    for path in ("/healthz/live", "/metrics"):
        assert (await working.observers.get(path)).status == 200
    for route in OPENAPI["paths"]:
        if not route.startswith(("/healthz/", "/metrics", "/wait-for-drain")):
            path = route.format(queue="orders", topic="a", id="a", lease="a", group="a")
            for method in ("GET", "POST", "DELETE"):
                refused = await working.observers.call(method, path)
                assert (refused.status, refused.code) == (404, "UNKNOWN_PATH")
    assert (await working.observers.get("/openapi.json")).status == 404
    assert not working.plane.draining


async def test_metrics_can_be_read_and_their_labels_are_bounded(working: Stage) -> None:
    for index in range(5):
        sent = await working.api.post(
            MESSAGES, b"{}", NQ_Type=f"type-{index}", Idempotency_Key=f"key-{index}"
        )
        assert sent.status == 202
        await working.api.get(f"/v1/queues/unknown-{index}")
    await working.app.jobs(5)

    async def counted() -> float:
        text = (await working.observers.get("/metrics")).body.decode()
        samples = [
            each for family in text_string_to_metric_families(text) for each in family.samples
        ]
        ours = [each for each in samples if each.name.startswith("namedqueue_")]
        assert {name for each in ours for name in each.labels} <= {
            *("namespace", "queue", "outcome", "group", "key", "verdict", "le"),
        }
        assert not any("unknown" in each.labels.get("queue", "") for each in ours)
        confirmed = {"verdict": "confirmed"}
        assert sum(each.value for each in ours if each.labels == confirmed) >= 5
        return sum(
            each.value
            for each in ours
            if each.name == "namedqueue_deliveries_total" and each.labels["outcome"] == "processed"
        )

    await answer(counted, lambda total: total >= 5)


async def test_a_drain_finishes_what_is_in_flight_and_hands_back_the_rest(scene: Stage) -> None:
    await scene.apply(scene.queue(worker_concurrency=1))
    scene.app.open.clear()
    for _ in range(3):
        await scene.api.post(MESSAGES, b"1")
    await scene.app.jobs(1)
    waiting = asyncio.create_task(scene.api.get("/wait-for-drain"))
    draining = [asyncio.create_task(scene.api.post("/drain")) for _ in range(2)]
    await eventually(lambda: scene.plane.draining, "the drain began")
    assert (await scene.api.get("/healthz/ready")).json["missing"][-1] == "draining"
    assert not any(task.done() for task in (waiting, *draining))
    scene.app.open.set()
    for task in (waiting, *draining):
        told = await asyncio.wait_for(task, 30)
        assert (told.status, told.json) == (200, {"status": "drained"})
    assert (scene.app.finished, len(scene.app.got)) == (1, 1)
    assert await depth(scene) == Depth(2, 0, 0, 0)
    assert (await scene.api.get("/wait-for-drain")).status == 200
    assert (await scene.api.post(MESSAGES, b"1")).status == 202
