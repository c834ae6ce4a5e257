"""Many jobs in one call."""

import gzip

import orjson
import pytest

from broker.http_api.orders import BATCH, depth
from fixtures.planes import Stage
from namedqueue_sidecar.intake.jobs import LARGEST_BATCH
from unit.jobs import TRACEPARENT


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
async def test_a_batch_is_accepted_whole(working: Stage, kind: str) -> None:
    entries = [{"payload": {"n": n}, "type": "t", "headers": {"n": n}} for n in range(50)]
    body = orjson.dumps(entries)
    if kind != "application/json":
        body = b"\n".join(orjson.dumps(each) for each in entries)
    sent = await working.api.post(BATCH, body, Content_Type=kind)
    assert (sent.status, sent.json) == (202, {"accepted": 50})
    jobs = await working.app.jobs(50)
    assert sorted(orjson.loads(job.body)["n"] for job in jobs) == list(range(50))
    assert all(job.headers["nq-header-n"] == str(orjson.loads(job.body)["n"]) for job in jobs)
    assert {job.headers["content-type"] for job in jobs} == {"application/json"}


async def test_bad_entries_fail_alone_and_are_named(idle: Stage) -> None:
    entries = [{"payload": 1}, {"payload": 2, "delay": "soon"}, {"id": "x"}, 7, {"payload": 3}]
    sent = await idle.api.post(BATCH, entries)
    assert (sent.status, sent.json["accepted"]) == (207, 2)
    failed = [(each["index"], each["code"]) for each in sent.json["failed"]]
    assert failed == [(1, "INVALID_DELAY"), (2, "INVALID_REQUEST"), (3, "INVALID_REQUEST")]
    assert (await depth(idle)).ready == 2


async def test_a_batch_that_fills_the_queue_is_accepted_as_far_as_it_fits(scene: Stage) -> None:
    await scene.apply(scene.queue(worker=False, durable={"maxLength": 3}))
    sent = await scene.api.post(BATCH, [{"payload": n} for n in range(5)])
    assert (sent.status, sent.json["accepted"]) == (207, 3)
    assert {each["code"] for each in sent.json["failed"]} == {"QUEUE_FULL"}
    assert (await depth(scene)).ready == 3


async def test_an_empty_batch_is_accepted(idle: Stage) -> None:
    sent = await idle.api.post(BATCH, b"[]")
    assert (sent.status, sent.json) == (202, {"accepted": 0})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *((b"", 400), (b"{}", 400), (b"[1", 400), (b"[" * 10_000, 400)),
        *((b"[%b1]" % (b"1," * 10_000), 413), (b" " * (LARGEST_BATCH + 1), 413)),
    ],
)
async def test_a_body_that_is_no_batch_is_refused(idle: Stage, body: bytes, status: int) -> None:
    refused = await idle.api.post(BATCH, body)
    assert refused.status == status
    assert refused.code


async def test_a_compressed_batch_is_a_415(idle: Stage) -> None:
    refused = await idle.api.post(BATCH, gzip.compress(b"[]"), Content_Encoding="gzip")
    assert (refused.status, refused.code) == (415, "UNSUPPORTED_ENCODING")


async def test_a_batch_hands_on_the_callers_trace(working: Stage) -> None:
    await working.api.post(BATCH, [{"payload": 1}], traceparent=TRACEPARENT, tracestate="a=b")
    [job] = await working.app.jobs(1)
    assert (job.headers["traceparent"], job.headers["tracestate"]) == (TRACEPARENT, "a=b")
