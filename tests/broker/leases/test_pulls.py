"""Who gets which jobs: pulls that wait, take their share, go away, or ask for nonsense."""

import asyncio
from typing import Any

import pytest

from broker.port.play import eventually
from fixtures.planes import HOST, Stage
from fixtures.pulling import (
    KEY,
    LEASES,
    NONE,
    ORDERS,
    enqueue,
    finish,
    held,
    lease,
    lease_one,
    until,
)
from namedqueue_sidecar.brokers.port import Depth
from namedqueue_sidecar.consuming import pulls
from namedqueue_sidecar.consuming.pulls import Wish

AS_IT_IS: dict[str, Any] = {"declare": False, "work": False}


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
    """Thirty pulls: a job that each of them hands back would be past the delivery limit."""
    monkeypatch.setattr(pulls, "LARGEST_PULL", 32 * 1024)
    large = "x" * 16 * 1024
    sent = await pulled.api.post(f"{ORDERS}/messages:batch", [{"payload": large}] * 60)
    assert sent.json == {"accepted": 60}
    done: set[str] = set()
    while len(done) < 60:
        items = await lease(pulled, max=1000)
        assert 1 <= len(items) <= 2
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
        head = f"POST {LEASES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
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
