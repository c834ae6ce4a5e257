"""Workers that pull: leases over real HTTP, on every adapter, next to a pushed worker."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from broker.port.play import eventually
from fixtures.adapters import Place
from fixtures.planes import HOST, Stage, stage
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
from namedqueue_sidecar.brokers.port import Broker, Depth, Publication, Settled
from namedqueue_sidecar.consuming import leasing, pulls
from namedqueue_sidecar.consuming.pulls import Wish


@pytest.fixture
async def scene(broker_under_test: Broker) -> AsyncIterator[Stage]:
    """Serve a plane with no queue yet, on each adapter."""
    async with stage(broker=broker_under_test) as running:
        yield running


@pytest.fixture
async def pulled(scene: Stage) -> Stage:
    """Serve queue `orders`, worked off only by those who pull."""
    await scene.apply(scene.queue(worker=False, retry=QUICK))
    return scene


@pytest.fixture
async def local() -> AsyncIterator[Stage]:
    """Serve queue `orders` on the builtin broker, for what no broker can change."""
    async with stage() as running:
        await running.apply(running.queue(worker=False, retry=QUICK))
        yield running


# How a lease ends


async def test_a_job_is_leased_with_all_that_belongs_to_it_and_acked(pulled: Stage) -> None:
    sent = await pulled.api.post(
        f"{ORDERS}/messages",
        b'{"order": 123456789012345678901234567890.10}',
        Content_Type="application/json",
        NQ_Type="order.created",
        Idempotency_Key="order-17",
        NQ_Header_Tenant="acme",
    )
    got = await pulled.api.post(LEASES, {"wait": "30s", "worker": "gpu-3", "visibility": "5m"})
    assert b'{"order": 123456789012345678901234567890.10}' in got.body
    [item] = got.json["items"]
    expected = {
        "id": sent.json["id"],
        "type": "order.created",
        "attempt": 1,
        "maxAttempts": 3,
        "contentType": "application/json",
        "encoding": "json",
        "idempotencyKey": "order-17",
        "headers": {"tenant": "acme"},
    }
    assert {name: item[name] for name in expected} == expected
    [flight] = (await pulled.api.get(f"{ORDERS}/in-flight")).json["items"]
    assert (flight["id"], flight["worker"], flight["attempt"]) == (item["id"], "gpu-3", 1)
    assert flight["until"] == item["until"] > flight["since"]
    acked = await finish(pulled, item, "ack")
    assert (acked.status, acked.json) == (200, {"decision": "ack"})
    await until(pulled, NONE)
    assert (await pulled.api.get(f"{ORDERS}/in-flight")).json["items"] == []


@pytest.mark.parametrize(
    ("payload", "more"),
    [(b"\xff\x00", {}), (b"plain text", {}), (b"", {}), (b"{}", {"Content_Encoding": "gzip"})],
    ids=str,
)
async def test_a_payload_that_is_not_json_comes_in_base64(
    local: Stage, payload: bytes, more: dict[str, str]
) -> None:
    await local.api.post(f"{ORDERS}/messages", payload, **more)
    item = await lease_one(local)
    assert item["encoding"] == "base64"
    assert base64.b64decode(item["payload"]["base64"]) == payload


async def test_json_nested_too_deeply_to_be_shown_does_not_spoil_the_other_jobs(
    local: Stage,
) -> None:
    deep = b"[" * 1022 + b"]" * 1022
    for payload in (deep, b"1"):
        await local.api.post(f"{ORDERS}/messages", payload)
    first, second = await lease(local, max=10)
    assert (first["encoding"], second["payload"]) == ("base64", 1)
    assert base64.b64decode(first["payload"]["base64"]) == deep


async def test_a_nack_brings_the_job_back_after_its_backoff(pulled: Stage) -> None:
    await enqueue(pulled, 1)
    nacked = await finish(pulled, await lease_one(pulled), "nack", code="gpu-busy")
    assert nacked.json == {"decision": "retry", "attempt": 2, "delayMs": 250}
    again = await lease_one(pulled)
    assert again["attempt"] == 2
    later = await finish(pulled, again, "nack", retryAfter="200ms")
    assert later.json == {"decision": "retry", "attempt": 3, "delayMs": 250}
    last = await finish(pulled, await lease_one(pulled), "nack", code="OUT_OF_MEMORY")
    assert last.json == {"decision": "dead-letter", "code": "OUT_OF_MEMORY"}
    await until(pulled, Depth(0, 0, 0, 1))
    [letter] = await dead_letters(pulled)
    assert [each["errorCode"] for each in letter["attemptHistory"]] == [
        *("GPU_BUSY", "NACKED", "OUT_OF_MEMORY"),
    ]
    assert letter["terminalReasonMessage"].startswith("Retries exhausted after 3 attempts")


async def test_a_reject_is_a_dead_letter_at_once_and_the_answer_comes_when_it_is_one(
    pulled: Stage,
) -> None:
    await enqueue(pulled, 2)
    first, second = [await lease_one(pulled) for _ in range(2)]
    named = await finish(pulled, first, "reject", code="cardDeclined")
    assert named.json == {"decision": "dead-letter", "code": "CARD_DECLINED"}
    assert [each["eventId"] for each in await dead_letters(pulled)] == [first["id"]]
    assert (await finish(pulled, second, "reject")).json["code"] == "REJECTED"
    await until(pulled, Depth(0, 0, 0, 2))


async def test_a_lease_that_runs_out_comes_back_counted_as_a_timeout(pulled: Stage) -> None:
    await enqueue(pulled, 1)
    for attempt in (1, 2, 3):
        item = await lease_one(pulled, visibility="200ms", worker="crasher")
        assert item["attempt"] == attempt
    await until(pulled, Depth(0, 0, 0, 1))
    [letter] = await dead_letters(pulled)
    assert letter["terminalReasonCode"] == "TIMEOUT"
    story = letter["attemptHistory"]
    assert [(each["attempt"], each["errorCode"]) for each in story] == [
        *((1, "TIMEOUT"), (2, "TIMEOUT"), (3, "TIMEOUT")),
    ]
    assert all(each["durationMs"] >= 200 for each in story)
    assert "crasher" in story[0]["message"]
    late = await finish(pulled, item, "ack")
    assert (late.status, late.code) == (410, "LEASE_EXPIRED")


async def test_a_lease_that_is_extended_runs_on(pulled: Stage) -> None:
    await enqueue(pulled, 1)
    item = await lease_one(pulled, visibility="1s")
    extended = await finish(pulled, item, "extend", visibility="10m")
    assert extended.json["decision"] == "extend"
    assert extended.json["until"] > item["until"]
    [flight] = (await pulled.api.get(f"{ORDERS}/in-flight")).json["items"]
    assert flight["until"] == extended.json["until"]
    shortened = await finish(pulled, item, "extend", visibility="100ms")
    assert shortened.json["until"] < extended.json["until"]
    again = await lease_one(pulled)
    assert (again["id"], again["attempt"]) == (item["id"], 2)
    assert (await finish(pulled, again, "ack")).status == 200


async def test_no_extension_goes_past_the_longest_time_that_a_broker_allows(local: Stage) -> None:
    await enqueue(local, 1)
    item = await lease_one(local)
    leases = local.plane.leasing(KEY)
    leases.longest_visibility = 40.0
    extended = await finish(local, item, "extend", visibility="40s")
    assert (await finish(local, item, "extend", visibility="40s")).json == extended.json


async def test_an_unknown_lease_is_a_404_and_a_finished_one_a_410(local: Stage) -> None:
    nobody = {"lease": "0" * 32}
    for outcome in ("ack", "nack", "reject", "extend"):
        unknown = await finish(local, nobody, outcome)
        assert (unknown.status, unknown.code) == (404, "UNKNOWN_LEASE")
    await enqueue(local, 1)
    item = await lease_one(local)
    assert (await finish(local, nobody, "ack")).code == "UNKNOWN_LEASE"
    assert (await finish(local, item, "ack")).status == 200
    for outcome in ("ack", "nack", "reject", "extend"):
        gone = await finish(local, item, outcome)
        assert (gone.status, gone.code) == (410, "LEASE_FINISHED")


async def test_a_job_against_the_schema_is_never_shown_to_a_worker(scene: Stage) -> None:
    await scene.apply(scene.queue(worker=False))
    await enqueue(scene, 1)
    await scene.api.post(f"{ORDERS}/messages", b'"text"')
    await scene.apply(scene.queue(worker=False, schema={"type": "string"}))
    item = await lease_one(scene)
    assert item["payload"] == "text"
    await finish(scene, item, "ack")
    await until(scene, Depth(0, 0, 0, 1))
    [letter] = await dead_letters(scene)
    assert letter["terminalReasonCode"] == "VALIDATION_ERROR"


class Mute:
    """A broker that keeps its word to itself until it is told to speak."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.silent = False
        self.unsaid: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        if self.silent:
            self.unsaid.append(lambda: self._broker.publish(batch, settled))
        else:
            self._broker.publish(batch, settled)

    def speak(self) -> None:
        unsaid, self.unsaid = self.unsaid, []
        for say in unsaid:
            say()


@pytest.fixture
async def mute() -> AsyncIterator[tuple[Stage, Mute]]:
    """Serve queue `orders` on a broker that does not confirm."""
    made: list[Mute] = []

    def wrap(broker: Broker) -> Broker:
        made.append(Mute(broker))
        return cast("Broker", made[0])

    async with stage(wrap) as running:
        await running.apply(running.queue(worker=False, retry=QUICK))
        await enqueue(running, 1)
        made[0].silent = True
        yield running, made[0]


async def test_the_answer_comes_when_the_job_is_safe_and_is_the_same_for_whoever_asks_again(
    mute: tuple[Stage, Mute],
) -> None:
    scene, broker = mute
    item = await lease_one(scene, visibility="100ms")
    nacking = asyncio.create_task(finish(scene, item, "nack"))
    await eventually(lambda: bool(broker.unsaid), "the retry is on its way")
    rejecting = asyncio.create_task(finish(scene, item, "reject"))
    assert (await finish(scene, item, "extend")).code == "LEASE_FINISHED"
    await asyncio.sleep(0.2)  # past the visibility, which no longer counts
    assert not nacking.done()
    assert not rejecting.done()
    assert await scene.plane.broker.depth(KEY) == Depth(0, 1, 0, 0)
    broker.speak()
    expected = {"decision": "retry", "attempt": 2, "delayMs": 250}
    assert ((await nacking).json, (await rejecting).json) == (expected, expected)
    assert (await lease_one(scene))["attempt"] == 2


async def test_a_worker_is_not_kept_waiting_for_a_broker_that_does_not_confirm(
    mute: tuple[Stage, Mute], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, broker = mute
    monkeypatch.setattr(leasing, "SAFE_WITHIN", 0.1)
    item = await lease_one(scene)
    late = await finish(scene, item, "nack")
    assert (late.status, late.code) == (503, "BROKER_UNAVAILABLE")
    broker.speak()
    await eventually(lambda: held(scene) == 0, "the job moved on")
    assert (await finish(scene, item, "nack")).code == "LEASE_FINISHED"
    assert (await lease_one(scene))["attempt"] == 2


async def test_a_connection_that_is_lost_while_a_job_moves_on_is_told(
    mute: tuple[Stage, Mute],
) -> None:
    scene, broker = mute
    item = await lease_one(scene)
    nacking = asyncio.create_task(finish(scene, item, "nack"))
    await eventually(lambda: bool(broker.unsaid), "the retry is on its way")
    scene.plane.leasing(KEY).lost()
    told = await nacking
    assert (told.status, told.code) == (410, "LEASE_LOST")
    assert (await finish(scene, item, "ack")).code == "LEASE_LOST"


async def test_a_drain_does_not_wait_for_ever_for_a_broker_that_does_not_confirm(
    mute: tuple[Stage, Mute],
) -> None:
    scene, broker = mute
    item = await lease_one(scene)
    nacking = asyncio.create_task(finish(scene, item, "nack"))
    await eventually(lambda: bool(broker.unsaid), "the retry is on its way")
    await scene.plane.drain(patience=0.1)
    assert (await nacking).code == "LEASE_HANDED_BACK"
    assert await scene.plane.broker.depth(KEY) == Depth(1, 0, 0, 0)


# Waiting


async def test_a_pull_returns_as_soon_as_a_job_comes(pulled: Stage) -> None:
    waiting = asyncio.create_task(lease(pulled, wait="60s", max=1))
    await eventually(lambda: bool(pulled.plane.leasing(KEY)._pulls), "a worker waits")
    assert not waiting.done()
    began = asyncio.get_running_loop().time()
    await enqueue(pulled, 1)
    [item] = await waiting
    assert asyncio.get_running_loop().time() - began < 30
    assert (await finish(pulled, item, "ack")).status == 200


async def test_a_pull_without_a_job_is_empty_when_its_time_is_up(pulled: Stage) -> None:
    for wish in ({}, {"wait": "0s"}, {"wait": "300ms", "max": 1000}):
        got = await pulled.api.post(LEASES, wish)
        assert (got.status, got.json) == (200, {"items": []})


async def test_a_pull_takes_what_is_there_up_to_its_max(pulled: Stage) -> None:
    await enqueue(pulled, 30)
    first = await lease(pulled, max=20)
    rest: list[dict[str, Any]] = []
    while len(first) + len(rest) < 30:
        rest += await lease(pulled, max=20)
    assert 1 <= len(first) <= 20
    assert len({item["id"] for item in (*first, *rest)}) == 30
    for item in (*first, *rest):
        assert (await finish(pulled, item, "ack")).status == 200
    await until(pulled, NONE)


async def test_large_jobs_come_in_small_numbers_and_are_not_worn_out_by_being_handed_back(
    pulled: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulls, "LARGEST_PULL", 64 * 1024)
    large = "x" * 16 * 1024
    sent = await pulled.api.post(f"{ORDERS}/messages:batch", [{"payload": large}] * 150)
    assert sent.json == {"accepted": 150}
    done: set[str] = set()
    while len(done) < 150:
        items = await lease(pulled, max=1000)
        assert 1 <= len(items) <= 4
        for item in items:
            assert (await finish(pulled, item, "ack")).status == 200
            done.add(item["id"])
    await until(pulled, NONE)


async def test_every_waiting_worker_gets_its_share(pulled: Stage) -> None:
    held_before = []
    for count in (1, 2):
        await enqueue(pulled, count)
        held_before += [await lease_one(pulled) for _ in range(count)]
    greedy = asyncio.create_task(lease(pulled, max=100, wait="60s"))
    others = [asyncio.create_task(lease(pulled, max=1, wait="60s")) for _ in range(4)]
    await eventually(lambda: pulled.plane.leasing(KEY)._pulls.lacking == 104, "all wait")
    await enqueue(pulled, 20)
    got = [await waiting for waiting in others]
    items = [*held_before, *(item for each in got for item in each), *await greedy]
    await eventually(lambda: held(pulled) == len(items), "nothing is held that nobody has")
    for item in items:
        assert (await finish(pulled, item, "ack")).status == 200
    await until(pulled, Depth(23 - len(items), 0, 0, 0))


async def test_a_worker_that_goes_away_while_it_waits_gets_no_job_stuck(pulled: Stage) -> None:
    for _ in range(3):
        _, writer = await asyncio.open_connection(HOST, pulled.port)
        body = b'{"wait":"60s","max":100,"visibility":"20m"}'
        writer.write(
            f"POST {LEASES} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        leases = pulled.plane.leasing(KEY)
        await eventually(lambda: bool(leases._pulls), "a worker waits")  # noqa: B023
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: not leases._pulls, "its pull is over")  # noqa: B023
    await enqueue(pulled, 1)
    item = await lease_one(pulled)
    assert item["attempt"] == 1
    assert (await finish(pulled, item, "ack")).status == 200


@pytest.mark.parametrize("leased", [False, True])
async def test_what_a_worker_got_that_is_gone_before_it_knows_is_handed_back(
    pulled: Stage, leased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulls, "GATHERING", 60.0)
    leases = pulled.plane.leasing(KEY)
    pulling = asyncio.create_task(leases.pull(Wish(1000, 60.0, 600.0, "goner")))
    await eventually(lambda: bool(leases._pulls), "a worker waits")
    [pull] = leases._pulls._waiting
    await enqueue(pulled, 5)
    await eventually(lambda: bool(pull.got), "a job came")
    if leased:
        leases._pulls._answer(pull)
    pulling.cancel()
    await asyncio.wait([pulling])
    assert pulling.cancelled()
    await until(pulled, Depth(5, 0, 0, 0))
    assert (await pulled.api.get(f"{ORDERS}/in-flight")).json["items"] == []
    assert (await lease_one(pulled))["attempt"] == 1


async def test_no_job_lies_in_a_sidecar_that_nobody_pulls_from(pulled: Stage) -> None:
    await enqueue(pulled, 10)
    item = await lease_one(pulled)
    await until(pulled, Depth(9, 1, 0, 0))
    await finish(pulled, item, "ack")
    await until(pulled, Depth(9, 0, 0, 0))


@pytest.mark.parametrize(
    "wish",
    [
        *({"max": 0}, {"max": 1001}, {"max": "1"}, {"max": True}, {"max": 1.5}, {"max": None}),
        *({"wait": "1"}, {"wait": 5}, {"wait": None}, {"wait": "-1s"}, {"wait": ""}),
        *({"visibility": "99ms"}, {"visibility": "30m"}, {"visibility": 30}),
        *({"worker": ""}, {"worker": "a\nb"}, {"worker": 7}, {"worker": "x" * 256}),
        *({"maximum": 1}, [], "text", 1),
    ],
    ids=str,
)
async def test_a_wish_that_means_nothing_is_refused(local: Stage, wish: Any) -> None:
    refused = await local.api.post(LEASES, wish)
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "said",
    [
        *({}, {"outcome": "done"}, {"outcome": None}, {"outcome": ["ack"]}, [], 1),
        *({"outcome": "ack", "code": "A"}, {"outcome": "nack", "visibility": "1s"}),
        *({"outcome": "nack", "code": ""}, {"outcome": "nack", "code": None}),
        *({"outcome": "nack", "retryAfter": 5}, {"outcome": "reject", "retryAfter": "5s"}),
        *({"outcome": "extend", "visibility": "1d"}, {"outcome": "extend", "visibility": None}),
        {"outcome": "ack", "why": 1},
    ],
    ids=str,
)
async def test_an_outcome_that_means_nothing_is_refused_and_the_lease_goes_on(
    local: Stage, said: Any
) -> None:
    await enqueue(local, 1)
    item = await lease_one(local)
    refused = await local.api.post(f"{LEASES}/{item['lease']}", said)
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")
    assert (await finish(local, item, "ack")).status == 200


async def test_a_queue_that_keeps_an_order_or_is_no_queue_of_work_cannot_be_leased_from(
    local: Stage,
) -> None:
    fifo = local.queue(worker=False, durable={"fifo": {"groupBy": "body.a"}})
    await local.plane.apply([fifo, local.queue("log", worker=False, type="stream")], **AS_IT_IS)
    for queue in ("orders", "log"):
        refused = await local.api.post(f"/v1/queues/{queue}/leases", {})
        assert (refused.status, refused.code) == (409, "NOT_LEASABLE")
    for path in ("nope/leases", "nope/leases/a"):
        assert (await local.api.post(f"/v1/queues/{path}", {})).code == "UNKNOWN_QUEUE"
    assert (await local.api.get("/v1/queues/nope/in-flight")).code == "UNKNOWN_QUEUE"


AS_IT_IS = {"declare": False, "work": False}


# Next to others


async def test_push_and_pull_share_a_queue_and_every_job_ends_once(scene: Stage) -> None:
    """A worker that crashes, one that extends, one that rejects, and a pushed one."""
    await scene.apply(scene.queue(retry=QUICK | {"maxAttempts": 9}, worker_concurrency=2))
    done: list[str] = []
    rejected: list[str] = []
    crashed: list[str] = []
    over = False

    async def puller(name: str) -> None:
        while not over:
            for item in await lease(scene, max=3, wait="500ms", visibility="5s", worker=name):
                if name == "rejecter":
                    rejected.append(item["id"])
                    assert (await finish(scene, item, "reject")).status == 200
                else:
                    assert (await finish(scene, item, "extend", visibility="1m")).status == 200
                    assert (await finish(scene, item, "ack")).status == 200
                    done.append(item["id"])

    scene.app.open.clear()
    await enqueue(scene, 60)
    await scene.app.jobs(2)
    for _ in range(3):
        items = await lease(scene, max=5, visibility="300ms", worker="crasher")
        crashed += [item["id"] for item in items]
    names = {f["worker"] for f in (await scene.api.get(f"{ORDERS}/in-flight")).json["items"]}
    assert "push" in names
    scene.app.open.set()
    pullers = [asyncio.create_task(puller(name)) for name in ("extender", "rejecter")]

    def all_ended() -> bool:
        return scene.app.finished + len(done) + len(rejected) >= 60

    await eventually(all_ended, "every job ended")
    over = True
    await asyncio.gather(*pullers)
    await until(scene, Depth(0, 0, 0, len(rejected)))
    pushed = [job.headers["ce-id"] for job in scene.app.got]
    ended = [*pushed, *done, *rejected]
    assert len(ended) == len(set(ended)) == 60
    assert crashed
    again = {job.headers["ce-id"]: job.headers["nq-attempt"] for job in scene.app.got}
    assert all(again.get(each, "2") != "1" for each in crashed)
    assert {letter["eventId"] for letter in await dead_letters(scene)} == set(rejected)


async def test_jobs_behind_a_slow_worker_are_finished_by_an_idle_one(
    scene: Stage, another_client: Place
) -> None:
    async with stage(broker=await another_client()) as other:
        slow = scene.queue(worker_concurrency=1)
        await scene.apply(slow)
        scene.app.open.clear()
        await enqueue(scene, 200)
        await scene.app.jobs(1)
        await other.plane.apply([other.queue(worker_concurrency=20)], declare=False, work=True)
        await eventually(lambda: other.app.finished == 199, "the idle one finished the others")
        assert (len(scene.app.got), scene.app.finished) == (1, 0)
        scene.app.open.set()
        await until(scene, NONE)
        ids = [job.headers["ce-id"] for job in (*scene.app.got, *other.app.got)]
        assert len(set(ids)) == len(ids) == 200


async def test_jobs_behind_a_slow_worker_are_finished_by_one_that_pulls(scene: Stage) -> None:
    await scene.apply(scene.queue(worker_concurrency=1))
    scene.app.open.clear()
    await enqueue(scene, 50)
    await scene.app.jobs(1)
    done = 0
    while done < 49:
        for item in await lease(scene, max=10):
            assert (await finish(scene, item, "ack")).status == 200
            done += 1
    scene.app.open.set()
    await until(scene, NONE)
    assert len(scene.app.got) == 1
