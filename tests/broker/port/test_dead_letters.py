"""Dead letters are looked at without being touched, and leave only when they are safe elsewhere."""

import asyncio
import contextlib

import pytest

from broker.port.play import Hands, answer, bury_all, declare, enqueue, eventually, job, letter
from fixtures.adapters import Place
from namedqueue.deadletters import DeadLetterRecord
from namedqueue.history import AttemptRecord
from namedqueue.outcomes import Kind
from namedqueue_sidecar.brokers.port import Broker, DeadLetters, QueueKey


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
    assert await letters.redrive(lambda record: record.reason.code == "HTTP_422", None) == 3
    assert await ids(letters) == [record.job.id for record in slow]
    hands = Hands()
    broker_under_test.subscribe(queue, hands, prefetch=10)
    await hands.hold(3)
    for delivery, record in zip(hands.came, wrong, strict=True):
        assert delivery.job.id == record.job.id
        assert delivery.job.payload == record.job.payload
        assert delivery.job.attempt == 1
        assert delivery.job.redrives == 1


async def test_a_redrive_ends_at_its_limit(broker_under_test: Broker) -> None:
    queue = await declare(broker_under_test)
    sent = [letter() for _ in range(5)]
    await bury_all(broker_under_test, queue, *sent)
    letters = broker_under_test.dead_letters(queue)
    assert await letters.redrive(lambda _: True, 2) == 2
    assert await ids(letters) == [record.job.id for record in sent[2:]]
    assert await letters.redrive(lambda _: True, 0) == 0
    assert await letters.redrive(lambda _: True, None) == 3


async def test_a_redrive_into_a_full_queue_keeps_what_it_cannot_send(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test, durable={"maxLength": 3})
    sent = [letter() for _ in range(250)]
    await asyncio.gather(*(bury_all(broker_under_test, queue, each) for each in sent))
    letters = broker_under_test.dead_letters(queue)
    redriven = await letters.redrive(lambda _: True, None)
    assert redriven < 250
    left = await ids(letters)
    hands = Hands()
    subscription = broker_under_test.subscribe(queue, hands, prefetch=300)
    await hands.hold(redriven)
    assert set(left) | set(hands.ids) == {record.job.id for record in sent}
    await subscription.close()


@pytest.mark.parametrize("moments", [1, 3, 9, 27])
async def test_a_redrive_cut_short_leaves_each_job_in_one_place_at_least(
    broker_under_test: Broker, another_client: Place, moments: int
) -> None:
    queue = await declare(broker_under_test)
    sent = [letter() for _ in range(300)]
    await asyncio.gather(*(bury_all(broker_under_test, queue, each) for each in sent))
    redriver = await another_client()
    chosen = 0

    def choose(_: DeadLetterRecord) -> bool:
        nonlocal chosen
        chosen += 1
        return True

    redrive = asyncio.ensure_future(redriver.dead_letters(queue).redrive(choose, None))
    await eventually(lambda: chosen >= 10 * moments or redrive.done(), "the redrive is under way")
    redrive.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await redrive
    await redriver.close()
    await all_are_somewhere(broker_under_test, queue, {record.job.id for record in sent})


async def all_are_somewhere(broker: Broker, queue: QueueKey, wanted: set[str]) -> None:
    """Wait until every job was seen in the main queue or in the dead letters."""
    hands = Hands()
    subscription = broker.subscribe(queue, hands, prefetch=1000)
    letters = broker.dead_letters(queue)
    await answer(lambda: ids(letters), lambda dead: {*dead, *hands.ids} >= wanted)
    await subscription.close()


async def test_a_redriven_job_that_fails_again_is_not_redriven_for_ever(
    broker_under_test: Broker,
) -> None:
    queue = await declare(broker_under_test)
    await bury_all(broker_under_test, queue, letter(), letter())
    letters = broker_under_test.dead_letters(queue)
    assert await letters.redrive(lambda _: True, None) == 2
    assert await letters.redrive(lambda _: True, None) == 0


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
