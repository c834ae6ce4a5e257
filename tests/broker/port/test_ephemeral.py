"""An ephemeral queue: the same deliveries, no delays, no dead letters, and an end when idle."""

import asyncio
from typing import Any

from broker.port.play import Hands, answer, declare, enqueue, eventually, job, letter, publish
from namedqueue_sidecar.brokers.port import Broker, Dead, Depth, Main, QueueKey, Topic, Verdict

EPHEMERAL: dict[str, Any] = {"type": "ephemeral", "ephemeral": {"idleExpiry": "10m"}}
SHORT: dict[str, Any] = {"type": "ephemeral", "ephemeral": {"idleExpiry": "3s"}}
IDLE = 5.0
"""Seconds after which a queue of `SHORT` has expired."""


def passing(queue: QueueKey) -> Main:
    return Main(queue, job(), persistent=False)


async def gone(broker: Broker, queue: QueueKey) -> None:
    """Wait until a queue has expired; to ask for its depth is a use of it, so seldom."""

    async def left() -> Depth | None:
        await asyncio.sleep(IDLE)
        return await broker.depth(queue)

    await answer(left, lambda depth: depth is None)


async def test_jobs_come_in_order_and_go_when_they_are_acknowledged(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test, **EPHEMERAL)
    sent = [passing(queue) for _ in range(100)]
    assert await publish(broker_under_test, *sent) == [Verdict.CONFIRMED] * 100
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=200)
    await hands.hold(100)
    assert hands.ids == [each.job.id for each in sent]
    assert [delivery.job.payload for delivery in hands.came] == [b"{}"] * 100
    subscription.ack(hands.take())
    await answer(lambda: broker_under_test.depth(queue), lambda left: left == Depth(0, 0, 0, 0))


async def test_a_job_handed_back_comes_again_as_redelivered(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test, **EPHEMERAL)
    await publish(broker_under_test, sent := passing(queue))
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=1)
    await hands.hold(1)
    subscription.hand_back(hands.take())
    [delivery] = await hands.hold(1)
    assert (delivery.job.id, delivery.redelivered) == (sent.job.id, True)


async def test_there_is_no_ladder_and_there_are_no_dead_letters(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test, **EPHEMERAL)
    later = Main(queue, job(), 1000, persistent=False)
    verdicts = await publish(broker_under_test, later, Dead(queue, letter()), passing(queue))
    assert verdicts == [Verdict.UNROUTABLE, Verdict.UNROUTABLE, Verdict.CONFIRMED]
    assert await broker_under_test.depth(queue) == Depth(1, 0, 0, 0)


async def test_a_topic_reaches_an_ephemeral_queue_beside_a_durable_one(
    broker_under_test: Broker,
) -> None:
    subscribed = {"subscriptions": [{"topic": "order/#"}]}
    fleeting = await declare(broker_under_test, "fleeting", **EPHEMERAL, **subscribed)
    lasting = await declare(broker_under_test, "lasting", **subscribed)
    sent = job(topic="order/eu")
    assert await publish(broker_under_test, Topic("shop", sent)) == [Verdict.CONFIRMED]
    for queue in (fleeting, lasting):
        hands = Hands()
        broker_under_test.subscribe(queue, hands, prefetch=1)
        [delivery] = await hands.hold(1)
        assert delivery.job.id == sent.id


async def test_a_batch_for_both_kinds_is_settled_once_with_all_verdicts(
    broker_under_test: Broker,
) -> None:
    fleeting = await declare(broker_under_test, "fleeting", **EPHEMERAL)
    lasting = await declare(broker_under_test, "lasting")
    unknown = Main(QueueKey("shop", "unknown"), job())
    verdicts = await publish(
        broker_under_test, passing(fleeting), Main(lasting, job()), unknown, passing(fleeting)
    )
    confirmed, lost = Verdict.CONFIRMED, Verdict.UNROUTABLE
    assert verdicts == [confirmed, confirmed, lost, confirmed]
    assert await broker_under_test.depth(fleeting) == Depth(2, 0, 0, 0)
    assert await broker_under_test.depth(lasting) == Depth(1, 0, 0, 0)


async def test_a_queue_that_nobody_wants_jobs_of_expires_and_a_publish_says_so(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test, **SHORT)
    await publish(broker_under_test, passing(queue))
    await gone(broker_under_test, queue)
    assert await publish(broker_under_test, passing(queue)) == [Verdict.UNROUTABLE]


async def test_a_queue_does_not_expire_while_somebody_wants_jobs_of_it(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test, **SHORT)
    subscription = broker_under_test.subscribe(queue, hands := Hands(), prefetch=1)
    await asyncio.sleep(IDLE)
    await publish(broker_under_test, sent := passing(queue))
    [delivery] = await hands.hold(1)
    assert delivery.job.id == sent.job.id
    subscription.ack(hands.take())
    await subscription.close()
    await gone(broker_under_test, queue)


async def test_an_expired_queue_comes_back_empty_when_it_is_declared_and_so_do_its_consumers(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test, **SHORT)
    subscription = broker_under_test.subscribe(queue, hands := Hands(), prefetch=0)
    await publish(broker_under_test, passing(queue))
    await gone(broker_under_test, queue)
    assert await declare(broker_under_test, **EPHEMERAL) == queue
    await publish(broker_under_test, sent := passing(queue))
    subscription.set_prefetch(1)
    [delivery] = await hands.hold(1)
    assert delivery.job.id == sent.job.id


async def test_an_undeclared_queue_is_gone_with_its_exchange(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test, **EPHEMERAL)
    other = await declare(broker_under_test, "other")
    await publish(broker_under_test, passing(queue))
    await broker_under_test.undeclare(queue)
    assert await broker_under_test.depth(queue) is None
    assert await publish(broker_under_test, passing(queue)) == [Verdict.UNROUTABLE]
    await enqueue(broker_under_test, other, job())
    hands = Hands()
    broker_under_test.subscribe(other, hands, prefetch=1)
    await eventually(lambda: bool(hands.came), "the other queue goes on")
