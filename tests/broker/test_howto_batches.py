"""The how-to on batches, run as a reader would copy it."""

import asyncio
import re
import sys
from pathlib import Path

from broker.port.play import NAMESPACE, answer, eventually
from fixtures.planes import stage
from namedqueue_cli.manifests import load_queues
from namedqueue_sidecar.brokers.port import Depth, QueueKey
from testbed.ports import free_ports

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "batches.md"
KEY = QueueKey(NAMESPACE, "orders")


async def test_the_manifest_and_the_handler_work_off_a_hundred_jobs(tmp_path: Path) -> None:
    text = PAGE.read_text().replace("8080", str(free_ports(1)[0]))
    [manifest] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    [handler] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "queue.yaml").write_text(manifest)
    app = await asyncio.create_subprocess_exec(
        sys.executable, "-c", handler, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with stage() as scene:
            await scene.apply(*load_queues([tmp_path / "queue.yaml"]))
            worker = scene.plane.workers[KEY]
            await eventually(lambda: worker.gate.is_open, "the handler is up")
            amounts = [*range(97), 2000, 3000, -1]
            entries = [{"payload": {"amount": amount}} for amount in amounts]
            sent = await scene.api.post("/v1/queues/orders/messages:batch", entries)
            assert sent.json == {"accepted": 100}
            depth = scene.plane.broker.depth
            await answer(lambda: depth(KEY), lambda left: left == Depth(0, 0, 0, 1))
            [found] = (await scene.api.get("/v1/queues/orders/dead-letters")).json["items"]
            assert found["terminalReasonCode"] == "NEGATIVE_AMOUNT"
            assert found["payloadSnapshot"] == {"amount": -1}
    finally:
        app.terminate()
        _, said = await app.communicate()
    assert 1 <= said.decode().count("POST /jobs") <= 10
