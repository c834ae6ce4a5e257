"""What a publisher is told is true, and a job waits as long as it was told to."""

import time

import pytest

from broker.port.play import (
    NAMESPACE,
    Hands,
    answer,
    bury_all,
    declare,
    enqueue,
    eventually,
    job,
    letter,
    publish,
)
from fixtures.punctual import check_lateness
from namedqueue_sidecar.brokers.port import (
    Broker,
    Dead,
    Main,
    Publication,
    QueueKey,
    Topic,
    Verdict,
)


async def test_a_batch_is_confirmed_job_by_job_in_order(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    unknown = QueueKey(NAMESPACE, "nobody-made-it")
    verdicts = await publish(
        broker_under_test,
        Main(queue, job()),
        Main(unknown, job()),
        Main(queue, job()),
        Dead(queue, letter()),
    )
    assert verdicts == [
        Verdict.CONFIRMED,
        Verdict.UNROUTABLE,
        Verdict.CONFIRMED,
        Verdict.CONFIRMED,
    ]


async def test_an_empty_batch_is_settled_too(broker_under_test: Broker) -> None:
    assert await publish(broker_under_test) == []


async def test_a_job_comes_out_as_it_went_in(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    sent = job(
        b"\x00\xff payload",
        type="order.created",
        source="/checkout",
        content_type="application/x-thing",
        content_encoding="gzip",
        correlation_id="c-1",
        attempt=3,
        throttles=2,
        redrives=1,
        group="g-1",
        topic="order/eu",
        idempotency_key="k-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        headers=(("tenant", "a"),),
    )
    await enqueue(broker_under_test, queue, sent)
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=1)
    [delivery] = await hands.hold(1)
    assert delivery.job == sent._replace(history=delivery.job.history)
    assert delivery.job.history.records == sent.history.records


async def test_a_job_larger_than_a_frame_arrives_whole(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    payload = bytes(range(256)) * 4096
    await enqueue(broker_under_test, queue, job(payload), job(b""))
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=2)
    large, empty = await hands.hold(2)
    assert large.job.payload == payload
    assert empty.job.payload == b""


async def test_two_jobs_of_one_id_have_a_verdict_each(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    same = job()
    nowhere = QueueKey(NAMESPACE, "nobody-made-it")
    batch: list[Publication] = [
        Main(queue, same),
        Main(nowhere, same),
        Topic(NAMESPACE, same._replace(topic="x")),
    ]
    verdicts = await publish(broker_under_test, *batch, *batch)
    assert verdicts == [Verdict.CONFIRMED, Verdict.UNROUTABLE, Verdict.UNROUTABLE] * 2


async def test_a_queue_that_is_full_says_so_and_drops_nothing(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test, durable={"maxLength": 10})
    verdicts: list[Verdict] = []
    while Verdict.FULL not in verdicts and len(verdicts) < 30:
        verdicts += await publish(broker_under_test, Main(queue, job()))
    assert verdicts[:10] == [Verdict.CONFIRMED] * 10
    assert verdicts[-1] is Verdict.FULL
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=100)
    await hands.hold(len(verdicts) - 1)


async def test_delayed_jobs_come_in_time_and_do_not_hold_each_other_up(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test)
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=100)
    delays = [4000, 250, 2750, 500, 1000, 0, 1750, 250]

    async def lateness() -> list[float]:
        jobs = [job() for _ in delays]
        sent = time.monotonic()
        verdicts = await publish(
            broker_under_test,
            *(Main(queue, each, delay) for each, delay in zip(jobs, delays, strict=True)),
        )
        took = time.monotonic() - sent
        assert set(verdicts) == {Verdict.CONFIRMED}
        await eventually(lambda: all(each.id in hands.at for each in jobs), "all came")
        late = [
            hands.at[each.id] - sent - delay / 1000
            for each, delay in zip(jobs, delays, strict=True)
        ]
        return [min(late), max(late) - took]

    await check_lateness(lateness)


async def test_a_delay_between_two_ticks_is_rounded_up(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=100)

    async def lateness() -> list[float]:
        sent, waits = time.monotonic(), job()
        assert await publish(broker_under_test, Main(queue, waits, 260)) == [Verdict.CONFIRMED]
        await eventually(lambda: waits.id in hands.at, "it came")
        return [hands.at[waits.id] - sent - 0.5]

    await check_lateness(lateness)


async def test_a_delay_beyond_the_queues_longest_is_unroutable(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test, retry={"delay": "250ms", "maxDelay": "250ms"})
    ten_days = 10 * 86_400_000
    assert await publish(broker_under_test, Main(queue, job(), ten_days)) == [Verdict.UNROUTABLE]
    assert await publish(broker_under_test, Main(queue, job())) == [Verdict.CONFIRMED]


async def test_every_queue_that_subscribes_to_a_topic_gets_its_copy(
    broker_under_test: Broker,
) -> None:
    all_orders = await declare(
        broker_under_test, "all-orders", subscriptions=[{"topic": "order/#"}]
    )
    created = await declare(
        broker_under_test, "created", subscriptions=[{"topic": "order/+/created"}]
    )
    one, two = Hands(), Hands()
    broker_under_test.subscribe(all_orders, one, prefetch=10)
    broker_under_test.subscribe(created, two, prefetch=10)
    both, single = job(topic="order/eu/created"), job(topic="order/eu/cancelled")
    neither = job(topic="invoice/eu")
    verdicts = await publish(
        broker_under_test, *(Topic(NAMESPACE, each) for each in (both, single, neither))
    )
    assert verdicts == [Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.UNROUTABLE]
    await one.hold(2)
    await two.hold(1)
    assert {delivery.job.topic for delivery in one.came} == {both.topic, single.topic}
    assert [delivery.job.topic for delivery in two.came] == [both.topic]


async def test_higher_priorities_come_first(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test, durable={"storage": "classic", "maxPriority": 5})
    jobs = [job(priority=priority) for priority in (1, 5, 0, 3)]
    await enqueue(broker_under_test, queue, *jobs)
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=10)
    await hands.hold(4)
    assert [delivery.job.priority for delivery in hands.came] == [5, 3, 1, 0]


async def test_a_job_past_its_time_to_live_is_a_dead_letter(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test, durable={"messageTTL": "1s"})
    await enqueue(broker_under_test, queue, stale := job())
    letters = broker_under_test.dead_letters(queue)
    found = await answer(lambda: letters.find(stale.id), lambda found: found is not None)
    assert found is not None
    assert found.reason.code == "EXPIRED"
    assert found.job.payload == stale.payload


async def test_depth_counts_jobs_where_they_are(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, job(), job(), job())
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=1)
    await hands.hold(1)
    assert await publish(broker_under_test, Main(queue, job(), 15_000)) == [Verdict.CONFIRMED]
    await bury_all(broker_under_test, queue, letter(), letter())
    await answer(lambda: broker_under_test.depth(queue), lambda depth: depth == (2, 1, 1, 2))
    await subscription.close()


async def test_a_queue_that_does_not_exist_has_no_depth(broker_under_test: Broker) -> None:
    assert await broker_under_test.depth(QueueKey(NAMESPACE, "nobody-made-it")) is None


async def test_an_undeclared_queue_is_gone_with_its_jobs(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, job())
    await broker_under_test.undeclare(queue)
    assert await broker_under_test.depth(queue) is None
    assert await publish(broker_under_test, Main(queue, job())) == [Verdict.UNROUTABLE]
    await declare(broker_under_test)
    depth = await broker_under_test.depth(queue)
    assert depth is not None
    assert depth.ready == 0


async def test_declaring_twice_keeps_the_jobs(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, job())
    await declare(broker_under_test)
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=1)
    await hands.hold(1)


async def test_a_broker_that_works_is_available(broker_under_test: Broker) -> None:
    await eventually(lambda: broker_under_test.unavailable is None, "available")


@pytest.mark.parametrize("size", [1, 1000])
async def test_what_was_confirmed_is_there_after_the_client_is_gone(
    broker_under_test: Broker, size: int
) -> None:
    queue = await declare(broker_under_test)
    jobs = [job() for _ in range(size)]
    await enqueue(broker_under_test, queue, *jobs)
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=size)
    await hands.hold(size)
    assert hands.ids == [each.id for each in jobs]
