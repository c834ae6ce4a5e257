"""The builtin broker's queues: order, time, limits. In memory, on a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import permutations

import pytest

from broker.port.play import (
    NAMESPACE,
    QUEUE,
    Hands,
    bury_all,
    declare,
    enqueue,
    job,
    letter,
    named_queue,
    publish,
    redrive,
)
from fixtures.builtin import opened, settle
from fixtures.clock import Clock
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.builtin import broker as module
from namedqueue_sidecar.brokers.builtin.storage import Batch, Committed, MemoryStorage
from namedqueue_sidecar.brokers.port import Main, Publication, QueueKey, Topic, Verdict


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(clock: Clock) -> AsyncIterator[BuiltinBroker]:
    async with opened(None, clock) as broker:
        yield broker


async def test_jobs_come_in_the_order_in_which_they_became_ready(
    broker: BuiltinBroker, clock: Clock
) -> None:
    await declare(broker)
    first, late, last = job(), job(), job()
    await publish(broker, Main(QUEUE, late, 500), Main(QUEUE, first))
    await clock.advance(501, partial(settle, broker))
    await enqueue(broker, QUEUE, last)
    hands = Hands()
    broker.subscribe(QUEUE, hands, prefetch=10)
    await settle(broker)
    assert hands.ids == [first.id, late.id, last.id]


async def test_a_job_handed_back_returns_to_its_place_uncounted(broker: BuiltinBroker) -> None:
    await declare(broker)
    jobs = [job() for _ in range(3)]
    await enqueue(broker, QUEUE, *jobs)
    hands = Hands()
    subscription = broker.subscribe(QUEUE, hands, prefetch=2)
    await settle(broker)
    subscription.hand_back(hands.take())
    await settle(broker)
    assert hands.ids == [jobs[i].id for i in (0, 1, 0, 1)]
    assert [delivery.redelivered for delivery in hands.came] == [False, False, True, True]
    assert {delivery.job.attempt for delivery in hands.came} == {1}


async def test_a_late_ack_of_a_delivery_handed_back_is_a_no_op(broker: BuiltinBroker) -> None:
    await declare(broker)
    await enqueue(broker, QUEUE, job())
    hands = Hands()
    subscription = broker.subscribe(QUEUE, hands, prefetch=1)
    await settle(broker)
    old = hands.take()
    subscription.hand_back(old)
    await settle(broker)
    subscription.ack(old)
    await settle(broker)
    assert await broker.depth(QUEUE) == (0, 1, 0, 0)


@pytest.mark.parametrize(("delay", "kept"), [(1, 250), (250, 250), (251, 500), (15_750, 15_750)])
async def test_delays_are_kept_to_the_tick_of_the_ladder(
    broker: BuiltinBroker, clock: Clock, delay: int, kept: int
) -> None:
    await declare(broker)
    hands = Hands()
    broker.subscribe(QUEUE, hands, prefetch=1)
    await publish(broker, Main(QUEUE, job(), delay))
    await clock.advance(kept - 1, partial(settle, broker))
    assert not hands.came
    assert await broker.depth(QUEUE) == (0, 0, 1, 0)
    await clock.advance(1, partial(settle, broker))
    assert len(hands.came) == 1


async def test_higher_priorities_overtake_and_those_above_the_highest_count_as_it(
    broker: BuiltinBroker,
) -> None:
    await declare(broker, durable={"storage": "classic", "maxPriority": 3})
    jobs = [job(priority=priority) for priority in (0, 3, 1, 200, 3)]
    await enqueue(broker, QUEUE, *jobs)
    hands = Hands()
    broker.subscribe(QUEUE, hands, prefetch=10)
    await settle(broker)
    assert hands.ids == [jobs[i].id for i in (1, 3, 4, 2, 0)]


async def test_without_priorities_the_order_of_arrival_holds(broker: BuiltinBroker) -> None:
    await declare(broker)
    jobs = [job(priority=priority) for priority in (0, 9, 3)]
    await enqueue(broker, QUEUE, *jobs)
    hands = Hands()
    broker.subscribe(QUEUE, hands, prefetch=10)
    await settle(broker)
    assert hands.ids == [each.id for each in jobs]


async def test_a_job_expires_from_when_it_became_ready_and_never_in_a_workers_hands(
    broker: BuiltinBroker, clock: Clock
) -> None:
    await declare(broker, durable={"messageTTL": "1s"})
    held, stale, delayed = job(), job(attempt=3), job()
    await enqueue(broker, QUEUE, held, stale)
    await publish(broker, Main(QUEUE, delayed, 500))
    hands = Hands()
    subscription = broker.subscribe(QUEUE, hands, prefetch=1)
    await settle(broker)
    await clock.advance(1_499, partial(settle, broker))
    assert await broker.depth(QUEUE) == (1, 1, 0, 1)
    await clock.advance(1, partial(settle, broker))
    assert await broker.depth(QUEUE) == (0, 1, 0, 2)
    page, _ = await broker.dead_letters(QUEUE).browse(None, 10)
    assert [record.job.id for record in page] == [stale.id, delayed.id]
    assert {record.reason.code for record in page} == {"EXPIRED"}
    assert page[0].job.attempt == 3
    assert page[0].dead_lettered_at == clock.now - 500
    subscription.hand_back(hands.take())
    await settle(broker)
    assert await broker.depth(QUEUE) == (0, 0, 0, 3)
    assert len(hands.came) == 1


async def test_dead_letters_go_when_their_retention_is_over(
    broker: BuiltinBroker, clock: Clock
) -> None:
    await declare(broker, deadLetter={"retention": "1m"})
    await bury_all(broker, QUEUE, letter())
    await clock.advance(30_000, partial(settle, broker))
    await bury_all(broker, QUEUE, young := letter())
    await clock.advance(30_000, partial(settle, broker))
    page, _ = await broker.dead_letters(QUEUE).browse(None, 10)
    assert [record.job.id for record in page] == [young.job.id]


async def test_a_full_queue_refuses_new_jobs_and_lets_accepted_ones_come_back(
    broker: BuiltinBroker, clock: Clock
) -> None:
    await declare(broker, durable={"maxLength": 2})
    jobs: list[Publication] = [Main(QUEUE, job()) for _ in range(4)]
    full, confirmed = Verdict.FULL, Verdict.CONFIRMED
    assert await publish(broker, *jobs) == [confirmed, confirmed, full, full]
    assert await publish(broker, Main(QUEUE, job(), 250)) == [confirmed]
    await clock.advance(250, partial(settle, broker))
    assert await broker.depth(QUEUE) == (3, 0, 0, 0)
    hands = Hands()
    subscription = broker.subscribe(QUEUE, hands, prefetch=2)
    await settle(broker)
    subscription.set_prefetch(0)
    assert await publish(broker, Main(QUEUE, job()), Main(QUEUE, job())) == [confirmed, full]
    subscription.hand_back(hands.take())
    assert await broker.depth(QUEUE) == (4, 0, 0, 0)


async def test_a_topic_with_one_full_subscriber_is_refused_whole(broker: BuiltinBroker) -> None:
    """A producer that sends again would otherwise double the job in the queues with room."""
    await declare(broker, "small", durable={"maxLength": 1}, subscriptions=[{"topic": "#"}])
    await declare(broker, "large", subscriptions=[{"topic": "a/+"}])
    topic = Topic(NAMESPACE, job(topic="a/b"))
    assert await publish(broker, topic) == [Verdict.CONFIRMED]
    assert await publish(broker, topic) == [Verdict.FULL]
    assert await broker.depth(QueueKey(NAMESPACE, "large")) == (1, 0, 0, 0)


async def test_topics_do_not_reach_into_another_namespace(broker: BuiltinBroker) -> None:
    await declare(broker, subscriptions=[{"topic": "#"}])
    elsewhere = Topic("elsewhere", job(topic="a"))
    nameless = Topic(NAMESPACE, job())
    assert await publish(broker, elsewhere, nameless) == [Verdict.UNROUTABLE] * 2


async def test_a_copy_is_of_the_queue_that_it_was_delivered_to(broker: BuiltinBroker) -> None:
    queue = await declare(broker, "copies", subscriptions=[{"topic": "a"}])
    hands = Hands()
    broker.subscribe(queue, hands, prefetch=1)
    await publish(broker, Topic(NAMESPACE, job(topic="a", queue="")))
    await settle(broker)
    assert hands.came[0].job.queue == "copies"


async def test_a_changed_spec_holds_at_once_for_jobs_that_wait(
    broker: BuiltinBroker, clock: Clock
) -> None:
    await declare(broker)
    await enqueue(broker, QUEUE, job(), job())
    await clock.advance(5_000, partial(settle, broker))
    await declare(broker, durable={"messageTTL": "6s", "maxLength": 2})
    assert await publish(broker, Main(QUEUE, job())) == [Verdict.FULL]
    assert await broker.depth(QUEUE) == (2, 0, 0, 0)
    await clock.advance(1_000, partial(settle, broker))
    assert await broker.depth(QUEUE) == (0, 0, 0, 2)


async def test_pages_neither_repeat_nor_skip_while_letters_come_and_go(
    broker: BuiltinBroker,
) -> None:
    await declare(broker)
    sent = [letter() for _ in range(9)]
    await bury_all(broker, QUEUE, *sent)
    letters = broker.dead_letters(QUEUE)
    first, cursor = await letters.browse(None, 3)
    await letters.remove([sent[2].job.id, sent[4].job.id])
    await bury_all(broker, QUEUE, late := letter())
    second, cursor = await letters.browse(cursor, 3)
    third, cursor = await letters.browse(cursor, 3)
    assert cursor is None
    seen = [record.job.id for record in (*first, *second, *third)]
    assert seen == [sent[i].job.id for i in (0, 1, 2, 3, 5, 6, 7, 8)] + [late.job.id]


async def test_a_cursor_that_is_none_is_refused_with_a_sentence(broker: BuiltinBroker) -> None:
    await declare(broker)
    with pytest.raises(ValueError, match="'x' is not a cursor"):
        await broker.dead_letters(QUEUE).browse("x", 1)


async def test_two_redrives_at_once_send_each_letter_once(broker: BuiltinBroker) -> None:
    await declare(broker)
    await bury_all(broker, QUEUE, *(letter() for _ in range(10)))
    letters = broker.dead_letters(QUEUE)
    moved = await asyncio.gather(*(redrive(letters, 7) for _ in range(2)))
    assert sum(moved) == 10
    assert await broker.depth(QUEUE) == (10, 0, 0, 0)


async def test_subscribers_are_served_in_turn(broker: BuiltinBroker) -> None:
    await declare(broker)
    hands = [Hands() for _ in range(3)]
    for each in hands:
        broker.subscribe(QUEUE, each, prefetch=2)
    for _ in range(3):
        await enqueue(broker, QUEUE, job())
        await settle(broker)
    assert [len(each.came) for each in hands] == [1, 1, 1]


async def test_a_receiver_that_raises_does_not_cost_another_its_jobs(
    broker: BuiltinBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    await declare(broker)
    bad, good = Hands(), Hands()
    monkeypatch.setattr(bad, "deliver", lambda _: 1 / 0)
    first = broker.subscribe(QUEUE, bad, prefetch=1)
    broker.subscribe(QUEUE, good, prefetch=2)
    await enqueue(broker, QUEUE, job(), job())
    await settle(broker)
    assert len(good.came) == 1
    await first.close()
    await settle(broker)
    assert len(good.came) == 2
    assert len(faults) == 1


async def test_a_subscription_survives_its_queue(broker: BuiltinBroker) -> None:
    await declare(broker)
    hands = Hands()
    subscription = broker.subscribe(QUEUE, hands, prefetch=5)
    await enqueue(broker, QUEUE, job())
    await settle(broker)
    void = hands.take()
    await broker.undeclare(QUEUE)
    assert hands.losses == 1
    subscription.ack(void)
    subscription.hand_back(void)
    await declare(broker)
    await enqueue(broker, QUEUE, job())
    await settle(broker)
    assert len(hands.held) == 1


async def test_a_queue_may_be_subscribed_to_before_it_is_declared(broker: BuiltinBroker) -> None:
    hands = Hands()
    broker.subscribe(QUEUE, hands, prefetch=5)
    await declare(broker)
    await enqueue(broker, QUEUE, job())
    await settle(broker)
    assert len(hands.held) == 1


async def test_a_closed_broker_voids_deliveries_and_promises_nothing() -> None:
    async with opened() as broker:
        await declare(broker)
        hands = Hands()
        subscription = broker.subscribe(QUEUE, hands, prefetch=1)
        await enqueue(broker, QUEUE, job())
        held = await hands.hold(1)
    assert hands.losses == 1
    subscription.ack(held)
    assert await publish(broker, Main(QUEUE, job())) == [Verdict.UNKNOWN]
    assert broker.unavailable == "the builtin broker is not open"
    await broker.close()


async def test_a_disk_that_hangs_leaves_no_publisher_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_up: list[Committed] = []
    commit = MemoryStorage.commit

    def hang(storage: MemoryStorage, batch: Batch, committed: Committed) -> None:
        commit(storage, batch, lambda _: held_up.append(committed))

    monkeypatch.setattr(module, "PATIENCE", 0.05)
    async with opened() as broker:
        await declare(broker)
        monkeypatch.setattr(MemoryStorage, "commit", hang)
        assert await publish(broker, Main(QUEUE, job())) == [Verdict.UNKNOWN]
        assert await publish(broker, Main(QUEUE, job())) == [Verdict.UNKNOWN]
        monkeypatch.setattr(MemoryStorage, "commit", commit)
        held_up.pop()(None)
        await settle(broker)
        assert await broker.depth(QUEUE) == (2, 0, 0, 0)


@pytest.mark.parametrize(
    ("before", "after"), [*permutations(("durable", "ephemeral", "stream"), 2)]
)
async def test_a_queue_that_exists_cannot_become_one_of_another_type(
    broker: BuiltinBroker, before: str, after: str
) -> None:
    await broker.declare(named_queue(type=before))
    with pytest.raises(ValueError, match=r"spec\.type cannot change"):
        await broker.declare(named_queue(type=after))
