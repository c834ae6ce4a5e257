"""The HTTP API of the data plane, row by row: real sockets, the builtin broker, a tiny app."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.port.play import NAMESPACE, answer, bury_all, eventually, letter
from fixtures.planes import HOST, OPENAPI, Stage, stage
from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar.brokers.port import Broker, Depth, QueueKey
from namedqueue_sidecar.intake.jobs import LARGEST_BATCH, LARGEST_PAYLOAD
from unit.jobs import TRACEPARENT

ORDERS = "/v1/queues/orders"
MESSAGES = f"{ORDERS}/messages"
BATCH = f"{MESSAGES}:batch"
LETTERS = f"{ORDERS}/dead-letters"
KEY = QueueKey(NAMESPACE, "orders")


@pytest.fixture
async def scene() -> AsyncIterator[Stage]:
    """Serve a plane with no queue yet."""
    async with stage() as running:
        yield running


@pytest.fixture
async def working(scene: Stage) -> Stage:
    """Serve queue `orders`, worked off by the tiny app."""
    await scene.apply(scene.queue())
    return scene


@pytest.fixture
async def idle(scene: Stage) -> Stage:
    """Serve queue `orders`, worked off by nobody."""
    await scene.apply(scene.queue(worker=False))
    return scene


async def depth(scene: Stage) -> Depth:
    found = await scene.plane.broker.depth(KEY)
    assert found is not None
    return found


# Enqueueing


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
    assert (await working.api.post(MESSAGES, b"late", NQ_Delay="1s")).status == 202
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


class Away:
    """A broker that is away while `reason` says so."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.reason: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    @property
    def unavailable(self) -> str | None:
        return self.reason or self._broker.unavailable

    async def depth(self, queue: QueueKey) -> Depth | None:
        if self.reason:
            raise ConnectionError(self.reason)
        return await self._broker.depth(queue)


async def test_while_the_broker_is_away_everything_is_a_503_and_then_it_goes_on() -> None:
    wrapped: list[Any] = []

    def wrap(broker: Broker) -> Broker:
        wrapped.append(Away(broker))
        return wrapped[0]  # type: ignore[no-any-return]  # whatever it does not say, the broker does

    async with stage(wrap) as scene:
        await scene.apply(scene.queue(worker=False, subscriptions=[{"topic": "a"}]))
        wrapped[0].reason = "memory alarm on rabbit-0"
        for path, body in (
            (MESSAGES, b"1"),
            (BATCH, b'[{"payload":1}]'),
            ("/v1/topics/a/messages", b"1"),
            (f"{ORDERS}/redrive", b"{}"),
        ):
            refused = await scene.api.post(path, body)
            assert (refused.status, refused.code) == (503, "BROKER_UNAVAILABLE")
            assert refused.headers["Retry-After"] == "1"
            assert "memory alarm" in refused.json["detail"]
        for path in ("/v1/queues", ORDERS):
            assert (await scene.api.get(path)).code == "BROKER_UNAVAILABLE"
        unready = await scene.api.get("/healthz/ready")
        assert (unready.status, unready.json["status"]) == (503, "not ready")
        assert unready.json["missing"] == ["broker: memory alarm on rabbit-0"]
        wrapped[0].reason = None
        assert (await scene.api.post(MESSAGES, b"1")).status == 202
        assert (await scene.api.get("/healthz/ready")).status == 200


# Batches


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


# Topics


@pytest.mark.parametrize(
    "written", ["order/eu/created", "order%2Feu%2Fcreated", "order%2feu/created"]
)
async def test_a_topics_slashes_come_as_they_are_or_percent_encoded(
    scene: Stage, written: str
) -> None:
    subscribed = [{"topic": "order/+/created"}]
    await scene.apply(
        scene.queue("mail", subscriptions=subscribed),
        scene.queue("audit", subscriptions=[{"topic": "#"}]),
        scene.queue("other", subscriptions=[{"topic": "order/+/paid"}]),
    )
    sent = await scene.api.post(f"/v1/topics/{written}/messages", b"1", NQ_Header_A="b")
    assert (sent.status, sent.json["topic"]) == (202, "order/eu/created")
    jobs = await scene.app.jobs(2)
    assert {job.headers["nq-queue"] for job in jobs} == {"mail", "audit"}
    assert {job.headers["nq-topic"] for job in jobs} == {"order/eu/created"}
    assert {job.headers["ce-id"] for job in jobs} == {sent.json["id"]}
    assert {job.headers["nq-header-a"] for job in jobs} == {"b"}


async def test_a_topic_that_nothing_subscribes_to_is_a_404(idle: Stage) -> None:
    refused = await idle.api.post("/v1/topics/order/created/messages", b"1")
    assert (refused.status, refused.code) == (404, "NO_SUBSCRIBER")


@pytest.mark.parametrize("topic", ["a/%2B/b", "%23", "a//b", "/", "a%20b", "%ff", "a" * 201])
async def test_what_is_no_topic_is_a_400(idle: Stage, topic: str) -> None:
    refused = await idle.api.post(f"/v1/topics/{topic}/messages", b"1")
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")


async def test_a_message_to_a_topic_has_no_delay_that_could_be_ignored(scene: Stage) -> None:
    await scene.apply(scene.queue(worker=False, subscriptions=[{"topic": "a"}]))
    for name in ("NQ_Delay", "NQ_Priority"):
        refused = await scene.api.post("/v1/topics/a/messages", b"1", **{name: "1"})
        assert (refused.status, refused.code) == (422, "INVALID_FIELD")


# Queues


async def test_queues_are_listed_by_name_with_their_depth(scene: Stage) -> None:
    await scene.apply(scene.queue("b", worker=False), scene.queue("a"))
    await scene.api.post("/v1/queues/b/messages", b"1")
    listed = (await scene.api.get("/v1/queues")).json
    assert [each["name"] for each in listed["items"]] == ["a", "b"]
    assert listed["next"] is None
    shown = (await scene.api.get("/v1/queues/b")).json
    assert shown == listed["items"][1]
    assert shown["depth"] == {"ready": 1, "inFlight": 0, "waiting": 0, "dead": 0}
    assert (shown["namespace"], shown["worker"]) == (NAMESPACE, None)


# Dead letters


async def buried(scene: Stage, *codes: str) -> list[str]:
    letters = [letter(code) for code in codes]
    await bury_all(scene.plane.broker, KEY, *letters)
    return [each.job.id for each in letters]


async def test_a_job_that_fails_for_good_becomes_a_dead_letter_with_its_story(
    working: Stage,
) -> None:
    working.app.status = 422
    sent = await working.api.post(
        MESSAGES, b'{"n":123456789012345678901234567890}', Idempotency_Key="k", NQ_Header_A="b"
    )
    [shown] = (
        await answer(lambda: working.api.get(LETTERS), lambda page: bool(page.json["items"]))
    ).json["items"]
    assert (shown["eventId"], shown["terminalReasonCode"]) == (sent.json["id"], "HTTP_422")
    assert (shown["idempotencyKey"], shown["headers"]) == ("k", {"a": "b"})
    assert [each["errorCode"] for each in shown["attemptHistory"]] == ["HTTP_422"]
    assert (await working.api.get(f"{LETTERS}/{sent.json['id']}")).json == shown


async def test_dead_letters_come_in_pages_oldest_first(idle: Stage) -> None:
    ids = await buried(idle, *["HTTP_422"] * 7)
    seen: list[str] = []
    after = ""
    for size in (3, 3, 1):
        page = (await idle.api.get(f"{LETTERS}?limit=3{after}")).json
        assert len(page["items"]) == size
        seen += [each["eventId"] for each in page["items"]]
        after = f"&after={page['next']}"
    assert page["next"] is None
    assert seen == ids


async def test_dead_letters_are_filtered_by_reason_across_pages(idle: Stage) -> None:
    ids = await buried(idle, "HTTP_422", "TIMEOUT", "HTTP_422", "TIMEOUT", "TIMEOUT")
    page = (await idle.api.get(f"{LETTERS}?reason=TIMEOUT&limit=2")).json
    assert [each["eventId"] for each in page["items"]] == [ids[1], ids[3]]
    rest = (await idle.api.get(f"{LETTERS}?reason=TIMEOUT&limit=2&after={page['next']}")).json
    assert [each["eventId"] for each in rest["items"]] == [ids[4]]
    assert (await idle.api.get(f"{LETTERS}?reason=OTHER")).json == {"items": [], "next": None}


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=1001", "limit=", "limit=-1", "limit=1e2", "limit=%C2%B2"),
        *("limit=0000001000000", "after=x", "after=%ff", f"after={'9' * 5000}", "limt=3"),
    ],
)
async def test_a_query_that_means_nothing_is_a_400(idle: Stage, query: str) -> None:
    await buried(idle, "HTTP_422")
    refused = await idle.api.get(f"{LETTERS}?{query}")
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")


async def test_dead_letters_are_grouped_by_reason_the_most_frequent_first(idle: Stage) -> None:
    ids = await buried(idle, "HTTP_422", "TIMEOUT", "TIMEOUT")
    groups = (await idle.api.get(f"{LETTERS}/groups")).json
    told = [(each["reason"], each["count"], each["example"]) for each in groups["items"]]
    assert told == [("TIMEOUT", 2, ids[1]), ("HTTP_422", 1, ids[0])]
    assert groups["next"] is None


async def test_a_discarded_dead_letter_is_gone(idle: Stage) -> None:
    first, second = await buried(idle, "HTTP_422", "HTTP_422")
    assert (await idle.api.call("DELETE", f"{LETTERS}/{first}")).status == 204
    again = await idle.api.call("DELETE", f"{LETTERS}/{first}")
    assert (again.status, again.code) == (404, "UNKNOWN_DEAD_LETTER")
    assert (await idle.api.get(f"{LETTERS}/{first}")).code == "UNKNOWN_DEAD_LETTER"
    assert (await idle.api.get(f"{LETTERS}/{second}")).status == 200


async def test_an_id_with_odd_characters_is_found_percent_encoded(idle: Stage) -> None:
    odd, groups = letter(id="a/b?c#d%e"), letter(id="groups")
    await bury_all(idle.plane.broker, KEY, odd, groups)
    for written in (quote(odd.job.id, safe=""), "%67roups"):
        found = await idle.api.get(f"{LETTERS}/{written}")
        assert found.json["eventId"] in (odd.job.id, groups.job.id)


async def test_a_redrive_answers_as_the_seed_does(scene: Stage) -> None:
    await scene.apply(scene.queue("payment"))
    letters = [letter(queue="payment") for _ in range(12)]
    await bury_all(scene.plane.broker, QueueKey(NAMESPACE, "payment"), *letters)
    sent = await scene.api.post("/v1/queues/payment/redrive")
    assert sent.status == 200
    assert sent.body == b'{"queue":"payment","redriven":12}'
    jobs = await scene.app.jobs(12)
    assert {job.headers["ce-id"] for job in jobs} == {each.job.id for each in letters}
    assert {(job.headers["nq-attempt"], job.headers["nq-redrives"]) for job in jobs} == {("1", "1")}


@pytest.mark.parametrize(
    ("wish", "chosen"),
    [
        *(({"reason": "TIMEOUT"}, [1, 2]), ({"limit": 2}, [0, 1]), ({}, [0, 1, 2])),
        *(({"reason": "TIMEOUT", "limit": 1}, [1]), ({"reason": "OTHER"}, []), ({"ids": []}, [])),
    ],
)
async def test_a_redrive_is_by_reason_and_up_to_a_limit_and_a_dry_run_says_what_it_would_do(
    idle: Stage, wish: dict[str, Any], chosen: list[int]
) -> None:
    ids = await buried(idle, "HTTP_422", "TIMEOUT", "TIMEOUT")
    tried = await idle.api.post(f"{ORDERS}/redrive", wish | {"dryRun": True})
    assert tried.json == {"queue": "orders", "matched": len(chosen), "redriven": 0}
    assert (await depth(idle)) == Depth(0, 0, 0, 3)
    done = await idle.api.post(f"{ORDERS}/redrive", wish)
    assert done.json == {"queue": "orders", "redriven": len(chosen)}
    left = [each["eventId"] for each in (await idle.api.get(LETTERS)).json["items"]]
    assert left == [each for index, each in enumerate(ids) if index not in chosen]


async def test_a_redrive_by_ids_takes_those_that_there_are(idle: Stage) -> None:
    ids = await buried(idle, "HTTP_422", "TIMEOUT", "TIMEOUT")
    done = await idle.api.post(f"{ORDERS}/redrive", {"ids": [ids[2], "unknown"]})
    assert done.json == {"queue": "orders", "redriven": 1}


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"dryRun":"true"}', b'{"dryRun":1}', b'{"dryRun":null}', b'{"dryrun":true}'),
        *(b'{"ids":null}', b'{"limit":null}', b'{"reason":null}'),
        *(b'{"limit":0}', b'{"limit":true}', b'{"limit":"1"}', b'{"limit":1.5}', b'{"ids":"a"}'),
        *(b'{"ids":[1]}', b'{"reason":1}', b"[]", b"{", b"null", b"\xff", b'{"limit":NaN}'),
    ],
)
async def test_a_redrive_that_cannot_be_understood_sends_nothing_back(
    idle: Stage, body: bytes
) -> None:
    await buried(idle, "HTTP_422")
    refused = await idle.api.post(f"{ORDERS}/redrive", body)
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")
    assert await depth(idle) == Depth(0, 0, 0, 1)


# Problems


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/queues", "/v1/queues/", "//", "/%00", "/v1/queues/a/b"]
)
async def test_an_unknown_path_is_a_problem_too(idle: Stage, path: str) -> None:
    refused = await idle.api.get(path)
    assert (refused.status, refused.code) == (404, "UNKNOWN_PATH")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", MESSAGES, "POST"),
        ("PUT", "/v1/queues", "GET"),
        ("POST", f"{LETTERS}/a", "GET, DELETE"),
        ("DELETE", f"{LETTERS}/groups", "GET"),
        ("PROPFIND", "/metrics", "GET"),
        ("GET", "/drain", "POST"),
    ],
)
async def test_the_wrong_method_is_a_405_that_names_the_right_ones(
    idle: Stage, method: str, path: str, allowed: str
) -> None:
    refused = await idle.api.call(method, path)
    assert (refused.status, refused.code) == (405, "METHOD_NOT_ALLOWED")
    assert refused.headers["Allow"] == allowed


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET /v1/queues HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: \x00\r\n\r\n",
        b"POST /v1/queues/orders/messages HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 10_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_what_is_not_even_http_is_answered_with_a_problem(
    idle: Stage, request_: bytes
) -> None:
    reader, writer = await asyncio.open_connection(HOST, idle.port)
    writer.write(request_)
    said = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await writer.wait_closed()
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"400", said
    assert b"application/problem+json" in head
    assert orjson.loads(body)["code"] == "MALFORMED_HTTP"


# Health, metrics, drain


async def test_readiness_names_the_app_that_is_missing(scene: Stage) -> None:
    async with stage() as elsewhere:
        gone = elsewhere.app.port
    await scene.apply(scene.queue(), scene.queue("lonely", worker_port=gone))
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
        if not route.startswith(("/healthz/", "/metrics")):
            path = route.format(queue="orders", topic="a", id="a", lease="a")
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
            *("namespace", "queue", "outcome", "le"),
        }
        assert not any("unknown" in each.labels.get("queue", "") for each in ours)
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


# OpenAPI


async def test_the_description_is_served_and_names_every_path(idle: Stage) -> None:
    async with idle.api.session.get(f"{idle.api.base}/openapi.json") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert orjson.loads(await response.read()) == orjson.loads(orjson.dumps(OPENAPI))
    operations = [each for path in OPENAPI["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert all(each["summary"] for each in operations)


async def test_names_are_no_way_out_of_the_namespace(idle: Stage) -> None:
    metadata = {"name": "orders", "namespace": "bank"}
    other = NamedQueue.model_validate({"metadata": metadata, "spec": {}})
    await idle.plane.apply([other], declare=True, work=False)
    assert (await idle.api.get(ORDERS)).status == 404
    assert (await idle.api.get("/v1/queues")).json["items"] == []
    assert (await idle.api.post(MESSAGES, b"1")).status == 404
