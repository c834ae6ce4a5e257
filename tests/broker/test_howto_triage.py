"""The how-to on triage, run as a reader would copy it."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pyarrow.parquet as pq

from broker.port.play import answer, eventually
from fixtures.planes import Stage, stage
from namedqueue_sidecar.store.addresses import Sqlite
from namedqueue_sidecar.store.sql import SqlStore

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "triage.md"
LETTERS = "/v1/queues/orders/dead-letters"


async def shell(scene: Stage, folder: Path, block: str, **names: str) -> tuple[int, str]:
    """Run a block with `nq` on the path, and return its exit code and what it said."""
    bin_ = Path(sys.executable).parent
    process = await asyncio.create_subprocess_exec(
        *("sh", "-euc", block),
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "NQ_URL": scene.api.base,
            "COLUMNS": "200",
            **names,
        },
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, said.decode()


async def failed(scene: Stage, count: int) -> list[str]:
    """Let jobs fail for good, and return their ids once all are on record."""
    known = len((await scene.api.get(LETTERS)).json["items"])
    sent = [
        (await scene.api.post("/v1/queues/orders/messages", {"order": each})).json["id"]
        for each in range(count)
    ]

    async def letters() -> int:
        return len((await scene.api.get(LETTERS)).json["items"])

    await answer(letters, lambda found: found == known + count)
    return sent


async def test_the_blocks_show_redrive_review_and_export(tmp_path: Path) -> None:
    look, send, review, mend, take = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    store = SqlStore(lambda: Sqlite(None))
    await store.open()
    async with stage(store=store) as scene:
        scene.app.status = 422
        await scene.apply(scene.queue())
        sent = await failed(scene, 6)
        code, said = await shell(scene, tmp_path, look, job=sent[0])
        assert code == 0
        assert "HTTP_422" in said
        assert '"payloadSnapshot": {' in said
        scene.app.status = 200
        code, said = await shell(scene, tmp_path, send)
        assert code == 0, said
        assert [json.loads(line)["redriven"] for line in said.splitlines()] == [0, 2, 4]
        await eventually(lambda: scene.app.finished == 12, "those that were sent back are done")
        scene.app.status = 422
        again = await failed(scene, 2)
        code, said = await shell(scene, tmp_path, review, job=again[0])
        assert code == 0, said
        assert "1 reviewed" in said
        assert again[0] in said.rstrip().splitlines()[-1]
        scene.plane.allow_edit = True
        [broken] = await failed(scene, 1)
        code, said = await shell(scene, tmp_path, mend, job=broken)
        assert code == 0, said
        path = f"{LETTERS}/{json.loads(said)['id']}"
        fresh = await answer(lambda: scene.api.get(path), lambda got: got.status == 200)
        assert (fresh.json["payloadSnapshot"], fresh.json["editedFrom"]) == ({"order": 18}, broken)
        assert (await scene.api.call("DELETE", path)).status == 204
        code, said = await shell(scene, tmp_path, take, other=again[1])
        assert (code, said) == (0, "1 removed\n")
        [line] = (tmp_path / "letters.ndjson").read_text().splitlines()
        assert json.loads(line)["eventId"] == again[0]
        table = pq.read_table(tmp_path / "letters.parquet")
        assert table.column("eventId").to_pylist() == [again[1]]
        code, _ = await shell(scene, tmp_path, "nq dlq discard orders --yes nobody")
        assert code == 1


async def test_a_redrive_that_ends_early_exits_with_one(tmp_path: Path) -> None:
    async with stage() as scene:
        await scene.apply(scene.queue(worker=False, durable={"maxLength": 1}))
        first = await scene.api.post("/v1/queues/orders/messages", b"1")
        lease = (await scene.api.post("/v1/queues/orders/leases")).json["items"][0]["lease"]
        await scene.api.post(f"/v1/queues/orders/leases/{lease}", {"outcome": "reject"})
        assert (await scene.api.post("/v1/queues/orders/messages", b"2")).status == 202
        code, said = await shell(scene, tmp_path, "nq dlq redrive orders")
        assert (code, json.loads(said)["redriven"]) == (1, 0)
        assert "full" in json.loads(said)["ended"]
        code, said = await shell(scene, tmp_path, "nq dlq review orders closed x || exit 3")
        assert (code, first.status) == (3, 202)


def drafts(folder: Path) -> dict[str, str]:
    """Return what was kept of refused edits, by file."""
    return {str(draft): draft.read_text() for draft in folder.glob("nq-edit-*")}


async def test_an_editor_opens_the_payload_and_what_is_refused_is_not_lost(tmp_path: Path) -> None:
    async with stage() as scene:
        scene.app.status = 422
        await scene.apply(scene.queue(schema={"required": ["order"]}))
        [job] = await failed(scene, 1)
        command = f"TMPDIR={tmp_path} nq dlq edit orders {job} 2>&1"
        code, said = await shell(scene, tmp_path, command, EDITOR="sed -i s/0/7/")
        assert (code, "--allow-edit" in said) == (1, True)
        scene.plane.allow_edit = True
        code, said = await shell(scene, tmp_path, command, EDITOR="true")
        assert (code, said) == (0, "nothing was changed, so nothing is sent\n")
        for editor, problem in (("sed -i s/}//", "no JSON"), ("sed -i s/order/ordre/", "SCHEMA")):
            code, said = await shell(scene, tmp_path, command, EDITOR=editor)
            assert (code, problem in said) == (1, True), said
            assert drafts(tmp_path)[said.split()[-1]].startswith("{")
        code, said = await shell(scene, tmp_path, command, EDITOR="sed -i s/0/7/")
        assert (code, json.loads(said)["editedFrom"]) == (0, job)
        new = f"{LETTERS}/{json.loads(said)['id']}"
        fresh = await answer(lambda: scene.api.get(new), lambda got: got.status == 200)
        assert fresh.json["payloadSnapshot"] == {"order": 7}
