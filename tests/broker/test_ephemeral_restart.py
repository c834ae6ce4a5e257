"""The seed's word on ephemeral queues: lost on restart, and nothing else is lost."""

import asyncio
from pathlib import Path

from broker.port.play import Hands, answer, declare, enqueue, job, publish
from fixtures.adapters import rabbitmq_client
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Broker, Main, QueueKey, Verdict
from testbed import rabbitmq

COUNT = 50


async def fill(broker: Broker) -> tuple[QueueKey, QueueKey, set[str]]:
    """Put jobs into an ephemeral and a durable queue; return both, and what must not get lost."""
    fleeting = await declare(broker, "fleeting", type="ephemeral")
    lasting = await declare(broker, "lasting")
    kept = [job() for _ in range(COUNT)]
    passing = [Main(fleeting, job(), persistent=False) for _ in range(COUNT)]
    assert await publish(broker, *passing) == [Verdict.CONFIRMED] * COUNT
    await enqueue(broker, lasting, *kept)
    assert (await broker.depth(fleeting) or ())[:1] == (COUNT,)
    return fleeting, lasting, {each.id for each in kept}


async def found(broker: Broker, queue: QueueKey, count: int) -> set[str]:
    hands = Hands()
    subscription = broker.subscribe(queue, hands, prefetch=2 * COUNT)
    await hands.hold(count)
    await asyncio.sleep(0.5)
    await subscription.close()
    return set(hands.ids)


async def test_a_restart_of_rabbitmq_loses_what_is_ephemeral_and_nothing_else(
    private_broker: rabbitmq.Broker,
) -> None:
    client = rabbitmq_client(private_broker, "/")
    await client.open()
    try:
        fleeting, lasting, kept = await fill(client)
        await asyncio.to_thread(private_broker.settle)
        await asyncio.to_thread(private_broker.stop)
        await asyncio.to_thread(private_broker.start)
        assert await found(client, lasting, COUNT) == kept
        depth = await answer(lambda: client.depth(fleeting), lambda depth: depth is not None)
        assert depth == (0, 0, 0, 0)
        passing = Main(fleeting, job(), persistent=False)
        await answer(lambda: publish(client, passing), lambda said: said == [Verdict.CONFIRMED])
        assert await found(client, fleeting, 1) == {passing.job.id}
    finally:
        await client.close()


async def test_a_restart_of_the_builtin_broker_loses_what_is_ephemeral_and_nothing_else(
    tmp_path: Path,
) -> None:
    before = BuiltinBroker(tmp_path)
    await before.open()
    fleeting, lasting, kept = await fill(before)
    await before.close()
    assert fleeting.name.encode() not in (tmp_path / "jobs.sqlite").read_bytes()
    after = BuiltinBroker(tmp_path)
    await after.open()
    try:
        assert await after.depth(fleeting) is None
        assert await found(after, lasting, COUNT) == kept
        await declare(after, "fleeting", type="ephemeral")
        assert await after.depth(fleeting) == (0, 0, 0, 0)
    finally:
        await after.close()
