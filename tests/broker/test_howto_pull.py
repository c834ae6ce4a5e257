"""The how-to on pulling, run as a reader would copy it."""

import asyncio
import os
import re
from pathlib import Path

from broker.port.play import NAMESPACE, answer
from fixtures.planes import stage
from namedqueue_sidecar.brokers.port import Depth, QueueKey

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pull.md"
AS_WRITTEN = "http://127.0.0.1:3550"


async def test_the_block_leases_extends_shows_and_acks_a_job(tmp_path: Path) -> None:
    [block] = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert AS_WRITTEN in block
    async with stage() as scene:
        await scene.apply(scene.queue(worker=False))
        assert (await scene.api.post("/v1/queues/orders/messages", b'{"order":17}')).status == 202
        process = await asyncio.create_subprocess_exec(
            *("sh", "-euc", block.replace(AS_WRITTEN, scene.api.base)),
            cwd=tmp_path,
            env={**os.environ, "no_proxy": "127.0.0.1"},
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
        text = said.decode()
        assert text.startswith('{"decision":"extend"')
        assert '"worker":"gpu-3"' in text
        assert text.endswith('{"decision":"ack"}')
        key = QueueKey(NAMESPACE, "orders")
        await answer(lambda: scene.plane.broker.depth(key), lambda left: left == Depth(0, 0, 0, 0))
