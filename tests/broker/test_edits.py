"""One dead letter sent back with another payload: what is refused, what is linked, what is once."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from broker.port.play import (
    NAMESPACE,
    QUEUE,
    answer,
    bury_all,
    eventually,
    letter,
    named_queue,
)
from fixtures.adapters import rabbitmq_client
from fixtures.brokers import VERSIONS
from fixtures.planes import Answer, Stage, stage
from fixtures.scale import FULL
from fixtures.stores import POSTGRESQL, SQLITE
from namedqueue_sidecar.brokers.port import Busy, DeadLetters
from namedqueue_sidecar.store.addresses import Address, Sqlite, from_url
from namedqueue_sidecar.store.sql import SqlStore
from testbed.ports import free_ports
from testbed.rabbitmq import Broker

LETTERS = "/v1/queues/orders/dead-letters"
SCHEMA = {"type": "object", "required": ["order"]}
NO_STORE = "no store"
KILLS = 20 if FULL else 3
EDITS = 60 if FULL else 8


@pytest.fixture(params=[POSTGRESQL, SQLITE, NO_STORE])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """Serve a queue that allows edits, with dead letters in it or without, and no worker."""
    store = None
    if request.param != NO_STORE:
        address: Address = Sqlite(tmp_path / "store.sqlite")
        if request.param == POSTGRESQL:
            address = from_url(request.getfixturevalue("database"))
        store = SqlStore(lambda: address)
        await store.open()
    async with stage(store=store) as served:
        served.plane.allow_edit = True
        await served.apply(served.queue(worker=False, schema=SCHEMA))
        yield served


async def buried(desk: Stage, **fields: Any) -> str:
    """Put a job among the dead letters, as the broker would, and return its id."""
    record = letter(**fields)
    await bury_all(desk.plane.broker, QUEUE, record)
    return record.job.id


async def edit(desk: Stage, job_id: str, payload: Any, **headers: str) -> Answer:
    return await desk.api.post(f"{LETTERS}/{job_id}/edit", payload, **headers)


async def leased(desk: Stage) -> list[Any]:
    items = (await desk.api.post("/v1/queues/orders/leases", {"max": 100})).json["items"]
    return list(items)


async def test_an_edited_job_runs_under_an_id_of_its_own_and_both_records_say_so(
    desk: Stage,
) -> None:
    job_id = await buried(desk, payload=b'{"ordre": 1}', content_type="application/json")
    sent = await edit(desk, job_id, {"order": 1})
    assert sent.status == 200, sent
    new_id = sent.json["id"]
    assert sent.json == {"queue": "orders", "redriven": 1, "id": new_id, "editedFrom": job_id}
    [job] = await leased(desk)
    assert (job["id"], job["payload"]) == (new_id, {"order": 1})
    rejected = await desk.api.post(
        f"/v1/queues/orders/leases/{job['lease']}", {"outcome": "reject"}
    )
    assert rejected.status == 200
    again = (
        await answer(lambda: desk.api.get(f"{LETTERS}/{new_id}"), lambda a: a.status == 200)
    ).json
    assert (again["editedFrom"], again["redrives"]) == (job_id, 1)
    original = await desk.api.get(f"{LETTERS}/{job_id}")
    if desk.plane.store is None:
        assert original.status == 404
    else:
        assert (original.json["state"], original.json["editedTo"]) == ("replayed", new_id)
        assert (await edit(desk, job_id, {"order": 1})).json == sent.json
        assert (await edit(desk, job_id, {"order": 2})).code == "REVIEW_STATE"
    assert await leased(desk) == []


async def test_edits_are_refused_unless_they_were_allowed(desk: Stage) -> None:
    job_id = await buried(desk)
    desk.plane.allow_edit = False
    refused = await edit(desk, job_id, {"order": 1})
    assert (refused.status, refused.code) == (403, "EDITS_NOT_ALLOWED")
    assert "--allow-edit" in refused.json["detail"]
    assert await leased(desk) == []


async def test_what_cannot_be_sent_leaves_the_letter_where_it_was(desk: Stage) -> None:
    job_id = await buried(desk)
    assert (await edit(desk, job_id, {"ordre": 1})).code == "SCHEMA_VIOLATION"
    assert (await edit(desk, job_id, b"no JSON")).code == "SCHEMA_VIOLATION"
    assert (await edit(desk, job_id, {"order": 1}, NQ_Delay="1s")).code == "INVALID_FIELD"
    assert (await edit(desk, job_id, b"x" * (1 << 20) + b"x")).status == 413
    assert (await edit(desk, "nobody", {"order": 1})).code == "UNKNOWN_DEAD_LETTER"
    await desk.apply(desk.queue(worker=False, durable={"maxLength": 1}))
    assert (await desk.api.post("/v1/queues/orders/messages", b"1")).status == 202
    full = await edit(desk, job_id, {"order": 1})
    assert (full.status, full.code) == (429, "QUEUE_FULL")
    shown = (await desk.api.get(f"{LETTERS}/{job_id}")).json
    assert "editedTo" not in shown
    assert shown.get("state", "pending") == "pending"
    [other] = await leased(desk)
    await desk.api.post(f"/v1/queues/orders/leases/{other['lease']}", {"outcome": "ack"})
    assert (await edit(desk, job_id, {"order": 1})).status == 200


async def test_an_edit_that_another_redrive_holds_up_is_not_linked(
    desk: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await buried(desk)

    async def busy(*_: object) -> None:
        raise Busy("another redrive of shop/orders is under way")

    letters: type[DeadLetters] = type(desk.plane.broker.dead_letters(QUEUE))
    with monkeypatch.context() as patched:
        patched.setattr(letters, "redrive", busy)
        assert (await edit(desk, job_id, {"order": 1})).code == "REDRIVE_UNDER_WAY"
    assert (await edit(desk, job_id, {"order": 2})).status == 200


async def test_the_content_type_and_group_follow_the_payload_or_stay(desk: Stage) -> None:
    await desk.apply(desk.queue("ordered", durable={"fifo": {"groupBy": "body.order"}}))
    key = QUEUE._replace(name="ordered")
    for number, expected in ((7, "7"), (None, "old")):
        record = letter(group="old", content_type="application/json")
        await bury_all(desk.plane.broker, key, record)
        path = f"/v1/queues/ordered/dead-letters/{record.job.id}/edit"
        assert (await desk.api.post(path, {"order": number})).status == 200
        await eventually(lambda: len(desk.app.got) == 1, "the app has the job")
        headers = desk.app.got.pop().headers
        assert (headers["nq-group"], headers["content-type"]) == (expected, "application/json")


class Killed:
    """A data plane in a process of its own, on either broker, with a store: killed, and back."""

    def __init__(
        self, folder: Path, node: Broker | None = None, vhost: str = "", store: str = ""
    ) -> None:
        port, observed = free_ports(2)
        self._url = f"http://127.0.0.1:{port}"
        for name in ("queues", "broker", "store", "data"):
            (folder / name).mkdir()
        manifest = named_queue().model_dump_json(by_alias=True, exclude_none=True)
        (folder / "queues" / "orders.json").write_text(manifest)
        listening = ["--allow-edit", f"--port={port}"]
        if node is None:
            nq = Path(sys.executable).parent / "nq"
            self._command = [str(nq), "run", *listening, f"--data={folder}/data"]
            self._command.append(f"{folder}/queues")
        else:
            (folder / "broker" / "connection_string").write_text(node.amqp_url(vhost))
            (folder / "store" / "connection_string").write_text(store)
            self._command = [sys.executable, "-m", "namedqueue_sidecar", *listening]
            self._command += [f"--queues={folder}/queues", f"--broker={folder}/broker"]
            self._command += [f"--store={folder}/store", f"--vhost={vhost}"]
            self._command += [f"--namespace={NAMESPACE}", f"--observe-port={observed}"]
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self._session.close()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        self._process.kill()
        self._process.wait()

    async def call(self, method: str, path: str, **body: Any) -> Any:
        """Call until there is an answer other than «not now»."""
        while True:
            try:
                async with self._session.request(method, f"{self._url}{path}", **body) as got:
                    if got.status not in (409, 503):
                        return await got.json()
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)

    async def take_all(self, outcome: str, least: int) -> list[Any]:
        """Lease every job there is, at least so many, and finish each in the same way."""
        path, asked, jobs = "/v1/queues/orders/leases", {"max": 100, "wait": "1s"}, list[Any]()
        while (found := (await self.call("POST", path, json=asked))["items"]) or len(jobs) < least:
            for job in found:
                await self.call("POST", f"{path}/{job['lease']}", json={"outcome": outcome})
            jobs += found
        return jobs


async def edited_once_through_kills(plane: Killed) -> None:
    """Edit letter after letter while the plane is killed, and look at what came of it."""
    sent = [{"payload": {"ordre": number}} for number in range(EDITS)]
    await plane.call("POST", "/v1/queues/orders/messages:batch", json=sent)
    originals = {job["id"]: job["payload"] for job in await plane.take_all("reject", EDITS)}
    assert len(originals) == EDITS
    new_ids, kills = dict[str, str](), 0

    async def edit_all() -> None:
        for job_id, payload in originals.items():
            changed = {"order": payload["ordre"]}
            made = await plane.call("POST", f"{LETTERS}/{job_id}/edit", json=changed)
            new_ids[job_id] = made["id"]

    editing = asyncio.create_task(edit_all())
    while kills < KILLS:
        done = len(new_ids)
        await eventually(lambda: editing.done() or len(new_ids) > done, "edits go on", 120)  # noqa: B023
        await asyncio.sleep(random.uniform(0, 0.1))  # noqa: S311 - any moment of an edit
        plane.kill()
        plane.start()
        kills += 1
    await editing
    records = {job_id: await plane.call("GET", f"{LETTERS}/{job_id}") for job_id in originals}
    assert {job_id: each.get("editedTo") for job_id, each in records.items()} == new_ids
    assert (await plane.call("GET", LETTERS))["items"] == []
    found = await plane.take_all("ack", EDITS)
    assert Counter(job["id"] for job in found) == Counter(new_ids.values())
    assert {job["id"]: job["payload"]["order"] for job in found} == {
        new_ids[job_id]: payload["ordre"] for job_id, payload in originals.items()
    }
    print(f"{EDITS} edits, {kills} kills, {len(found)} jobs in the main queue")  # noqa: T201 - a figure


@pytest.mark.timeout(900)
@pytest.mark.parametrize("broker_version", VERSIONS[-1:], indirect=True)
async def test_on_rabbitmq_edits_that_kills_cut_short_and_that_are_asked_for_again_are_done_once(
    broker: Broker, vhost: str, database: str, tmp_path: Path
) -> None:
    client = rabbitmq_client(broker, vhost)
    await client.open()
    await client.declare(named_queue())
    await client.close()
    async with Killed(tmp_path, broker, vhost, database) as plane:
        await edited_once_through_kills(plane)


@pytest.mark.timeout(900)
async def test_in_a_file_edits_that_kills_cut_short_and_that_are_asked_for_again_are_done_once(
    tmp_path: Path,
) -> None:
    async with Killed(tmp_path) as plane:
        await edited_once_through_kills(plane)
