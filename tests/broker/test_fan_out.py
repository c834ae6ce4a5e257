"""Each subscribed queue gets its own copy of a message, and its replicas compete for that copy."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from broker.port.play import NAMESPACE, answer, eventually
from fixtures.adapters import Place
from fixtures.planes import Stage, stage
from namedqueue_sidecar.brokers.port import QueueKey

MESSAGES = 60
SUBSCRIBERS = {"billing": "order/+/created", "shipping": "order/#"}


@pytest.fixture
async def replicas(place: Place) -> AsyncIterator[dict[str, list[Stage]]]:
    """Run two replicas for each of two queues, each replica a data plane with its own app."""
    async with AsyncExitStack() as opened:
        running = {
            name: [await opened.enter_async_context(stage(broker=await place())) for _ in "ab"]
            for name in SUBSCRIBERS
        }
        for name, topic in SUBSCRIBERS.items():
            for each in running[name]:
                wanted = each.queue(name, subscriptions=[{"topic": topic}], worker_concurrency=1)
                await each.apply(wanted)
            await both_want_jobs(QueueKey(NAMESPACE, name), running[name])
        yield running


async def both_want_jobs(key: QueueKey, pair: list[Stage]) -> None:
    """Wait until neither replica could do all the work before the other begins."""
    await answer(lambda: pair[0].plane.broker.consumers(key), lambda count: count >= len(pair))


async def test_a_message_reaches_every_queue_once_and_one_replica_of_each(
    replicas: dict[str, list[Stage]],
) -> None:
    producer = replicas["billing"][0].api
    sent = await asyncio.gather(
        *(producer.post("/v1/topics/order/eu/created/messages", {"n": n}) for n in range(MESSAGES))
    )
    assert {answered.status for answered in sent} == {202}
    for name, pair in replicas.items():
        await worked_off(QueueKey(NAMESPACE, name), pair)
        bodies = Counter(job.body for each in pair for job in each.app.got)
        assert set(bodies.values()) == {1}
        assert len(bodies) == MESSAGES
        assert all(each.app.got for each in pair), f"one replica of {name} did all the work"


async def worked_off(key: QueueKey, pair: list[Stage]) -> None:
    """Wait until the replicas have done all there is."""
    await eventually(
        lambda: sum(each.app.finished for each in pair) >= MESSAGES, f"{key} is through"
    )
    await answer(lambda: pair[0].plane.broker.depth(key), lambda left: left == (0, 0, 0, 0))


async def test_only_the_queues_whose_pattern_fits_get_a_copy(
    replicas: dict[str, list[Stage]],
) -> None:
    producer = replicas["billing"][0].api
    await producer.post("/v1/topics/order/eu/cancelled/messages", {"n": 1})
    await producer.post("/v1/topics/order/eu/created/messages", {"n": 2})
    shipping, billing = ([each.app for each in replicas[name]] for name in ("shipping", "billing"))
    await eventually(lambda: sum(len(app.got) for app in shipping) == 2, "shipping got both")
    await eventually(lambda: sum(len(app.got) for app in billing) == 1, "billing got its own")
