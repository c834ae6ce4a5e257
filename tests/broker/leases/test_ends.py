"""How a lease ends: by its worker, or because its time is up."""

import base64

import pytest

from fixtures.planes import Stage
from fixtures.pulling import (
    KEY,
    LEASES,
    NONE,
    ORDERS,
    dead_letters,
    enqueue,
    finish,
    lease,
    lease_one,
    until,
)
from namedqueue_sidecar.brokers.port import Depth


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
    item = await lease_one(pulled, visibility="30s")
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
