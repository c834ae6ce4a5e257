"""A job over HTTP: what comes to the app, what is refused, and what the answer says."""

import gzip
from collections.abc import AsyncIterator

import pytest

from broker.http_api.orders import MESSAGES, depth
from fixtures.planes import Stage
from namedqueue_sidecar.brokers.port import Depth
from namedqueue_sidecar.intake.jobs import LARGEST_PAYLOAD
from unit.jobs import TRACEPARENT


async def test_a_payload_comes_to_the_app_byte_for_byte_with_its_content_type(
    working: Stage,
) -> None:
    payload = bytes(range(256)) * 3
    sent = await working.api.post(MESSAGES, payload, Content_Type="image/x-odd; a=b")
    assert (sent.status, sent.json["queue"]) == (202, "orders")
    [job] = await working.app.jobs(1)
    assert (job.path, job.body) == ("/jobs", payload)
    assert job.headers["content-type"] == "image/x-odd; a=b"


async def test_a_compressed_payload_stays_compressed(working: Stage) -> None:
    payload = gzip.compress(b'{"order":17}')
    sent = await working.api.post(MESSAGES, payload, Content_Encoding="gzip")
    assert sent.status == 202
    [job] = await working.app.jobs(1)
    assert (job.body, job.headers["content-encoding"]) == (payload, "gzip")


async def test_the_app_gets_cloudevents_headers_and_ours(working: Stage) -> None:
    sent = await working.api.post(
        MESSAGES,
        b"{}",
        Content_Type="application/json",
        NQ_Type="order.created",
        NQ_Group="group 7",
        Idempotency_Key="order-17",
        traceparent=TRACEPARENT,
        tracestate="a=b",
        NQ_Header_Tenant="acme",
    )
    [job] = await working.app.jobs(1)
    expected = {
        "content-type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": sent.json["id"],
        "ce-source": "/queues/orders",
        "ce-type": "order.created",
        "nq-queue": "orders",
        "nq-attempt": "1",
        "nq-max-attempts": "5",
        "nq-retry-count": "0",
        "nq-group": "group 7",
        "idempotency-key": "order-17",
        "traceparent": TRACEPARENT,
        "tracestate": "a=b",
        "nq-header-tenant": "acme",
    }
    assert {name: job.headers[name] for name in expected} == expected
    assert "ce-time" in job.headers


async def test_what_a_producer_forges_never_comes_through(working: Stage) -> None:
    forged = {"x-death": "1", "CC": "a", "NQ-Attempt": "7", "NQ-Redrives": "3", "nq-history": "[]"}
    sent = await working.api.call("POST", MESSAGES, b"{}", {**forged, "NQ-Retry-Count": "5"})
    assert sent.status == 202
    [job] = await working.app.jobs(1)
    assert (job.headers["nq-attempt"], job.headers["nq-redrives"]) == ("1", "0")
    assert job.headers["nq-retry-count"] == "0"
    assert not {"x-death", "cc", "nq-history"} & job.headers.keys()


async def test_an_empty_payload_is_a_payload(working: Stage) -> None:
    assert (await working.api.post(MESSAGES)).status == 202
    [job] = await working.app.jobs(1)
    assert job.body == b""


async def test_the_answer_comes_after_the_confirm(idle: Stage) -> None:
    assert (await idle.api.post(MESSAGES, b"1")).status == 202
    assert (await depth(idle)).ready == 1


async def test_a_delayed_job_waits_and_then_comes(working: Stage) -> None:
    assert (await working.api.post(MESSAGES, b"late", NQ_Delay="5s")).status == 202
    assert (await depth(working)).waiting == 1
    assert working.app.got == []
    [job] = await working.app.jobs(1)
    assert job.body == b"late"


async def test_a_job_of_higher_priority_comes_first(scene: Stage) -> None:
    durable = {"storage": "classic", "maxPriority": 9}
    await scene.apply(scene.queue(worker=False, durable=durable))
    for priority in ("0", "9", "4"):
        sent = await scene.api.post(MESSAGES, priority.encode(), NQ_Priority=priority)
        assert sent.status == 202
    await scene.apply(scene.queue(durable=durable, worker_concurrency=1))
    jobs = await scene.app.jobs(3)
    assert [job.body for job in jobs] == [b"9", b"4", b"0"]


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/queues/nope", "/v1/queues/nope/dead-letters", "/v1/queues/nope/dead-letters/groups"),
        *("/v1/queues/nope/dead-letters/a", "/v1/queues/or%2Fders", "/v1/queues/%ff%00"),
    ],
)
async def test_an_unknown_queue_is_a_404_that_names_it(idle: Stage, path: str) -> None:
    found = await idle.api.get(path)
    assert (found.status, found.code) == (404, "UNKNOWN_QUEUE")


async def test_a_web_page_of_another_site_cannot_reach_a_queue_on_loopback(idle: Stage) -> None:
    refused = await idle.api.post(MESSAGES, b"{}", Origin="http://evil.example")
    assert (refused.status, refused.code) == (403, "FOREIGN_ORIGIN")
    assert (await depth(idle)).ready == 0
    own = idle.api.base
    assert (await idle.api.post(MESSAGES, b"{}", Origin=own)).status == 202


async def test_nothing_is_enqueued_to_an_unknown_queue(idle: Stage) -> None:
    for path in ("messages", "messages:batch", "redrive"):
        refused = await idle.api.post(f"/v1/queues/nope/{path}", b"[]")
        assert (refused.status, refused.code) == (404, "UNKNOWN_QUEUE")


async def test_a_payload_past_a_mebibyte_is_a_413_announced_or_not(idle: Stage) -> None:
    assert (await idle.api.post(MESSAGES, b"x" * LARGEST_PAYLOAD)).status == 202
    large = b"x" * (LARGEST_PAYLOAD + 1)
    refused = await idle.api.post(MESSAGES, large)
    assert (refused.status, refused.code) == (413, "PAYLOAD_TOO_LARGE")

    async def in_pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 60_000):
            yield large[start : start + 60_000]

    url = f"{idle.api.base}{MESSAGES}"
    async with idle.api.session.post(url, data=in_pieces()) as response:
        assert response.status == 413
        assert response.content_type == "application/problem+json"
    assert (await depth(idle)).ready == 1


async def test_a_caller_that_waits_with_its_body_is_told_to_send_it(idle: Stage) -> None:
    sent = await idle.api.post(MESSAGES, b"1", Expect="100-continue")
    assert sent.status == 202


async def test_a_payload_against_the_schema_is_a_422(scene: Stage) -> None:
    schema = {"type": "object", "required": ["order"]}
    await scene.apply(scene.queue(schema=schema))
    refused = await scene.api.post(MESSAGES, {"orde": 1})
    assert (refused.status, refused.code) == (422, "SCHEMA_VIOLATION")
    assert (await scene.api.post(MESSAGES, {"order": 1})).status == 202
    assert len(await scene.app.jobs(1)) == 1


@pytest.mark.parametrize(
    ("header", "value", "code"),
    [
        ("NQ-Delay", "soon", "INVALID_DELAY"),
        ("NQ-Delay", "30d", "INVALID_DELAY"),
        ("NQ-Priority", "1", "INVALID_PRIORITY"),
        ("NQ-Type", "x" * 256, "INVALID_FIELD"),
        ("Idempotency-Key", "é", "INVALID_FIELD"),
        ("NQ-Header-X-Death", "1", "INVALID_HEADER"),
        ("NQ-Header-CC", "1", "INVALID_HEADER"),
    ],
)
async def test_a_header_that_is_not_acceptable_is_a_422(
    idle: Stage, header: str, value: str, code: str
) -> None:
    refused = await idle.api.call("POST", MESSAGES, b"{}", {header: value})
    assert (refused.status, refused.code) == (422, code)
    assert await depth(idle) == Depth(0, 0, 0, 0)


async def test_a_full_queue_is_a_429_that_says_when_to_try_again(scene: Stage) -> None:
    await scene.apply(scene.queue(worker=False, durable={"maxLength": 2}))
    statuses = [(await scene.api.post(MESSAGES, b"1")).status for _ in range(2)]
    assert statuses == [202, 202]
    refused = await scene.api.post(MESSAGES, b"1")
    assert (refused.status, refused.code) == (429, "QUEUE_FULL")
    assert refused.headers["Retry-After"] == "1"
    assert (await depth(scene)).ready == 2
