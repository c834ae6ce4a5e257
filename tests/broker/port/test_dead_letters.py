"""Dead letters are looked at without being touched, and leave only when they are safe elsewhere."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from broker.port.play import (
    DEADLINE,
    Hands,
    bury_all,
    bury_at_once,
    declare,
    enqueue,
    eventually,
    job,
    letter,
    redrive,
)
from fixtures.adapters import Place
from fixtures.scale import FULL
from namedqueue.deadletters import DeadLetterRecord, bury
from namedqueue.history import AttemptRecord
from namedqueue.outcomes import Kind
from namedqueue.retry import DeadLetter
from namedqueue_sidecar.brokers.port import Broker, Dead, DeadLetters, Delivery, QueueKey
from namedqueue_sidecar.redriving.runs import Phase, Run
from namedqueue_sidecar.redriving.wishes import Wish

REASON = DeadLetter("HTTP_422", "no")
NOW = 1_800_000_000_000
TRIES = 1 if FULL else 4
"""A wrong rate is wrong each time; a busy machine is not."""


async def pages(letters: DeadLetters, limit: int) -> list[list[DeadLetterRecord]]:
    """Return all pages."""
    found = []
    cursor: str | None = None
    while True:
        page, cursor = await letters.browse(cursor, limit)
        found.append(list(page))
        if cursor is None:
            return found


async def ids(letters: DeadLetters) -> list[str]:
    """Name all letters in order."""
    return [record.job.id for page in await pages(letters, 100) for record in page]


async def test_letters_are_browsed_in_order_of_arrival_again_and_again(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test)
    sent = [letter() for _ in range(7)]
    await bury_all(broker_under_test, queue, *sent)
    letters = broker_under_test.dead_letters(queue)
    for _ in range(3):
        found = await pages(letters, 3)
        assert [len(page) for page in found] == [3, 3, 1]
        assert [record.job.id for page in found for record in page] == [
            record.job.id for record in sent
        ]


async def test_a_queue_without_letters_has_one_empty_page(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    assert await broker_under_test.dead_letters(queue).browse(None, 10) == ([], None)


async def test_a_letter_tells_its_whole_story(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    sent = letter("PAYMENT_DECLINED", payload=b'{"a":1}', attempt=5)
    attempt = AttemptRecord(5, Kind.TRANSIENT, "PAYMENT_DECLINED", 1_700_000_000_000, 12, "no")
    story = sent.job.history.with_record(attempt)
    told = DeadLetterRecord(sent.job._replace(history=story), sent.reason, sent.dead_lettered_at)
    await bury_all(broker_under_test, queue, told)
    found = await broker_under_test.dead_letters(queue).find(sent.job.id)
    assert found is not None
    assert found.document() == told.document()


async def test_a_letter_that_is_not_there_is_not_found(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await bury_all(broker_under_test, queue, letter())
    assert await broker_under_test.dead_letters(queue).find("nobody") is None


async def test_paging_goes_on_when_the_page_before_was_removed(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    sent = [letter() for _ in range(6)]
    await bury_all(broker_under_test, queue, *sent)
    letters = broker_under_test.dead_letters(queue)
    page, cursor = await letters.browse(None, 3)
    assert await letters.remove([record.job.id for record in page]) == 3
    rest, cursor = await letters.browse(cursor, 10)
    assert [record.job.id for record in rest] == [record.job.id for record in sent[3:]]
    assert cursor is None


async def test_pages_by_reason_are_full_and_hold_no_other(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    sent = [letter("ODD" if number % 2 else "EVEN") for number in range(12)]
    await bury_all(broker_under_test, queue, *sent)
    letters = broker_under_test.dead_letters(queue)
    found, cursor = await letters.browse(None, 4, "ODD")
    assert len(found) == 4
    rest, cursor = await letters.browse(cursor, 4, "ODD")
    assert cursor is None
    assert [each.job.id for each in (*found, *rest)] == [each.job.id for each in sent[1::2]]
    assert await letters.browse(None, 4, "NONE") == ([], None)


async def test_only_the_letters_that_were_named_are_removed(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    sent = [letter() for _ in range(6)]
    await bury_all(broker_under_test, queue, *sent)
    letters = broker_under_test.dead_letters(queue)
    gone = [sent[1].job.id, sent[4].job.id, "nobody"]
    assert await letters.remove(gone) == 2
    assert await letters.remove(gone) == 0
    assert await ids(letters) == [sent[i].job.id for i in (0, 2, 3, 5)]


async def test_chosen_letters_are_redriven_with_attempts_reset_and_the_rest_stay(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test)
    wrong = [letter("HTTP_422", attempt=5, payload=b"%d" % number) for number in range(3)]
    slow = [letter("TIMEOUT") for _ in range(3)]
    await bury_all(broker_under_test, queue, *wrong, *slow)
    letters = broker_under_test.dead_letters(queue)
    assert await redrive(letters, reason="HTTP_422") == 3
    assert await ids(letters) == [record.job.id for record in slow]
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=10)
    await hands.hold(3)
    for delivery, record in zip(hands.came, wrong, strict=True):
        assert delivery.job.id == record.job.id
        assert delivery.job.payload == record.job.payload
        assert delivery.job.attempt == 1
        assert delivery.job.redrives == 1


@pytest.mark.parametrize("payload", [b"no JSON", b'{"call": "me"}'])
async def test_a_job_of_any_type_is_redriven(broker_under_test: Broker, payload: bytes) -> None:
    queue = await declare(broker_under_test)
    ours = letter(type="namedqueue.redrive-note", payload=payload)
    await bury_all(broker_under_test, queue, ours, letter())
    assert await redrive(broker_under_test.dead_letters(queue)) == 2
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=2)
    await hands.hold(2)
    assert ours.job.id in hands.ids
    await subscription.close()


async def test_a_redrive_ends_at_its_limit(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    sent = [letter() for _ in range(5)]
    await bury_all(broker_under_test, queue, *sent)
    letters = broker_under_test.dead_letters(queue)
    assert await redrive(letters, 2) == 2
    assert await ids(letters) == [record.job.id for record in sent[2:]]
    assert await redrive(letters) == 3


async def test_a_redrive_into_a_full_queue_loses_and_doubles_nothing(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test, durable={"maxLength": 3})
    sent = await bury_at_once(broker_under_test, queue, 50)
    letters = broker_under_test.dead_letters(queue)
    run = Run("fix", Wish(), most_ready=3)
    await run.go(letters, patience=DEADLINE)
    assert (run.phase, run.redriven) == (Phase.STOPPED, 3)
    left = await ids(letters)
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=300)
    await hands.hold(3)
    assert sorted([*left, *hands.ids]) == sorted(sent)
    await subscription.close()


@pytest.mark.parametrize("moments", [1, 5, 9])
async def test_a_redrive_that_is_cut_short_and_resumed_sends_each_job_once(
    broker_under_test: Broker, another_client: Place, moments: int
) -> None:
    queue = await declare(broker_under_test)
    sent = await bury_at_once(broker_under_test, queue, 300)
    redriver = await another_client()
    run = Run("fix", Wish(rate_per_second=30))
    going = asyncio.ensure_future(run.go(redriver.dead_letters(queue), patience=DEADLINE))
    await eventually(lambda: run.redriven >= 10 * moments, "the redrive is under way")
    going.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await going
    await redriver.close()
    again = Run("fix", Wish())
    await again.go(broker_under_test.dead_letters(queue), patience=30)
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=1000)
    await hands.hold(300)
    assert sorted(hands.ids) == sorted(sent)
    assert await ids(broker_under_test.dead_letters(queue)) == []
    await subscription.close()


async def test_a_job_that_comes_straight_back_is_not_sent_again_by_the_same_redrive(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test)
    await bury_all(broker_under_test, queue, letter(), letter())
    letters = broker_under_test.dead_letters(queue)
    assert await redrive(letters, name="fix") == 2
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=2)
    for delivery in await hands.hold(2):
        await bury_all(broker_under_test, queue, bury(delivery.job, REASON, None, NOW))
        subscription.ack([delivery])
    assert await redrive(letters, name="fix") == 0
    assert await redrive(letters, name="another") == 2


async def test_a_redrive_ends_when_its_jobs_come_straight_back(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await bury_at_once(broker_under_test, queue, 300)
    failing = Failing(broker_under_test, queue)
    run = Run("fix", Wish(rate_per_second=50, abort_after_failures=20))
    await run.go(broker_under_test.dead_letters(queue), patience=DEADLINE)
    assert run.phase is Phase.ABORTED
    assert 20 <= run.failed <= run.redriven < 300
    await eventually(lambda: failing.failed == run.redriven, "all that were sent have failed")
    await failing.subscription.close()


class Failing:
    """A worker whose every job fails for good."""

    def __init__(self, broker: Broker, queue: QueueKey) -> None:
        self.failed = 0
        self._broker, self._queue = broker, queue
        self.subscription = broker.subscribe(queue, self, prefetch=100)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            dead = Dead(self._queue, bury(delivery.job, REASON, None, NOW))
            self._broker.publish([dead], lambda _, each=delivery: self._done(each))  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def lost(self) -> None:
        raise AssertionError("the connection was lost")

    def _done(self, delivery: Delivery) -> None:
        self.failed += 1
        self.subscription.ack([delivery])


@pytest.mark.parametrize("rate", [40, 200])
async def test_a_redrive_keeps_its_rate(broker_under_test: Broker, rate: int) -> None:
    queue = await declare(broker_under_test)
    jobs = 4 * rate
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=jobs)
    letters = broker_under_test.dead_letters(queue)

    async def measured() -> float:
        await bury_at_once(broker_under_test, queue, jobs)
        await Run("fix", Wish(rate_per_second=rate)).go(letters, patience=DEADLINE)
        await hands.hold(jobs)
        took = max(hands.at.values()) - min(hands.at.values())
        subscription.ack(hands.take())
        hands.at.clear()
        return (jobs - 1) / took

    tries = [await measured()]
    while tries[-1] != pytest.approx(rate, rel=0.1):
        assert len(tries) < TRIES, f"{tries} jobs a second"
        tries.append(await measured())
    await subscription.close()


async def test_a_dry_run_counts_and_touches_nothing(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    sent = [letter("HTTP_422"), letter("TIMEOUT"), letter("HTTP_422")]
    await bury_all(broker_under_test, queue, *sent)
    letters = broker_under_test.dead_letters(queue)
    run = Run("fix", Wish(reason="HTTP_422", dry_run=True))
    await run.go(letters, patience=DEADLINE)
    assert (run.matched, run.redriven, run.phase) == (2, 0, Phase.SUCCEEDED)
    assert await ids(letters) == [record.job.id for record in sent]


async def test_a_redriven_job_that_fails_again_is_not_redriven_for_ever(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test)
    await bury_all(broker_under_test, queue, letter(), letter())
    letters = broker_under_test.dead_letters(queue)
    assert await redrive(letters) == 2
    assert await redrive(letters) == 0


async def test_browsing_disturbs_no_job_in_the_main_queue(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    await enqueue(broker_under_test, queue, sent := job())
    await bury_all(broker_under_test, queue, letter())
    assert len(await ids(broker_under_test.dead_letters(queue))) == 1
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=1)
    [delivery] = await hands.hold(1)
    assert delivery.job.id == sent.id
    assert not delivery.redelivered
