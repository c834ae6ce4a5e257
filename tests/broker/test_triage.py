"""Dead letters with a store: each has a record, whoever brought it there, and people review it."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.port.play import (
    NAMESPACE,
    QUEUE,
    answer,
    bury_all,
    letter,
    publish,
)
from fixtures.planes import Stage, stage
from fixtures.stores import POSTGRESQL, SQLITE
from namedqueue.deadletters import bury
from namedqueue.envelope import Job
from namedqueue.retry import DeadLetter
from namedqueue.triage import Review
from namedqueue_sidecar.brokers.port import Dead
from namedqueue_sidecar.store import letters
from namedqueue_sidecar.store.addresses import Address, Sqlite, from_url
from namedqueue_sidecar.store.database import Database
from namedqueue_sidecar.store.letters import Letters
from namedqueue_sidecar.store.port import Met, Search
from namedqueue_sidecar.store.sql import SqlStore

LETTERS = "/v1/queues/orders/dead-letters"
NOW = 1_800_000_000_000
DAY = 86_400_000


@pytest.fixture(params=[POSTGRESQL, SQLITE])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """Serve a queue with a store, whose app refuses every job for good."""
    address: Address = Sqlite(tmp_path / "store.sqlite")
    if request.param == POSTGRESQL:
        address = from_url(request.getfixturevalue("database"))
    store = SqlStore(lambda: address)
    await store.open()
    async with stage(store=store) as served:
        served.app.status = 422
        await served.apply(served.queue())
        yield served


async def listed(desk: Stage, query: str = "") -> list[Any]:
    """Return all items of a list, page by page."""
    items: list[Any] = []
    after = ""
    while True:
        answered = await desk.api.get(f"{LETTERS}?limit=3{query}{after}")
        assert answered.status == 200, answered
        items += answered.json["items"]
        if answered.json["next"] is None:
            return items
        after = f"&after={answered.json['next']}"


async def failed(desk: Stage, count: int) -> list[str]:
    """Let jobs fail for good, and return their ids once all are on record."""
    sent = [
        (await desk.api.post("/v1/queues/orders/messages", {"order": number})).json["id"]
        for number in range(count)
    ]
    await answer(lambda: listed(desk), lambda items: len(items) == count)
    return sent


async def test_a_job_that_is_buried_is_on_record_with_payload_and_story(desk: Stage) -> None:
    [job_id] = await failed(desk, 1)
    shown = (await desk.api.get(f"{LETTERS}/{job_id}")).json
    assert (shown["state"], shown["terminalReasonCode"]) == ("pending", "HTTP_422")
    assert shown["payloadSnapshot"] == {"order": 0}
    assert [entry["errorCode"] for entry in shown["attemptHistory"]] == ["HTTP_422"]


async def test_pages_stay_as_they_are_while_new_letters_arrive(desk: Stage) -> None:
    sent = await failed(desk, 7)
    first = (await desk.api.get(f"{LETTERS}?limit=4")).json
    later = await failed_more(desk, 8)
    rest = (await desk.api.get(f"{LETTERS}?limit=100&after={first['next']}")).json
    seen = [item["eventId"] for item in [*first["items"], *rest["items"]]]
    assert sorted(seen[:7]) == sorted(sent)
    assert seen[7:] == [later]


async def failed_more(desk: Stage, count: int) -> str:
    sent = await desk.api.post("/v1/queues/orders/messages", {"order": "one more"})
    await answer(lambda: listed(desk), lambda items: len(items) == count)
    return str(sent.json["id"])


async def test_a_letter_that_the_broker_brought_there_gets_its_record(desk: Stage) -> None:
    await failed(desk, 1)
    await publish(desk.plane.broker, Dead(QUEUE, sent := letter("DELIVERY_LIMIT")))
    assert desk.plane.records is not None
    await desk.plane.records.compare(QUEUE)
    found = {item["eventId"]: item for item in await listed(desk)}
    assert found[sent.job.id]["terminalReasonCode"] == "DELIVERY_LIMIT"
    await desk.plane.records.compare(QUEUE)
    assert len(await listed(desk)) == 2


async def test_groups_have_one_cause_and_lead_to_their_letters(desk: Stage) -> None:
    await desk.apply(desk.queue(worker=False))
    for number in range(3):
        await buried(desk, f"order {number} is unknown")
    await buried(desk, "no stock")
    groups = (await desk.api.get(f"{LETTERS}/groups")).json["items"]
    assert [(group["count"], group["reason"]) for group in groups] == [
        (3, "HTTP_422"),
        (1, "HTTP_422"),
    ]
    assert len(await listed(desk, f"&group={groups[0]['group']}")) == 3
    assert len(await listed(desk, "&text=STOCK")) == 1
    assert len(await listed(desk, "&reason=TIMEOUT")) == 0
    assert len(await listed(desk, "&since=2020-01-01T00:00:00Z")) == 4
    assert len(await listed(desk, "&until=2020-01-01T00:00:00Z")) == 0


async def test_a_piece_of_the_payload_leads_to_its_letters(desk: Stage) -> None:
    sent = await failed(desk, 12)
    found = await listed(desk, "&contains=%7B%22order%22%3A1")
    assert {item["eventId"] for item in found} == {sent[1], sent[10], sent[11]}
    assert await listed(desk, "&contains=ORDER") == []
    assert [item["eventId"] for item in await listed(desk, "&contains=11&reason=HTTP_422")] == [
        sent[11]
    ]


@pytest.mark.parametrize(
    "path",
    [
        *(f"{LETTERS}?{name}=%00" for name in ("reason", "group", "text")),
        *(f"{LETTERS}/a%00b", f"{LETTERS}/groups?reason=%00", f"{LETTERS}?contains="),
        *(f"{LETTERS}/groups?contains=a", f"{LETTERS}?contains={'a' * 1025}"),
        *(f"{LETTERS}?after={'1' * digits}" for digits in (19, 5000)),
    ],
)
async def test_a_search_that_cannot_be_is_refused_and_the_store_stays(
    desk: Stage, path: str
) -> None:
    assert (await desk.api.get(path)).status in (400, 404)
    assert desk.plane.store is not None
    assert desk.plane.store.unavailable is None


async def buried(desk: Stage, message: str) -> str:
    now = time.time_ns() // 1_000_000
    job = letter().job
    record = bury(job, DeadLetter("HTTP_422", message), None, now)
    await bury_all(desk.plane.broker, QUEUE, record)
    assert desk.plane.records is not None
    await desk.plane.records.compare(QUEUE)
    return job.id


async def review(desk: Stage, job_id: str, state: str) -> Any:
    return await desk.api.call("PATCH", f"{LETTERS}/{job_id}", b'{"state": "%s"}' % state.encode())


async def test_a_review_goes_its_way_and_closing_takes_the_job_away(desk: Stage) -> None:
    [job_id] = await failed(desk, 1)
    assert (await review(desk, job_id, "reviewed")).json["state"] == "reviewed"
    assert [item["eventId"] for item in await listed(desk, "&state=reviewed")] == [job_id]
    assert (await review(desk, job_id, "replayed")).status == 400
    assert (await review(desk, job_id, "closed")).json["state"] == "closed"
    assert (await review(desk, job_id, "pending")).code == "REVIEW_STATE"
    assert await listed(desk) == []
    assert [item["eventId"] for item in await listed(desk, "&state=closed")] == [job_id]
    assert (await desk.api.post("/v1/queues/orders/redrive")).json["redriven"] == 0
    assert (await review(desk, "nobody", "closed")).code == "UNKNOWN_DEAD_LETTER"


async def test_a_redrive_marks_what_it_sent(desk: Stage) -> None:
    sent = await failed(desk, 12)
    desk.app.status = 200
    answered = await desk.api.post("/v1/queues/orders/redrive")
    assert answered.body == b'{"queue":"orders","redriven":12}'
    assert await listed(desk) == []
    assert sorted(item["eventId"] for item in await listed(desk, "&state=replayed")) == sorted(sent)
    progress = (await desk.api.get("/v1/queues/orders/redrive")).json
    assert (progress["phase"], progress["redriven"]) == ("Succeeded", 12)


async def test_a_discarded_letter_is_gone_from_queue_and_store(desk: Stage) -> None:
    [job_id] = await failed(desk, 1)
    assert (await desk.api.call("DELETE", f"{LETTERS}/{job_id}")).status == 204
    assert (await desk.api.get(f"{LETTERS}/{job_id}")).status == 404
    assert (await desk.api.call("DELETE", f"{LETTERS}/{job_id}")).status == 404
    depth = await desk.plane.broker.depth(QUEUE)
    assert depth is not None
    assert depth.dead == 0


def records(count: int, offset: int = 0) -> list[Met]:
    """Return letters as they are met, a millisecond apart."""
    made = []
    for number in range(offset, offset + count):
        job = Job(f"job-{number}", "orders", b'{"order": %d}' % number, NOW, NOW)
        reason = DeadLetter(f"HTTP_{500 + number % 4}", "the app said no")
        made.append(Met(bury(job, reason, None, NOW + number), f"{number % 4}", 90 * DAY))
    return made


async def test_records_whose_retention_is_over_are_swept_a_few_at_a_time(store: Database) -> None:
    kept = Letters(store, NAMESPACE, "orders")
    await kept.write(records(700))
    assert await letters.sweep(store, NOW) == 0
    assert await letters.sweep(store, NOW + 90 * DAY + 599) == letters.SWEPT_AT_ONCE
    assert await letters.sweep(store, NOW + 90 * DAY + 599) == 100
    assert await kept.count_open() == 100


async def test_a_letter_that_is_met_twice_has_one_record_and_keeps_its_state(
    store: Database,
) -> None:
    kept = Letters(store, NAMESPACE, "orders")
    await kept.write(records(2))
    [first, _] = (await kept.page(Search(), 0, 10)).records
    assert await kept.review(first.number, Review.REVIEWED)
    await kept.write([*records(3), *records(3)])
    assert [each.state for each in (await kept.page(Search(), 0, 10)).records] == [
        Review.REVIEWED,
        Review.PENDING,
        Review.PENDING,
    ]


@pytest.mark.parametrize("state", [Review.CLOSED, Review.REPLAYED])
async def test_a_job_that_fails_again_after_its_letter_was_done_with_has_a_record_again(
    store: Database, state: Review
) -> None:
    kept = Letters(store, NAMESPACE, "orders")
    [first] = records(1)
    later = first._replace(record=replace(first.record, dead_lettered_at=NOW + 1))
    await kept.write([first])
    [pending] = (await kept.page(Search(), 0, 10)).records
    assert await kept.review(pending.number, state)
    await kept.write([first])
    assert await kept.count_open() == 0
    for _ in range(2):
        await kept.write([later])
        assert await kept.count_open() == 1
    [done_with] = (await kept.page(Search(states=frozenset({state})), 0, 10)).records
    assert done_with.number == pending.number
