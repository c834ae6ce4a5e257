"""The how-to on streams: its manifest is good, and its commands do what they say."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import yaml

from broker.port.play import eventually
from fixtures.planes import Stage, stage
from namedqueue.api.namedqueue import NamedQueue

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "streams.md"
AS_WRITTEN = "http://127.0.0.1:3550"
BIN = Path(sys.executable).parent


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)


async def run(scene: Stage, block: str, folder: Path) -> str:
    path = f"{BIN}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("sh", "-euc", block.replace(AS_WRITTEN, scene.api.base)),
        cwd=folder,
        env={**os.environ, "PATH": path, "NQ_URL": scene.api.base, "no_proxy": "127.0.0.1"},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0
    return said.decode()


async def test_the_manifest_is_pushed_and_the_blocks_pull_commit_seek_and_look(
    tmp_path: Path,
) -> None:
    [manifest], [pulling, looking] = blocks("yaml"), blocks("sh")
    async with stage() as scene:
        document = yaml.safe_load(manifest)
        document["spec"]["worker"]["port"] = scene.app.port
        await scene.apply(NamedQueue.model_validate(document))
        groups = scene.plane.broker.log(next(iter(scene.plane.queues))).groups
        ends = asyncio.get_running_loop().time() + 60
        while len(await groups()) < 2:
            assert asyncio.get_running_loop().time() < ends, "both groups have begun"
            await asyncio.sleep(0.01)
        for topic in ("order/eu/created", "order/eu/paid", "order/us/created"):
            assert (await scene.api.post(f"/v1/topics/{topic}/messages", {})).status == 202
        await eventually(lambda: len(scene.app.got) == 5, "three for audit, two for mail")
        got = [(job.headers["nq-stream-group"], job.headers["nq-offset"]) for job in scene.app.got]
        assert sorted(got) == [*(("audit", str(n)) for n in range(3)), ("mail", "0"), ("mail", "2")]

        committed, first, at, *rest = (await run(scene, pulling, tmp_path)).split("}", 4)
        assert committed == '{"group":"report","cursor":3'
        assert first == '{"group":"report","cursor":0'
        assert at == '{"group":"report","cursor":0'
        assert rest[0] == '{"queue":"events","first":0,"next":3'
        lines = [json.loads(line) for line in rest[1].splitlines()]
        assert [line["offset"] for line in lines] == [0, 1]

        said = await run(scene, looking, tmp_path)
        assert "order/eu/paid" in said
        assert re.search(r"report\s+0\s+3\s+pull", said)
        assert said.endswith('{"group": "report", "cursor": 3}\n')
