"""The how-to on idempotency, run as a reader would copy it."""

import asyncio
import os
import re
from pathlib import Path

import yaml

from broker.port.play import answer
from fixtures.planes import stage
from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar.brokers.port import Depth, QueueKey
from namedqueue_sidecar.store.addresses import Sqlite
from namedqueue_sidecar.store.sql import SqlStore

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "idempotency.md"
AS_WRITTEN = "http://127.0.0.1:3550"


async def test_of_three_jobs_with_one_key_the_app_gets_one(tmp_path: Path) -> None:
    [manifest] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [block] = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert AS_WRITTEN in block
    store = SqlStore(Sqlite)
    await store.open()
    async with stage(store=store) as scene:
        given = yaml.safe_load(manifest)
        given["spec"]["worker"]["port"] = scene.app.port
        await scene.apply(NamedQueue.model_validate(given))
        process = await asyncio.create_subprocess_exec(
            *("sh", "-euc", block.replace(AS_WRITTEN, scene.api.base)),
            cwd=tmp_path,
            env={**os.environ, "no_proxy": "127.0.0.1"},
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
        assert said.decode().count('"id"') == 3
        assert "namedqueue_duplicates_total" in said.decode()
        key = QueueKey("shop", "orders")
        await answer(lambda: scene.plane.broker.depth(key), lambda left: left == Depth(0, 0, 0, 0))
        assert len(await scene.app.jobs(1)) == 1
