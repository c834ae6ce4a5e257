"""Streams over HTTP: read and read again, commit, seek, and any stretch in bulk."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from broker.port.play import answer, eventually
from fixtures.planes import Answer, Stage, stage
from fixtures.scale import scaled
from namedqueue_sidecar.brokers.port import Broker

EVENTS = "/v1/streams/events"
MESSAGES = f"{EVENTS}/messages"
LINES = {"Accept": "application/x-ndjson"}
QUICK = {"maxAttempts": 1, "delay": "0ms", "maxDelay": "0ms"}


@pytest.fixture
async def scene(broker_under_test: Broker) -> AsyncIterator[Stage]:
    """Serve a stream on each adapter in turn."""
    async with stage(broker=broker_under_test) as running:
        await running.apply(running.queue("events", type="stream", worker=False))
        yield running


@pytest.fixture
async def local() -> AsyncIterator[Stage]:
    """Serve a stream on the builtin broker."""
    async with stage() as running:
        await running.apply(running.queue("events", type="stream", worker=False))
        yield running


async def send(scene: Stage, count: int, first: int = 0) -> None:
    for start in range(first, first + count, 10_000):
        numbers = range(start, min(start + 10_000, first + count))
        entries = [{"payload": {"n": number}} for number in numbers]
        sent = await scene.api.post("/v1/queues/events/messages:batch", entries)
        assert sent.json == {"accepted": len(entries)}


async def read(scene: Stage, **query: object) -> dict[str, Any]:
    asked = "&".join(f"{name.rstrip('_')}={value}" for name, value in query.items())
    got = await scene.api.get(f"{MESSAGES}?{asked}")
    assert got.status == 200, got
    document: dict[str, Any] = got.json
    return document


async def read_all(scene: Stage, count: int, **query: object) -> dict[str, Any]:
    """Read until a piece has so many messages: a broker may send what there is in parts."""
    return await answer(lambda: read(scene, **query), lambda got: len(got["items"]) == count)


async def commit(scene: Stage, group: str, offset: object) -> Answer:
    return await scene.api.post(f"{EVENTS}/groups/{group}/commit", {"offset": offset})


async def seek(scene: Stage, group: str, to: object) -> Answer:
    return await scene.api.post(f"{EVENTS}/groups/{group}/seek", {"to": to})


def offsets(document: dict[str, Any]) -> list[int]:
    return [item["offset"] for item in document["items"]]


async def test_a_group_reads_the_same_until_it_commits_and_then_what_follows(
    scene: Stage,
) -> None:
    await send(scene, 25)
    first = await read_all(scene, 10, group="audit", max=10)
    assert (offsets(first), first["last"], first["next"]) == (list(range(10)), 9, 10)
    assert [item["payload"] for item in first["items"]] == [{"n": n} for n in range(10)]
    assert await read_all(scene, 10, group="audit", max=10) == first
    assert (await commit(scene, "audit", 9)).json == {"group": "audit", "cursor": 10}
    rest = await read_all(scene, 15, group="audit")
    assert (offsets(rest), rest["last"], rest["next"]) == (list(range(10, 25)), 24, 25)
    await commit(scene, "audit", 24)
    end = await read(scene, group="audit")
    assert end == {"items": [], "last": None, "next": 25}


async def test_two_groups_replay_a_stream_from_different_positions(scene: Stage) -> None:
    await send(scene, 20)
    assert offsets(await read_all(scene, 20, group="audit")) == list(range(20))
    assert offsets(await read_all(scene, 5, group="billing", from_=15)) == list(range(15, 20))
    await commit(scene, "audit", 19)
    assert (await seek(scene, "audit", "first")).json == {"group": "audit", "cursor": 0}
    assert offsets(await read_all(scene, 20, group="audit")) == list(range(20))
    assert (await seek(scene, "billing", "last")).json["cursor"] == 19
    assert offsets(await read(scene, group="billing")) == [19]
    groups = (await scene.api.get(f"{EVENTS}/groups")).json["items"]
    assert [(each["group"], each["cursor"], each["lag"]) for each in groups] == [
        ("audit", 0, 20),
        ("billing", 19, 1),
    ]


async def test_a_group_that_begins_with_what_comes_next_misses_nothing_between_two_reads(
    scene: Stage,
) -> None:
    await send(scene, 5)
    assert (await read(scene, group="late", from_="next"))["next"] == 5
    await send(scene, 3, first=5)
    assert offsets(await read_all(scene, 3, group="late", from_="next")) == [5, 6, 7]


async def test_who_waits_is_answered_as_soon_as_something_comes(scene: Stage) -> None:
    await send(scene, 1)
    await read(scene, group="audit")
    await commit(scene, "audit", 0)
    began = time.monotonic()
    waiting = asyncio.create_task(read(scene, group="audit", wait="30s"))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await send(scene, 1, first=1)
    assert offsets(await waiting) == [1]
    assert time.monotonic() - began < 20
    await commit(scene, "audit", 1)
    began = time.monotonic()
    assert offsets(await read(scene, group="audit", wait="300ms")) == []
    assert time.monotonic() - began >= 0.25


async def test_any_stretch_is_read_without_a_group_and_the_span_is_told(scene: Stage) -> None:
    await send(scene, 300)
    shown = (await scene.api.get(EVENTS)).json
    assert shown == {"queue": "events", "first": 0, "next": 300}
    middle = await read_all(scene, 50, from_=100, max=50)
    assert (offsets(middle), middle["next"]) == (list(range(100, 150)), 150)
    assert offsets(await read_all(scene, 50, from_=100, max=50)) == list(range(100, 150))
    assert offsets(await read(scene, from_="last")) == [299]
    assert (await read(scene, from_="next"))["next"] == 300
    assert offsets(await read_all(scene, 2, from_="2001-01-01T00:00:00Z", max=2)) == [0, 1]
    tomorrow = await read(scene, from_="2999-01-01T00:00:00Z")
    assert tomorrow == {"items": [], "last": None, "next": 300}
    assert (await scene.api.get(f"{EVENTS}/groups")).json["items"] == []


async def test_a_filter_leaves_out_topics_and_what_it_left_out_can_be_committed(
    scene: Stage,
) -> None:
    await scene.apply(
        scene.queue("events", type="stream", worker=False, subscriptions=[{"topic": "order/#"}])
    )
    for topic in ("order/eu/new", "order/us/new", "order/eu/old", "order/us/old"):
        assert (await scene.api.post(f"/v1/topics/{topic}/messages", {})).status == 202
    eu = await answer(
        lambda: read(scene, group="eu", filter="order/eu/%23"), lambda got: got["next"] == 4
    )
    assert (offsets(eu), eu["last"], eu["next"]) == ([0, 2], 3, 4)
    assert [item["topic"] for item in eu["items"]] == ["order/eu/new", "order/eu/old"]
    none = await read(scene, group="asia", filter="order/asia/%2B")
    assert none == {"items": [], "last": 3, "next": 4}
    assert (await commit(scene, "asia", none["last"])).json["cursor"] == 4
    assert await read(scene, group="asia") == {"items": [], "last": None, "next": 4}


async def test_a_bulk_reader_gets_a_line_for_each_message_and_nothing_is_lost(
    scene: Stage,
) -> None:
    payloads = [b'{\n  "pretty": [1,\r\n 2]\n}', b"12345678901234567890.125", b"\xff\x00", b""]
    for payload in payloads:
        await scene.api.post("/v1/queues/events/messages", payload, NQ_Type="a\\b")
    got = await answer(
        lambda: scene.api.call("GET", f"{MESSAGES}?from=0", headers=LINES),
        lambda got: got.headers["NQ-Next-Offset"] == "4",
    )
    assert got.headers["NQ-Last-Offset"] == "3"
    lines = got.body.split(b"\n")
    assert lines.pop() == b""
    items = [orjson.loads(line) for line in lines]
    assert [item["encoding"] for item in items] == ["json", "json", "base64", "base64"]
    assert items[0]["payload"] == {"pretty": [1, 2]}
    assert b"12345678901234567890.125" in lines[1]
    assert [base64.b64decode(item["payload"]["base64"]) for item in items[2:]] == payloads[2:]
    assert {item["type"] for item in items} == {"a\\b"}
    nothing = await scene.api.call("GET", f"{MESSAGES}?from=4", headers=LINES)
    assert (nothing.body, "NQ-Last-Offset" in nothing.headers) == (b"", False)


async def test_a_long_stream_is_read_piece_by_piece_at_speed(scene: Stage) -> None:
    count = scaled(100_000)
    await send(scene, count)
    numbers: list[int] = []
    began, at = time.monotonic(), 0
    while at < count:
        address = f"{scene.api.base}{MESSAGES}?from={at}&max=5000"
        async with scene.api.session.get(address, headers=LINES) as got:
            lines = (await got.read()).splitlines()
            at = int(got.headers["NQ-Next-Offset"])
        numbers += [orjson.loads(line)["payload"]["n"] for line in lines]
    seconds = time.monotonic() - began
    print(f"{count} messages in {seconds:.2f} s: {count / seconds:,.0f} a second")  # noqa: T201 - a figure
    assert numbers == list(range(count))


async def test_a_message_says_all_that_was_sent_with_it(local: Stage) -> None:
    headers = {
        "Content_Type": "application/json",
        "Idempotency_Key": "order-17",
        "NQ_Type": "order.created",
        "NQ_Group": "a",
        "NQ_Header_tenant": "acme",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    sent = await local.api.post("/v1/queues/events/messages", {"order": 17}, **headers)
    [item] = (await read(local))["items"]
    assert item.pop("time").endswith("Z")
    assert item == {
        "offset": 0,
        "id": sent.json["id"],
        "type": "order.created",
        "contentType": "application/json",
        "contentEncoding": None,
        "encoding": "json",
        "payload": {"order": 17},
        "group": "a",
        "topic": None,
        "idempotencyKey": "order-17",
        "traceparent": headers["traceparent"],
        "tracestate": None,
        "headers": {"tenant": "acme"},
    }


async def test_a_commit_goes_forwards_and_not_past_the_end(local: Stage) -> None:
    await send(local, 5)
    assert (await commit(local, "audit", 3)).status == 200
    assert (await commit(local, "audit", 3)).json["cursor"] == 4
    back = await commit(local, "audit", 1)
    assert (back.status, back.code) == (409, "COMMIT_BACKWARDS")
    assert "seek" in back.json["detail"]
    beyond = await commit(local, "audit", 5)
    assert (beyond.status, beyond.code) == (422, "NO_SUCH_OFFSET")
    assert offsets(await read(local, group="audit")) == [4]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{MESSAGES}?max=0", None),
        ("GET", f"{MESSAGES}?max=10001", None),
        ("GET", f"{MESSAGES}?wait=long", None),
        ("GET", f"{MESSAGES}?from=middle", None),
        ("GET", f"{MESSAGES}?filter=a/%23/b", None),
        ("GET", f"{MESSAGES}?group=No%20Label", None),
        ("GET", f"{MESSAGES}?offset=3", None),
        ("POST", f"{EVENTS}/groups/audit/commit", b"{}"),
        ("POST", f"{EVENTS}/groups/audit/commit", b'{"offset":-1}'),
        ("POST", f"{EVENTS}/groups/audit/commit", b'{"offset":true}'),
        ("POST", f"{EVENTS}/groups/A/commit", b'{"offset":0}'),
        ("POST", f"{EVENTS}/groups/audit/seek", b"{}"),
        ("POST", f"{EVENTS}/groups/audit/seek", b'{"to":"middle"}'),
        ("POST", f"{EVENTS}/groups/audit/seek", b'{"to":-1}'),
        ("POST", f"{EVENTS}/groups/audit/seek", b'{"to":true}'),
    ],
)
async def test_what_cannot_be_understood_is_refused_with_a_sentence(
    local: Stage, method: str, path: str, body: bytes | None
) -> None:
    refused = await local.api.call(method, path, body)
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST"), refused


async def test_only_streams_are_read(local: Stage) -> None:
    await local.apply(local.queue("orders"), local.queue("events", type="stream", worker=False))
    for path in ("", "/messages", "/groups"):
        assert (await local.api.get(f"/v1/streams/nobody{path}")).code == "UNKNOWN_QUEUE"
        refused = await local.api.get(f"/v1/streams/orders{path}")
        assert (refused.status, refused.code) == (409, "NOT_A_STREAM")
    leased = await local.api.post("/v1/queues/events/leases", {})
    assert (leased.status, leased.code) == (409, "NOT_LEASABLE")
    delayed = await local.api.post("/v1/queues/events/messages", {}, NQ_Delay="5s")
    assert (delayed.status, delayed.code) == (422, "INVALID_DELAY")


async def test_a_group_that_is_pushed_is_not_pulled_but_may_be_sought(local: Stage) -> None:
    await local.apply(
        local.queue("events", type="stream", stream={"consumers": [{"group": "audit"}]})
    )
    await send(local, 3)
    await local.app.jobs(3)
    assert (await local.api.get(f"{MESSAGES}?group=audit")).code == "GROUP_IS_PUSHED"
    assert (await commit(local, "audit", 0)).code == "GROUP_IS_PUSHED"
    assert (await seek(local, "audit", 1)).json == {"group": "audit", "cursor": 1}
    await eventually(lambda: len(local.app.got) == 5, "two came again")
    headers = [job.headers for job in local.app.got]
    assert [one["nq-offset"] for one in headers] == ["0", "1", "2", "1", "2"]
    assert {one["nq-stream-group"] for one in headers} == {"audit"}


async def test_a_group_that_halts_is_seen_everywhere_and_goes_on_after_a_seek(
    local: Stage,
) -> None:
    await local.apply(
        local.queue(
            "events", type="stream", retry=QUICK, stream={"consumers": [{"group": "audit"}]}
        )
    )
    local.app.status = 422
    await send(local, 3)
    await eventually(lambda: "halts at offset 0" in " ".join(local.plane.missing()), "it halts")
    ready = await local.api.get("/healthz/ready")
    assert ready.status == 503
    assert "nq streams seek events audit 1" in ready.json["missing"][0]
    [group] = (await local.api.get(f"{EVENTS}/groups")).json["items"]
    assert (group["cursor"], group["lag"], group["pushed"]) == (0, 3, True)
    halted = (await local.api.get("/v1/queues/events")).json["worker"]["halted"]
    assert halted == {"audit": group["halted"]}
    assert (halted["audit"]["offset"], halted["audit"]["code"]) == (0, "HTTP_422")
    metrics = (await local.api.get("/metrics")).body.decode()
    labels = '{group="audit",namespace="shop",queue="events"}'
    assert f"namedqueue_stream_halted{labels} 1.0" in metrics
    local.app.status = 200
    await seek(local, "audit", 1)
    await local.app.jobs(3)
    await eventually(lambda: local.plane.missing() == [], "all is well")
    assert (await local.api.get("/v1/queues/events")).json["worker"]["halted"] == {}


async def test_who_leaves_while_waiting_is_waited_for_no_longer(local: Stage) -> None:
    waiting = asyncio.create_task(read(local, from_=0, wait="60s"))
    readers = next(iter(await _readers(local)))
    await eventually(lambda: len(readers._busy) == 1, "somebody waits")
    waiting.cancel()
    await eventually(lambda: not readers._busy, "nobody waits")


async def test_a_drain_sends_those_home_who_wait(local: Stage) -> None:
    waiting = asyncio.create_task(read(local, from_=0, wait="60s"))
    readers = next(iter(await _readers(local)))
    await eventually(lambda: len(readers._busy) == 1, "somebody waits")
    began = time.monotonic()
    await local.plane.drain(5)
    assert offsets(await waiting) == []
    assert time.monotonic() - began < 30


async def _readers(scene: Stage) -> list[Any]:
    await eventually(lambda: bool(scene.plane._readers), "somebody reads")
    return list(scene.plane._readers.values())
