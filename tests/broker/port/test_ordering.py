"""A FIFO queue keeps the order of its groups, whoever holds its jobs and however he lets go."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import cycle

from broker.port.play import (
    Hands,
    answer,
    bury_all,
    declare,
    enqueue,
    eventually,
    job,
    letter,
    publish,
    redrive,
)
from fixtures.adapters import Place
from namedqueue.envelope import Job
from namedqueue_sidecar.brokers.port import Broker, Delivery, Main, QueueKey, Subscription, Verdict

PARTITIONS = 4
QUIET = 0.5
"""Seconds within which a delivery that must not come would have come."""


async def fifo(broker: Broker, partitions: int = PARTITIONS) -> QueueKey:
    """Make a FIFO queue exist."""
    spec = {"groupBy": "body.group", "partitions": partitions}
    return await declare(broker, durable={"fifo": spec})


def subscribe(
    broker: Broker, queue: QueueKey, hands: Hands, prefetch: int, partitions: int = PARTITIONS
) -> Subscription:
    return broker.subscribe(queue, hands, prefetch, partitions=partitions)


def jobs_of(groups: int, count: int) -> list[Job]:
    """Return jobs of so many groups, one of each in turn."""
    names = cycle(f"g-{number}" for number in range(groups))
    return [job(group=next(names)) for _ in range(count)]


def by_group(jobs: Iterable[Job]) -> dict[str | None, list[str]]:
    found: defaultdict[str | None, list[str]] = defaultdict(list)
    for each in jobs:
        found[each.group].append(each.id)
    return dict(found)


def held_jobs(deliveries: Sequence[Delivery]) -> list[Job]:
    return [delivery.job for delivery in deliveries]


async def test_every_group_comes_in_the_order_it_was_sent(broker_under_test: Broker) -> None:
    queue = await fifo(broker_under_test)
    sent = jobs_of(groups=20, count=400)
    hands = Hands()
    subscribe(broker_under_test, queue, hands, prefetch=2000)
    for start in range(0, 400, 50):
        await enqueue(broker_under_test, queue, *sent[start : start + 50])
    await hands.hold(400)
    assert by_group(held_jobs(hands.came)) == by_group(sent)


async def test_what_was_let_go_comes_again_in_order(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await fifo(broker_under_test)
    sent = jobs_of(groups=10, count=200)
    await enqueue(broker_under_test, queue, *sent)
    first = Hands()
    subscription = subscribe(broker_under_test, queue, first, prefetch=128)
    held = await first.hold(60)
    done = [delivery for delivery in held if delivery.job.group in {"g-1", "g-2"}]
    subscription.ack(done)
    await subscription.stop()
    await subscription.close()
    second = Hands()
    subscribe(await another_client(), queue, second, prefetch=2000)
    await second.hold(200 - len(done))
    finished = {delivery.job.id for delivery in done}
    rest = [each for each in sent if each.id not in finished]
    assert by_group(held_jobs(second.came)) == by_group(rest)


async def test_what_is_handed_back_comes_again_in_its_place(broker_under_test: Broker) -> None:
    queue = await fifo(broker_under_test)
    sent = jobs_of(groups=6, count=60)
    await enqueue(broker_under_test, queue, *sent)
    hands = Hands()
    subscription = subscribe(broker_under_test, queue, hands, prefetch=400)
    await hands.hold(60)
    held = hands.take()
    before = len(hands.came)
    subscription.hand_back([each for each in reversed(held) if each.job.group != "g-0"])
    subscription.ack([each for each in held if each.job.group == "g-0"])
    await hands.hold(50)
    again = held_jobs(hands.came[before:])
    assert by_group(again) == by_group(each for each in sent if each.group != "g-0")
    assert {each.attempt for each in again} == {1}


async def test_nothing_overtakes_a_job_that_was_handed_back(broker_under_test: Broker) -> None:
    queue = await fifo(broker_under_test, partitions=1)
    sent = [job(group="one") for _ in range(10)]
    await enqueue(broker_under_test, queue, *sent)
    hands = Hands()
    subscription = subscribe(broker_under_test, queue, hands, prefetch=3, partitions=1)
    held = await hands.hold(3)
    hands.take()
    subscription.hand_back(held[1:])
    await asyncio.sleep(QUIET)
    assert hands.held == []
    subscription.ack(held[:1])
    await hands.hold(3)
    assert [delivery.job.id for delivery in hands.held] == [each.id for each in sent[1:4]]


async def test_a_partition_is_in_one_pair_of_hands_at_a_time(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await fifo(broker_under_test, partitions=1)
    await enqueue(broker_under_test, queue, *(sent := [job(group="one") for _ in range(20)]))
    one, two = Hands(), Hands()
    first = subscribe(broker_under_test, queue, one, prefetch=5, partitions=1)
    await one.hold(5)
    second = subscribe(await another_client(), queue, two, prefetch=5, partitions=1)
    await asyncio.sleep(QUIET)
    assert two.came == []

    def work() -> bool:
        assert not (one.held and two.held)
        first.ack(one.take()[:])
        second.ack(two.take()[:])
        return len(one.came) + len(two.came) >= 20

    await eventually(work, "all were worked off")
    assert sorted([*one.ids, *two.ids]) == sorted(each.id for each in sent)


async def test_a_pause_lets_another_take_over_in_order(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await fifo(broker_under_test)
    sent = jobs_of(groups=8, count=80)
    one, two = Hands(), Hands()
    first = subscribe(broker_under_test, queue, one, prefetch=400)
    await enqueue(broker_under_test, queue, *sent)
    await one.hold(80)
    subscribe(await another_client(), queue, two, prefetch=400)
    first.set_prefetch(0)
    first.hand_back(one.take())
    await two.hold(80)
    assert by_group(held_jobs(two.came)) == by_group(sent)


async def test_more_comes_after_a_changed_prefetch_and_still_in_order(
    broker_under_test: Broker,
) -> None:
    queue = await fifo(broker_under_test, partitions=1)
    sent = [job(group="one") for _ in range(60)]
    await enqueue(broker_under_test, queue, *sent)
    hands = Hands()
    subscription = subscribe(broker_under_test, queue, hands, prefetch=5, partitions=1)
    await hands.hold(5)
    subscription.set_prefetch(60)
    subscription.ack(done := hands.take())
    await eventually(
        lambda: len({*hands.ids}) == 60 and len(hands.held) >= 60 - len(done), "the rest came"
    )
    first_seen = list(dict.fromkeys(hands.ids))
    assert first_seen == [each.id for each in sent]


async def test_a_delayed_job_has_no_place_in_a_fifo_queue(broker_under_test: Broker) -> None:
    queue = await fifo(broker_under_test)
    delayed = Main(queue, job(group="one"), 1000)
    assert await publish(broker_under_test, delayed) == [Verdict.UNROUTABLE]


async def test_depth_is_of_all_partitions_and_dead_letters_go_back(
    broker_under_test: Broker,
) -> None:
    queue = await fifo(broker_under_test)
    await enqueue(broker_under_test, queue, *jobs_of(groups=10, count=30))
    await bury_all(broker_under_test, queue, *(letter(group=f"g-{number}") for number in range(3)))
    await answer(lambda: broker_under_test.depth(queue), lambda depth: depth == (30, 0, 0, 3))
    assert await redrive(broker_under_test.dead_letters(queue)) == 3
    await answer(lambda: broker_under_test.depth(queue), lambda depth: depth == (33, 0, 0, 0))
    hands = Hands()
    subscription = subscribe(broker_under_test, queue, hands, prefetch=400)
    await hands.hold(33)
    assert [each.redrives for each in held_jobs(hands.came)].count(1) == 3
    await answer(lambda: broker_under_test.depth(queue), lambda depth: depth == (0, 33, 0, 0))
    await subscription.close()


async def test_an_undeclared_fifo_queue_is_gone(broker_under_test: Broker) -> None:
    queue = await fifo(broker_under_test)
    await enqueue(broker_under_test, queue, job(group="one"))
    await broker_under_test.undeclare(queue)
    assert await broker_under_test.depth(queue) is None
