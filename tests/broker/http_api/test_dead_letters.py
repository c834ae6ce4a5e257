"""Dead letters and redrives over HTTP."""

from typing import Any
from urllib.parse import quote

import pytest

from broker.http_api.orders import KEY, LETTERS, MESSAGES, ORDERS, depth
from broker.port.play import NAMESPACE, answer, bury_all, letter
from fixtures.planes import Stage
from namedqueue_sidecar.brokers.port import Depth, QueueKey


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
