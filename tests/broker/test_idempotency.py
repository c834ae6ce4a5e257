"""Queues with `spec.idempotency`: an effect once per key, whatever comes twice."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import select

from broker.port.play import NAMESPACE, answer, eventually
from fixtures.planes import Got, Stage, stage
from namedqueue.idempotency import Claim, State, Wanted
from namedqueue_sidecar.brokers.port import Depth, QueueKey
from namedqueue_sidecar.plane import Plane
from namedqueue_sidecar.store.addresses import Sqlite, from_url
from namedqueue_sidecar.store.schema import idempotency as table
from namedqueue_sidecar.store.sql import SqlStore
from testbed.postgresql import Postgres

KEY = QueueKey(NAMESPACE, "orders")
MESSAGES = "/v1/queues/orders/messages"
LEASES = "/v1/queues/orders/leases"
ONCE = {"key": "body.key", "ttl": "1h"}
QUICK = {"maxAttempts": 2, "delay": "250ms", "maxDelay": "250ms", "jitter": 0}
FIFO = {"fifo": {"groupBy": "body.group"}}
LEASE_MS = 1500

NOTHING = Depth(0, 0, 0, 0)


async def opened_store(url: str | None = None) -> SqlStore:
    address = Sqlite() if url is None else from_url(url)
    store = SqlStore(lambda: address, lease_ms=LEASE_MS)
    await store.open()
    return store


@asynccontextmanager
async def guarded(store: SqlStore, **spec: Any) -> AsyncIterator[Stage]:
    """Serve one guarded queue."""
    async with stage(store=store) as scene:
        asked: dict[str, Any] = {"idempotency": ONCE, "retry": QUICK} | spec
        await scene.apply(scene.queue(**asked))
        await eventually(lambda: scene.plane.missing() == [], "the plane is ready")
        yield scene


@pytest.fixture(params=[None, FIFO], ids=["durable", "fifo"])
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """Serve a guarded queue, without an order and with one."""
    durable = {} if request.param is None else {"durable": request.param}
    async with guarded(await opened_store(), **durable) as running:
        yield running


async def send(scene: Stage, *keys: object) -> list[str]:
    """Send a job for each key, one after the other, and return their ids."""
    sent = [await scene.api.post(MESSAGES, {"group": 1, "key": key}) for key in keys]
    assert {each.status for each in sent} == {202}
    return [each.json["id"] for each in sent]


async def until(scene: Stage, depth: Depth) -> None:
    await answer(lambda: scene.plane.broker.depth(KEY), lambda found: found == depth)


async def state_of(scene: Stage, key: str) -> str | None:
    """Return the state that the store has for a key."""
    store = scene.plane.store
    assert isinstance(store, SqlStore)
    async with store.database.transaction(reading=True) as connection:
        statement = select(table.c.state).where(table.c.key == key)
        return (await connection.execute(statement)).scalar()


async def metric(scene: Stage, name: str, **labels: str) -> float:
    text = (await scene.observers.get("/metrics")).body.decode()
    wanted = {"namespace": NAMESPACE, "queue": "orders"} | labels
    for found, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE):
        if dict(re.findall(r'(\w+)="([^"]*)"', found)) == wanted:
            return float(value)
    return 0.0


# Duplicates


async def test_a_duplicate_of_a_processed_job_is_acknowledged_without_a_call(scene: Stage) -> None:
    before = await metric(scene, "namedqueue_duplicates_total", key="processed")
    await send(scene, "a", "b")
    await until(scene, NOTHING)
    await send(scene, "a", "b", "c")
    await until(scene, NOTHING)
    keys = [job.headers["idempotency-key"] for job in scene.app.got]
    assert keys == ["a", "b", "c"]
    assert await metric(scene, "namedqueue_duplicates_total", key="processed") == before + 2


async def test_a_duplicate_of_a_job_in_progress_waits_and_uses_no_attempt(scene: Stage) -> None:
    scene.app.open.clear()
    await send(scene, "a", "a")
    before = await metric(scene, "namedqueue_duplicates_total", key="in-progress")

    async def put_off() -> float:
        return await metric(scene, "namedqueue_duplicates_total", key="in-progress") - before

    if scene.plane.queues[KEY].spec.durable is None:
        await answer(put_off, lambda times: times >= 2)
    await eventually(lambda: len(scene.app.got) == 1, "the first one is with the app")
    scene.app.open.set()
    await until(scene, NOTHING)
    assert len(scene.app.got) == 1


async def test_a_job_claimed_elsewhere_runs_when_that_pod_is_gone(scene: Stage) -> None:
    store = scene.plane.store
    assert isinstance(store, SqlStore)
    idempotency = scene.plane.queues[KEY].spec.idempotency
    assert idempotency is not None
    [dead_pod] = await store.claims(KEY, idempotency).claim([Wanted("a", "another")])
    assert isinstance(dead_pod, Claim)
    await send(scene, "a")
    await scene.app.jobs(1)
    await until(scene, NOTHING)
    assert scene.app.got[0].headers["nq-attempt"] == "1"
    assert await store.claims(KEY, idempotency).end([(dead_pod, State.PROCESSED)]) == [False]


async def test_a_long_job_keeps_its_key_past_the_first_lease(scene: Stage) -> None:
    scene.app.open.clear()
    await send(scene, "a")
    await scene.app.jobs(1)
    await asyncio.sleep(LEASE_MS / 1000 * 2)
    store, queue = scene.plane.store, scene.plane.queues[KEY]
    assert store is not None
    assert queue.spec.idempotency is not None
    [answered] = await store.claims(KEY, queue.spec.idempotency).claim([Wanted("a", "another")])
    assert not isinstance(answered, Claim)
    scene.app.open.set()
    await until(scene, NOTHING)


# Failures


async def test_a_failed_job_is_retried_and_a_processed_one_is_not_run_again(scene: Stage) -> None:
    def fails_once(got: Got) -> web.Response:
        return web.Response(status=500 if got.headers["nq-attempt"] == "1" else 200)

    scene.app.reply = fails_once
    await send(scene, "a")
    await until(scene, NOTHING)
    assert [job.headers["nq-attempt"] for job in scene.app.got] == ["1", "2"]
    assert await state_of(scene, "a") == State.PROCESSED
    await send(scene, "a")
    await until(scene, NOTHING)
    assert len(scene.app.got) == 2


async def test_a_dead_letter_runs_again_when_it_is_redriven(scene: Stage) -> None:
    scene.app.status = 422
    await send(scene, "a")
    await until(scene, Depth(0, 0, 0, 1))
    await eventually_state(scene, "a", State.DEAD_LETTERED)
    scene.app.status = 200
    redriven = await scene.api.post("/v1/queues/orders/redrive", {})
    assert redriven.json["redriven"] == 1
    await until(scene, NOTHING)
    assert len(scene.app.got) == 2
    await eventually_state(scene, "a", State.PROCESSED)


async def test_another_job_with_the_key_of_a_dead_letter_runs(scene: Stage) -> None:
    scene.app.status = 422
    await send(scene, "a")
    await until(scene, Depth(0, 0, 0, 1))
    scene.app.status = 200
    await send(scene, "a")
    await until(scene, Depth(0, 0, 0, 1))
    await eventually(lambda: len(scene.app.got) == 2, "both have run")


async def eventually_state(scene: Stage, key: str, state: State) -> None:
    await answer(lambda: state_of(scene, key), lambda found: found == state)


# Keys


async def test_a_job_without_a_key_is_a_dead_letter_that_says_so(scene: Stage) -> None:
    [job_id] = await send(scene, None)
    await until(scene, Depth(0, 0, 0, 1))
    letter = await scene.plane.broker.dead_letters(KEY).find(job_id)
    assert letter is not None
    assert letter.reason.code == "VALIDATION_ERROR"
    assert "body.key of spec.idempotency leads to no key" in letter.reason.message
    assert scene.app.got == []


async def test_the_producers_own_key_counts_where_the_manifests_finds_none(scene: Stage) -> None:
    for _ in range(2):
        sent = await scene.api.post(MESSAGES, {"group": 1}, Idempotency_Key="mine")
        assert sent.status == 202
    await until(scene, NOTHING)
    assert [job.headers["idempotency-key"] for job in scene.app.got] == ["mine"]


# Leases


async def lease(scene: Stage, wait: str = "30s") -> list[dict[str, Any]]:
    got = await scene.api.post(LEASES, {"max": 10, "wait": wait})
    assert got.status == 200
    return list(got.json["items"])


@pytest.fixture
async def pulled() -> AsyncIterator[Stage]:
    """Serve a guarded queue without a worker."""
    async with guarded(await opened_store(), worker=False) as running:
        yield running


async def test_a_leased_job_is_leased_once_per_key(pulled: Stage) -> None:
    await send(pulled, "a", "a", "b")
    items = await lease(pulled)
    assert sorted(item["idempotencyKey"] for item in items) == ["a", "b"]
    for item in items:
        done = await pulled.api.post(f"{LEASES}/{item['lease']}", {"outcome": "ack"})
        assert done.json == {"decision": "ack"}
        assert await state_of(pulled, item["idempotencyKey"]) == State.PROCESSED
    assert await lease(pulled, "2s") == []
    await until(pulled, NOTHING)


async def test_a_leased_job_that_fails_is_leased_again(pulled: Stage) -> None:
    await send(pulled, "a")
    [first] = await lease(pulled)
    await pulled.api.post(f"{LEASES}/{first['lease']}", {"outcome": "nack"})
    [second] = await lease(pulled)
    assert second["attempt"] == 2
    await pulled.api.post(f"{LEASES}/{second['lease']}", {"outcome": "reject"})
    await until(pulled, Depth(0, 0, 0, 1))
    await eventually_state(pulled, "a", State.DEAD_LETTERED)


async def test_leases_follow_a_manifest_that_finds_the_key_elsewhere(pulled: Stage) -> None:
    await send(pulled, "a")
    [first] = await lease(pulled)
    await pulled.api.post(f"{LEASES}/{first['lease']}", {"outcome": "ack"})
    elsewhere = {"key": "body.group", "ttl": "1h"}
    await pulled.apply(pulled.queue(idempotency=elsewhere, retry=QUICK, worker=False))
    await send(pulled, "b")
    [second] = await lease(pulled)
    assert (first["idempotencyKey"], second["idempotencyKey"]) == ("a", "1")


async def test_a_drained_lease_gives_its_key_back(pulled: Stage) -> None:
    await send(pulled, "a")
    [_] = await lease(pulled)
    store, queue = pulled.plane.store, pulled.plane.queues[KEY]
    assert store is not None
    assert queue.spec.idempotency is not None
    await pulled.plane.drain(patience=0.05)
    [got] = await store.claims(KEY, queue.spec.idempotency).claim([Wanted("a", "another")])
    assert isinstance(got, Claim)


# Without a store, and with one that goes away


async def test_without_a_store_such_a_queue_waits_and_says_what_to_set() -> None:
    async with stage() as scene:
        await scene.apply(scene.queue(idempotency=ONCE))
        await send(scene, "a")
        assert any("--store" in why for why in scene.plane.missing())
        refused = await scene.api.post(LEASES, {})
        assert (refused.status, refused.code) == (409, "NOT_LEASABLE")
        assert scene.app.got == []


@pytest.mark.parametrize("durable", [None, FIFO], ids=["durable", "fifo"])
async def test_while_the_store_is_away_jobs_wait_and_then_go_on(
    private_postgres: Postgres, durable: dict[str, Any] | None
) -> None:
    store = await opened_store(private_postgres.create_database("shop"))
    async with guarded(store, **({} if durable is None else {"durable": durable})) as scene:
        await send(scene, "a")
        await until(scene, NOTHING)
        scene.app.open.clear()
        await send(scene, "b")
        await scene.app.jobs(2)
        await asyncio.to_thread(private_postgres.kill)
        await send(scene, "c", "d")
        scene.app.open.set()
        await eventually(lambda: bool(waits(scene.plane)), "readiness says so")
        await asyncio.sleep(1)
        assert len(scene.app.got) == 2, "nothing runs unprotected"
        assert (await scene.observers.get("/healthz/ready")).status == 503
        await asyncio.to_thread(private_postgres.start)
        await until(scene, NOTHING)
        assert sorted(job.headers["idempotency-key"] for job in scene.app.got) == list("abcd")
        assert {job.headers["nq-attempt"] for job in scene.app.got} == {"1"}
        await eventually(lambda: scene.plane.missing() == [], "the plane is ready")


async def test_while_the_store_is_away_nothing_is_leased(private_postgres: Postgres) -> None:
    store = await opened_store(private_postgres.create_database("shop"))
    async with guarded(store, worker=False) as scene:
        await send(scene, "a")
        await asyncio.to_thread(private_postgres.kill)
        assert await lease(scene, "3s") == []
        waiting = asyncio.create_task(lease(scene, "60s"))
        await asyncio.to_thread(private_postgres.start)
        [item] = await waiting
        assert item["attempt"] == 1


def waits(plane: Plane) -> list[str]:
    return [why for why in plane.missing() if "waits: the store" in why]


async def test_idempotency_can_be_turned_on_and_off_under_way() -> None:
    async with guarded(await opened_store()) as scene:
        await send(scene, "a", "a")
        await until(scene, NOTHING)
        assert len(scene.app.got) == 1
        await scene.apply(scene.queue())
        await send(scene, "a")
        await until(scene, NOTHING)
        assert len(scene.app.got) == 2
        await scene.apply(scene.queue(idempotency=ONCE))
        await send(scene, "a")
        await until(scene, NOTHING)
        assert len(scene.app.got) == 2
