"""Who holds a job, for how long, and what becomes of it afterwards."""

import asyncio

from broker.port.play import Hands, answer, declare, enqueue, eventually, job
from fixtures.adapters import Place
from namedqueue_sidecar.brokers.port import Broker, QueueKey

QUIET = 0.5
"""Seconds within which a delivery that must not come would have come."""


async def nothing_ready(broker: Broker, queue: QueueKey) -> None:
    """Wait until no job is left in the queue or in anyone's hands."""
    await answer(
        lambda: broker.depth(queue), lambda depth: depth is not None and depth[:2] == (0, 0)
    )


async def test_jobs_come_in_the_order_they_were_sent(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    jobs = [job() for _ in range(200)]
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=300)
    for start in range(0, 200, 20):
        await enqueue(broker_under_test, queue, *jobs[start : start + 20])
    await hands.hold(200)
    assert hands.ids == [each.id for each in jobs]
    assert not any(delivery.redelivered for delivery in hands.came)


async def test_an_acknowledged_job_never_comes_again(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, *(job() for _ in range(20)))
    first = Hands()
    subscription = broker_under_test.subscribe(queue, first, prefetch=20)
    held = await first.hold(20)
    kept = held[3::5]
    subscription.ack([delivery for delivery in reversed(held) if delivery not in kept])
    await subscription.close()
    second = Hands()
    broker_under_test.subscribe(queue, second, prefetch=20)
    await second.hold(len(kept))
    await asyncio.sleep(QUIET)
    assert sorted(second.ids) == sorted(delivery.job.id for delivery in kept)


async def test_a_job_handed_back_comes_again_uncounted(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, sent := job(attempt=2))
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=1)
    for _ in range(5):
        await hands.hold(1)
        subscription.hand_back(hands.take())
    [delivery] = await hands.hold(1)
    assert delivery.job.id == sent.id
    assert delivery.job.attempt == 2
    assert delivery.redelivered


async def test_a_job_left_by_one_client_comes_to_another_as_redelivered(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, sent := job())
    first, second = Hands(), Hands()
    subscription = broker_under_test.subscribe(queue, first, prefetch=1)
    [delivery] = await first.hold(1)
    assert not delivery.redelivered
    await subscription.close()
    (await another_client()).subscribe(queue, second, prefetch=1)
    [delivery] = await second.hold(1)
    assert delivery.job.id == sent.id
    assert delivery.redelivered


async def test_no_more_jobs_are_held_than_the_prefetch_allows(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, *(job() for _ in range(50)))
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=7)
    await hands.hold(7)
    await asyncio.sleep(QUIET)
    assert len(hands.held) == 7
    subscription.ack(hands.take()[:3])
    await eventually(lambda: len(hands.came) == 10, "three more came")
    await asyncio.sleep(QUIET)
    assert len(hands.came) == 10


async def test_the_prefetch_changes_while_jobs_are_held(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, *(job() for _ in range(60)))
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=5)
    await hands.hold(5)
    subscription.set_prefetch(12)
    await hands.hold(12)
    await asyncio.sleep(QUIET)
    assert len(hands.held) == 12
    subscription.set_prefetch(4)
    await asyncio.sleep(QUIET)
    assert len(hands.held) == 12
    subscription.ack(hands.take())
    await hands.hold(4)
    await asyncio.sleep(QUIET)
    assert len(hands.held) == 4


async def test_a_prefetch_of_zero_pauses_and_acks_go_on(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=0)
    await enqueue(broker_under_test, queue, *(job() for _ in range(10)))
    await asyncio.sleep(QUIET)
    assert hands.came == []
    subscription.set_prefetch(4)
    await hands.hold(4)
    subscription.set_prefetch(0)
    await asyncio.sleep(QUIET)
    subscription.ack(hands.take())
    await asyncio.sleep(QUIET)
    assert len(hands.came) == 4
    subscription.set_prefetch(10)
    await eventually(lambda: len(hands.came) == 10, "the rest came")
    subscription.ack(hands.take())
    await nothing_ready(broker_under_test, queue)
    assert len(set(hands.ids)) == 10


async def test_resuming_with_jobs_still_held_keeps_within_the_prefetch(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, *(job() for _ in range(30)))
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=6)
    await hands.hold(6)
    subscription.set_prefetch(0)
    subscription.set_prefetch(6)
    await asyncio.sleep(QUIET)
    assert len(hands.held) == 6
    for _ in range(4):
        subscription.ack(hands.take())
        await hands.hold(6)
        await asyncio.sleep(QUIET / 5)
        assert len(hands.held) == 6


async def test_after_stop_nothing_comes_and_acks_still_count(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, *(job() for _ in range(10)))
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=4)
    done = await hands.hold(4)
    await subscription.stop()
    subscription.ack(done[:2])
    subscription.hand_back(done[2:])
    await asyncio.sleep(QUIET)
    assert len(hands.came) == 4
    await subscription.close()
    rest = Hands()
    broker_under_test.subscribe(queue, rest, prefetch=10)
    await rest.hold(8)
    assert not {delivery.job.id for delivery in done[:2]} & set(rest.ids)


async def test_two_subscribers_share_the_jobs_without_doubling_one(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await declare(broker_under_test)
    one, two = Hands(), Hands()
    other = await another_client()
    first = broker_under_test.subscribe(queue, one, prefetch=5)
    second = other.subscribe(queue, two, prefetch=5)
    await answer(lambda: broker_under_test.consumers(queue), lambda count: count == 2)
    jobs = [job() for _ in range(100)]
    await enqueue(broker_under_test, queue, *jobs)

    def work() -> bool:
        first.ack(one.take())
        second.ack(two.take())
        return len(one.came) + len(two.came) >= 100

    await eventually(work, "all were worked off")
    assert sorted(one.ids + two.ids) == sorted(each.id for each in jobs)
    assert one.came
    assert two.came


async def test_acknowledging_twice_or_after_close_is_harmless(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, job(), job())
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=1)
    [delivery] = await hands.hold(1)
    hands.take()
    subscription.ack([delivery])
    subscription.ack([delivery])
    await hands.hold(1)
    subscription.hand_back([delivery])
    await subscription.close()
    subscription.ack(hands.take())
    subscription.set_prefetch(3)
    await subscription.close()
    again = Hands()
    broker_under_test.subscribe(queue, again, prefetch=2)
    await again.hold(1)


async def test_a_thousand_jobs_acked_out_of_order_all_go(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=64)
    await enqueue(broker_under_test, queue, *(job() for _ in range(1000)))

    def work() -> bool:
        held = hands.take()
        subscription.ack(held[1::2])
        subscription.ack(held[0::2])
        return len(hands.came) >= 1000

    await eventually(work, "all were worked off")
    subscription.ack(hands.take())
    await nothing_ready(broker_under_test, queue)
    assert len(set(hands.ids)) == 1000
