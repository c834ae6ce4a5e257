"""One rate limit, shared by pods whose number changes."""

import asyncio
import time
from contextlib import AsyncExitStack

from broker.port.play import NAMESPACE, eventually
from fixtures.adapters import Place
from fixtures.planes import Stage, stage
from namedqueue_sidecar.brokers.port import Broker, QueueKey

KEY = QueueKey(NAMESPACE, "orders")
LIMIT = 40
SPAN = 4.0
TRIES = 4


async def rate(*scenes: Stage) -> float:
    """Return how many jobs a second come to the apps together."""
    before, began = sum(len(scene.app.got) for scene in scenes), time.monotonic()
    await asyncio.sleep(SPAN)
    return (sum(len(scene.app.got) for scene in scenes) - before) / (time.monotonic() - began)


async def keeps(least: float, most: float, *scenes: Stage) -> None:
    """Fail unless the rate is within bounds once: a wrong limit is wrong each time.

    A machine that stands still for a second is not, and what it missed it catches up on.
    """
    measured: list[float] = []
    while len(measured) < TRIES:
        measured.append(await rate(*scenes))
        if least <= measured[-1] <= most:
            return
    raise AssertionError(f"not from {least} to {most} jobs a second, but {measured}")


async def shared(scene: Stage, share: float) -> None:
    queue = scene.queue(worker_rateLimit={"requests": LIMIT}, worker_concurrency=50)
    await scene.plane.apply([queue], declare=True, work=True, shares={KEY: share})


async def test_two_planes_keep_one_limit_and_one_that_is_left_gets_all_of_it(
    broker_under_test: Broker, another_client: Place
) -> None:
    async with AsyncExitStack() as opened:
        first = await opened.enter_async_context(stage(broker=broker_under_test))
        await shared(first, 1.0)
        entries = [{"payload": number} for number in range(2000)]
        for _ in range(2):
            sent = await first.api.post("/v1/queues/orders/messages:batch", entries)
            assert sent.json == {"accepted": 2000}
        await eventually(lambda: len(first.app.got) > LIMIT, "the first is at work")
        await keeps(LIMIT * 0.7, LIMIT * 1.15, first)

        second = await opened.enter_async_context(stage(broker=await another_client()))
        await shared(first, 0.5)
        await shared(second, 0.5)
        await eventually(lambda: bool(second.app.got), "the second is at work")
        await keeps(LIMIT * 0.7, LIMIT * 1.15, first, second)
        await keeps(0, LIMIT / 2 * 1.2, second)

        await second.plane.drain(10)
        await shared(first, 1.0)
        await keeps(LIMIT * 0.7, LIMIT * 1.15, first)
