"""Ephemeral queues of a whole data plane: best effort, and never silent about what is lost."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import REGISTRY

from broker.port.play import NAMESPACE, answer, eventually
from fixtures.planes import Stage, stage
from namedqueue.api.namedqueue import Ephemeral
from namedqueue_sidecar.brokers.port import Broker, Depth, QueueKey

KEY = QueueKey(NAMESPACE, "orders")
MESSAGES = "/v1/queues/orders/messages"
QUICK = {"maxAttempts": 3, "delay": "250ms", "multiplier": 2, "maxDelay": "2s", "jitter": 0}
EPHEMERAL: dict[str, Any] = {"type": "ephemeral", "retry": QUICK}
BRIEF = {"idleExpiry": "4s"}
SHORT = Ephemeral.model_validate(BRIEF)
IDLE = 6.0
"""Seconds after which a queue of `BRIEF` has expired."""


@pytest.fixture
async def scene(broker_under_test: Broker) -> AsyncIterator[Stage]:
    """Serve a plane on each broker, where a job for an unknown queue makes one for 4 s."""
    async with stage(broker=broker_under_test, allow_ephemeral=SHORT) as running:
        yield running


async def empty(scene: Stage, key: QueueKey = KEY) -> None:
    depth = scene.plane.broker.depth
    await answer(lambda: depth(key), lambda left: left == Depth(0, 0, 0, 0))


def dropped() -> float:
    labels = {"namespace": NAMESPACE, "queue": "orders"}
    return REGISTRY.get_sample_value("namedqueue_dropped_total", labels) or 0


# Attempts


async def test_a_processed_job_is_gone(scene: Stage) -> None:
    await scene.apply(scene.queue(**EPHEMERAL))
    sent = await scene.api.post(MESSAGES, b"hello", NQ_Header_tenant="acme")
    assert sent.status == 202
    [got] = await scene.app.jobs(1)
    assert (got.body, got.headers["ce-id"]) == (b"hello", sent.json["id"])
    assert got.headers["nq-header-tenant"] == "acme"
    await empty(scene)


async def test_a_failed_job_is_retried_by_the_policy_and_dropped_at_last_counted_and_logged_once(
    scene: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    before = dropped()
    scene.app.status = 503
    await scene.apply(scene.queue(**EPHEMERAL))
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "namedqueue_sidecar.consuming"):
        for _ in range(2):
            assert (await scene.api.post(MESSAGES, b"{}")).status == 202
        await eventually(lambda: dropped() == before + 2, "both were dropped")
    assert time.monotonic() - began >= 0.25 + 0.5
    attempts = [got.headers["nq-attempt"] for got in scene.app.got]
    assert sorted(attempts) == ["1", "1", "2", "2", "3", "3"]
    said = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert len(said) == 1
    assert "HTTP_503: Retries exhausted after 3 attempts" in said[0]
    await empty(scene)


async def test_a_permanent_failure_and_a_wrong_payload_are_dropped_at_once(scene: Stage) -> None:
    before = dropped()
    await scene.apply(scene.queue(**EPHEMERAL, worker=False, worker_port=1))
    await scene.api.post(MESSAGES, b'"text"')
    scene.app.status = 422
    await scene.apply(scene.queue(**EPHEMERAL, schema={"type": "object"}))
    await scene.api.post(MESSAGES, b"{}")
    await scene.app.jobs(1)
    await eventually(lambda: dropped() == before + 2, "both were dropped")
    await empty(scene)


async def test_jobs_that_wait_for_a_retry_are_sent_back_by_a_drain(scene: Stage) -> None:
    scene.app.status = 500
    slow = QUICK | {"delay": "60s", "maxDelay": "60s"}
    await scene.apply(scene.queue(**EPHEMERAL | {"retry": slow}))
    for _ in range(5):
        await scene.api.post(MESSAGES, b"{}")
    await scene.app.jobs(5)
    await eventually(lambda: scene.app.finished == 5, "all have failed once")
    await answer(lambda: scene.plane.broker.depth(KEY), lambda left: left == Depth(0, 0, 0, 0))
    await scene.plane.drain(30)
    await answer(lambda: scene.plane.broker.depth(KEY), lambda left: left == Depth(5, 0, 0, 0))


async def test_while_the_app_is_away_nothing_is_delivered_and_no_attempt_used(
    scene: Stage,
) -> None:
    await scene.apply(scene.queue(**EPHEMERAL, worker_port=1))
    await scene.api.post(MESSAGES, b"{}")
    assert scene.plane.missing() == ["the app of shop/orders does not answer yet"]
    await scene.apply(scene.queue(**EPHEMERAL))
    [got] = await scene.app.jobs(1)
    assert got.headers["nq-attempt"] == "1"


# The API


async def test_what_an_ephemeral_queue_has_not_is_refused_with_a_sentence(scene: Stage) -> None:
    await scene.apply(scene.queue(**EPHEMERAL, worker=False))
    late = await scene.api.post(MESSAGES, b"{}", NQ_Delay="1s")
    assert (late.status, late.code) == (422, "INVALID_DELAY")
    assert "type ephemeral" in late.json["detail"]
    letters = "/v1/queues/orders/dead-letters"
    for answered in (
        await scene.api.get(letters),
        await scene.api.get(f"{letters}/groups"),
        await scene.api.get(f"{letters}/1"),
        await scene.api.call("DELETE", f"{letters}/1"),
        await scene.api.post("/v1/queues/orders/redrive", {}),
    ):
        assert (answered.status, answered.code) == (409, "NO_DEAD_LETTERS")
        assert "type durable" in answered.json["detail"]


async def test_jobs_are_leased_put_off_in_memory_and_dropped(scene: Stage) -> None:
    before = dropped()
    await scene.apply(scene.queue(**EPHEMERAL, worker=False))
    await scene.api.post(MESSAGES, b"[1]")
    leases = "/v1/queues/orders/leases"

    async def pull() -> Any:
        pulled = (await scene.api.post(leases, {"wait": "30s"})).json["items"]
        assert len(pulled) == 1
        return pulled[0]

    first = await pull()
    assert (first["attempt"], first["payload"]) == (1, [1])
    nacked = await scene.api.post(f"{leases}/{first['lease']}", {"outcome": "nack"})
    assert nacked.json == {"decision": "retry", "attempt": 2, "delayMs": 250}
    second = await pull()
    assert (second["attempt"], second["id"]) == (2, first["id"])
    done = await scene.api.post(f"{leases}/{second['lease']}", {"outcome": "reject"})
    assert done.json == {"decision": "drop", "code": "REJECTED"}
    assert dropped() == before + 1
    await empty(scene)


# Expiry


async def test_a_defined_queue_that_expired_comes_back_with_its_next_job(scene: Stage) -> None:
    expiring = EPHEMERAL | {"ephemeral": BRIEF}
    await scene.apply(scene.queue(**expiring, worker=False))
    await scene.api.post(MESSAGES, b"1")
    await asyncio.sleep(IDLE)  # to look at its depth would be a use of it
    assert (await scene.api.post(MESSAGES, b"2")).status == 202
    pulled = await scene.api.post("/v1/queues/orders/leases", {"max": 2, "wait": "30s"})
    assert [item["payload"] for item in pulled.json["items"]] == [2]


async def test_a_queue_that_expired_comes_back_for_a_pull(scene: Stage) -> None:
    expiring = EPHEMERAL | {"ephemeral": BRIEF}
    await scene.apply(scene.queue(**expiring, worker=False))
    await asyncio.sleep(IDLE)
    pulling = asyncio.create_task(scene.api.post("/v1/queues/orders/leases", {"wait": "30s"}))
    await asyncio.sleep(1)
    assert (await scene.api.post(MESSAGES, b"2")).status == 202
    assert [item["payload"] for item in (await pulling).json["items"]] == [2]


async def test_where_the_operator_declares_an_expired_queue_is_a_503_until_it_is_back(
    scene: Stage,
) -> None:
    queue = scene.queue(**EPHEMERAL, worker=False)
    await scene.plane.broker.declare(queue)
    await scene.plane.apply([queue], declare=False, work=True)
    await scene.plane.broker.undeclare(KEY)
    gone = await scene.api.post(MESSAGES, b"1")
    assert (gone.status, gone.code) == (503, "QUEUE_EXPIRED")
    assert gone.headers["Retry-After"] == "10"
    many = await scene.api.post(f"{MESSAGES}:batch", [{"payload": 1}])
    assert (many.status, many.json["failed"][0]["code"]) == (207, "QUEUE_EXPIRED")
    await scene.plane.broker.declare(queue)
    assert (await scene.api.post(MESSAGES, b"1")).status == 202


# Queues that nobody defined


async def test_a_job_for_an_unknown_queue_makes_one_that_can_be_seen_and_pulled_from(
    scene: Stage,
) -> None:
    assert (await scene.api.post("/v1/queues/notes/messages", b"1")).status == 202
    many = await scene.api.post("/v1/queues/notes/messages:batch", [{"payload": 2}])
    assert many.json == {"accepted": 1}
    [shown] = (await scene.api.get("/v1/queues")).json["items"]
    assert (shown["name"], shown["type"], shown["depth"]["ready"]) == ("notes", "ephemeral", 2)
    pulled = await scene.api.post("/v1/queues/notes/leases", {"max": 2, "wait": "30s"})
    assert [item["payload"] for item in pulled.json["items"]] == [1, 2]


async def test_it_goes_when_nobody_uses_it_and_comes_back_when_somebody_does(
    scene: Stage,
) -> None:
    notes = QueueKey(NAMESPACE, "notes")
    await scene.api.post("/v1/queues/notes/messages", b"1")
    await eventually(lambda: notes not in scene.plane.queues, "it expired")
    await answer(lambda: scene.plane.broker.depth(notes), lambda depth: depth is None)
    assert (await scene.api.get("/v1/queues/notes")).code == "UNKNOWN_QUEUE"
    assert (await scene.api.post("/v1/queues/notes/messages", b"2")).status == 202
    pulled = await scene.api.post("/v1/queues/notes/leases", {"max": 2, "wait": "30s"})
    assert [item["payload"] for item in pulled.json["items"]] == [2]


async def test_a_manifest_of_the_same_name_takes_its_place(scene: Stage) -> None:
    await scene.api.post(MESSAGES, b"1")
    await scene.apply(scene.queue())
    assert (await scene.api.get("/v1/queues/orders")).json["type"] == "durable"
    await scene.api.post(MESSAGES, b"2")
    [got] = await scene.app.jobs(1)
    assert got.body == b"2"
    await asyncio.sleep(IDLE)
    assert KEY in scene.plane.queues


@pytest.mark.parametrize("name", ["Notes", "a.b", "a" * 41, "-a", "%20", "a%2Fb"])
async def test_a_name_that_no_queue_may_have_is_refused_with_a_sentence(name: str) -> None:
    async with stage(allow_ephemeral=SHORT) as scene:
        refused = await scene.api.post(f"/v1/queues/{name}/messages", b"1")
        assert (refused.status, refused.code) == (422, "INVALID_NAME")
        assert "DNS label of at most 40" in refused.json["detail"]


async def test_no_more_of_them_are_made_than_the_broker_can_bear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("namedqueue_sidecar.impromptu.MOST", 2)
    async with stage(allow_ephemeral=Ephemeral()) as scene:
        for name, status in (("a", 202), ("b", 202), ("c", 429), ("a", 202)):
            assert (await scene.api.post(f"/v1/queues/{name}/messages", b"1")).status == status


async def test_where_it_is_not_allowed_an_unknown_queue_is_a_404() -> None:
    async with stage() as scene:
        for path in ("messages", "messages:batch"):
            refused = await scene.api.post(f"/v1/queues/notes/{path}", b"[]")
            assert (refused.status, refused.code) == (404, "UNKNOWN_QUEUE")
