"""A stream is read in order by any number of groups, each at its own pace and from its own place.

Offsets grow from one message to the next; a large stream may leave some out. `read` takes its
position when it gets through to the broker, so a test that must know where «next» is asks `seek`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.port.play import answer, declare, enqueue, eventually, job, now_ms, publish
from fixtures.adapters import Place
from fixtures.scale import scaled
from namedqueue.envelope import Job
from namedqueue.positions import End, Moment, Position
from namedqueue_sidecar.brokers.port import (
    Broker,
    Entry,
    Hold,
    Log,
    Main,
    QueueKey,
    Reading,
    Topic,
    Verdict,
)

QUIET = 0.5
"""Seconds within which an entry that must not come would have come."""

GROUPS = ("audit", "billing")


async def stream(broker: Broker, name: str = "orders", **spec: Any) -> QueueKey:
    """Make a stream exist whose pushed groups are `GROUPS`."""
    limits = spec.pop("stream", {})
    consumers = [{"group": group} for group in GROUPS]
    worker = {"port": 8080}
    return await declare(
        broker, name, type="stream", stream=limits | {"consumers": consumers}, worker=worker, **spec
    )


def messages(count: int, first: int = 0) -> list[Job]:
    """Return jobs that say which they are."""
    return [job(str(number).encode()) for number in range(first, first + count)]


def heavy(count: int, first: int = 0) -> list[Job]:
    """Return messages that weigh 4 kB each."""
    return [job(b"%4000d" % number) for number in range(first, first + count)]


class Eyes:
    """What one reading has seen."""

    def __init__(self, log: Log, start: Position, ahead: int = 10_000) -> None:
        self.seen: list[Entry] = []
        self.largest = 0
        self.reading: Reading = log.read(start, self._see, ahead)

    def _see(self, entries: Sequence[Entry]) -> None:
        self.seen.extend(entries)
        self.largest = max(self.largest, len(entries))

    @property
    def offsets(self) -> list[int]:
        return [entry.offset for entry in self.seen]

    @property
    def payloads(self) -> list[bytes]:
        return [entry.job.payload for entry in self.seen]

    @property
    def numbers(self) -> list[int]:
        return [int(payload) for payload in self.payloads]

    async def see(self, count: int) -> list[Entry]:
        """Wait until so many entries were seen."""
        await eventually(lambda: len(self.seen) >= count, f"{count} entries came")
        return self.seen


class Reader:
    """Someone who wishes to read for a group, and remembers what he was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int | None]] = []

    def granted(self, cursor: int | None) -> None:
        self.told.append(("granted", cursor))

    def moved(self, cursor: int) -> None:
        self.told.append(("moved", cursor))

    def revoked(self) -> None:
        self.told.append(("revoked", None))

    async def hears(self, *told: tuple[str, int | None]) -> None:
        """Wait until exactly this was told."""
        await eventually(lambda: len(self.told) >= len(told), f"{told}, not only {self.told}")
        assert self.told == [*told]


async def test_a_stream_is_read_in_order_from_its_first_message(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    sent = messages(500)
    for start in range(0, 500, 100):
        await enqueue(broker_under_test, queue, *sent[start : start + 100])
    eyes = Eyes(broker_under_test.log(queue), End.FIRST)
    seen = await eyes.see(500)
    assert [entry.job.id for entry in seen] == [each.id for each in sent]
    assert eyes.offsets == list(range(500))


async def test_a_message_comes_back_as_it_was_sent(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    sent = job(
        bytes(range(256)) * 10,
        type="order.created",
        content_type="application/octet-stream",
        content_encoding="identity",
        correlation_id="c-1",
        group="a",
        source="/somewhere",
        topic="order/eu",
        idempotency_key="k-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        headers=(("tenant", "a"), ("user-agent", "curl/8 (x; y)")),
    )
    empty = job(b"")
    await enqueue(broker_under_test, queue, sent, empty)
    seen = await Eyes(broker_under_test.log(queue), End.FIRST).see(2)
    assert [entry.job for entry in seen] == [sent, empty]


async def test_a_reading_goes_on_with_what_comes(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    eyes = Eyes(broker_under_test.log(queue), End.FIRST)
    await enqueue(broker_under_test, queue, *messages(3))
    await eyes.see(3)
    await enqueue(broker_under_test, queue, *messages(3, first=3))
    await eyes.see(6)
    assert eyes.payloads == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_two_readings_from_different_positions_do_not_disturb_each_other(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(100))
    whole = Eyes(broker_under_test.log(queue), End.FIRST)
    part = Eyes((await another_client()).log(queue), 60)
    await whole.see(100)
    await part.see(40)
    await enqueue(broker_under_test, queue, *messages(10, first=100))
    await whole.see(110)
    await part.see(50)
    assert whole.offsets == list(range(110))
    assert part.offsets == list(range(60, 110))


@pytest.mark.parametrize(
    ("start", "first"),
    [(End.FIRST, 0), (End.LAST, 29), (0, 0), (17, 17), (29, 29), (30, 30), (Moment(0), 0)],
)
async def test_a_reading_begins_where_it_is_told(
    broker_under_test: Broker, start: Position, first: int
) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(30))
    eyes = Eyes(broker_under_test.log(queue), start)
    await eyes.see(30 - first)
    await asyncio.sleep(QUIET)
    await enqueue(broker_under_test, queue, *messages(5, first=30))
    await eyes.see(35 - first)
    assert eyes.offsets == list(range(first, 35))


async def test_next_is_what_comes_from_now_on(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(30))
    eyes = Eyes(broker_under_test.log(queue), End.NEXT)
    for number in range(30, 400):
        await enqueue(broker_under_test, queue, *messages(1, first=number))
        if eyes.seen:
            break
        await asyncio.sleep(0.05)
    assert eyes.offsets[0] >= 30
    assert eyes.offsets == list(range(eyes.offsets[0], eyes.offsets[-1] + 1))


async def test_a_moment_is_the_first_message_that_is_not_older(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    begun = now_ms() - 50
    sent = [job(b"x", enqueued_at=begun + number, time=begun + number) for number in range(50)]
    await enqueue(broker_under_test, queue, *sent)
    log = broker_under_test.log(queue)
    eyes = Eyes(log, Moment(begun + 20))
    await eyes.see(30)
    assert eyes.offsets == list(range(20, 50))
    assert await log.seek("audit", Moment(begun + 33)) == 33
    assert await log.seek("audit", Moment(begun - 86_400_000)) == 0
    assert await log.seek("audit", Moment(now_ms() + 3_600_000)) == 50


async def test_a_stream_without_messages_can_be_read_from_anywhere(
    broker_under_test: Broker,
) -> None:
    queue = await stream(broker_under_test)
    log = broker_under_test.log(queue)
    assert await log.span() == (0, 0)
    positions: list[Position] = [End.FIRST, End.LAST, End.NEXT, 0]
    assert [await log.seek("audit", position) for position in positions] == [0, 0, 0, 0]
    all_eyes = [Eyes(log, position) for position in (End.FIRST, End.LAST, 0)]
    await asyncio.sleep(QUIET)
    assert await log.span() == (0, 0)  # as long a way to the broker as theirs, begun later
    await enqueue(broker_under_test, queue, *messages(3))
    for eyes in all_eyes:
        await eyes.see(3)
        assert eyes.offsets == [0, 1, 2]


async def test_no_more_comes_than_is_wanted_ahead(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(100))
    eyes = Eyes(broker_under_test.log(queue), End.FIRST, ahead=10)
    await eyes.see(10)
    await asyncio.sleep(QUIET)
    assert len(eyes.seen) == 10
    eyes.reading.done(3)
    await eyes.see(13)
    await asyncio.sleep(QUIET)
    assert len(eyes.seen) == 13
    eyes.reading.done(10)
    await eyes.see(23)
    assert eyes.offsets == list(range(23))


async def test_a_long_stream_is_read_with_little_ahead(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    count = scaled(20_000)
    for start in range(0, count, 500):
        await enqueue(broker_under_test, queue, *messages(500, first=start))
    eyes = Eyes(broker_under_test.log(queue), End.FIRST, ahead=100)
    finished = 0
    while finished < count:
        await eyes.see(finished + 1)
        finished, before = len(eyes.seen), finished
        assert finished - before <= 100
        eyes.reading.done(finished - before)
    assert eyes.payloads == [str(number).encode() for number in range(count)]


async def test_a_closed_reading_reads_no_further(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(10))
    log = broker_under_test.log(queue)
    closed, open_one = Eyes(log, End.FIRST), Eyes(log, End.FIRST)
    await closed.see(10)
    await closed.reading.close()
    await closed.reading.close()
    await enqueue(broker_under_test, queue, *messages(10, first=10))
    await open_one.see(20)
    assert len(closed.seen) == 10


async def test_a_subscribed_stream_keeps_what_comes_by_topic(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test, subscriptions=[{"topic": "order/+"}])
    sent = job(b"by topic", topic="order/eu")
    assert await publish(broker_under_test, Topic("shop", sent)) == [Verdict.CONFIRMED]
    assert await publish(broker_under_test, Main(queue, job(b"direct"))) == [Verdict.CONFIRMED]
    by_topic, direct = await Eyes(broker_under_test.log(queue), End.FIRST).see(2)
    assert (by_topic.job.payload, by_topic.job.topic) == (b"by topic", "order/eu")
    assert (direct.job.payload, direct.job.topic) == (b"direct", None)


async def test_the_depth_of_a_stream_is_what_its_log_holds(broker_under_test: Broker) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(20))
    eyes = Eyes(broker_under_test.log(queue), End.FIRST)
    await eyes.see(20)
    await answer(lambda: broker_under_test.depth(queue), lambda depth: depth == (20, 0, 0, 0))


async def test_the_span_of_a_stream_is_from_its_oldest_message_to_the_next(
    broker_under_test: Broker,
) -> None:
    queue = await stream(broker_under_test)
    log = broker_under_test.log(queue)
    await enqueue(broker_under_test, queue, *messages(1))
    assert await log.span() == (0, 1)
    await enqueue(broker_under_test, queue, *messages(1499, first=1))
    assert await log.span() == (0, 1500)


async def test_what_is_past_the_retention_is_gone_and_readers_go_on(
    broker_under_test: Broker,
) -> None:
    queue = await stream(broker_under_test, stream={"maxBytes": "1Mi"})
    log = broker_under_test.log(queue)
    await enqueue(broker_under_test, queue, *heavy(100))
    slow = Eyes(log, End.FIRST, ahead=10)
    await slow.see(10)
    count = 100
    while (await log.span())[0] == 0:
        assert count < 4000, "nothing went"
        await enqueue(broker_under_test, queue, *heavy(100, first=count))
        count += 100
    oldest, following = await log.span()
    old = Eyes(log, 0)
    await eventually(lambda: old.numbers[-1:] == [count - 1], "it was read to its end")
    assert oldest <= old.offsets[0] <= (await log.span())[0]
    assert old.offsets[-1] + 1 == following
    assert old.numbers == list(range(old.numbers[0], count))
    assert old.numbers[0] > 0
    assert old.offsets[0] <= await log.seek("audit", 0) <= (await log.span())[0]
    slow.reading.done(10_000)
    await eventually(lambda: slow.numbers[-1] == count - 1, "the slow one came to the end")
    assert slow.numbers == sorted(set(slow.numbers))
    assert set(old.numbers) <= {*slow.numbers}


async def test_a_group_reads_on_where_it_committed_whoever_asks(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(100))
    here, there = broker_under_test.log(queue), (await another_client()).log(queue)
    assert await here.cursor("audit") is None
    assert await there.groups() == {}
    for cursor in (1, 40, 41):
        await here.commit("audit", cursor)
        assert await there.cursor("audit") == cursor
    await there.commit("billing", 7)
    assert await here.groups() == {"audit": 41, "billing": 7}
    assert await (await another_client()).log(queue).groups() == {"audit": 41, "billing": 7}
    assert await here.cursor("nobody") is None


async def test_a_commit_that_comes_late_moves_no_group_back(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(10))
    here, there = broker_under_test.log(queue), (await another_client()).log(queue)
    await here.commit("audit", 8)
    await there.commit("audit", 5)
    assert await here.cursor("audit") == 8
    assert await there.cursor("audit") == 8
    assert await there.seek("audit", 3) == 3
    assert await here.cursor("audit") == 3
    await here.commit("audit", 4)
    assert await there.cursor("audit") == 4


async def test_the_cursors_of_many_groups_outlast_many_commits(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await stream(broker_under_test)
    log = broker_under_test.log(queue)
    await asyncio.gather(*(log.commit(f"group-{number}", number) for number in range(150)))
    for cursor in range(1, 400):
        await log.commit("busy", cursor)
    expected = {f"group-{number}": number for number in range(150)} | {"busy": 399}
    assert await (await another_client()).log(queue).groups() == expected


async def test_a_group_is_sought_to_any_position(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(1200))
    here, there = broker_under_test.log(queue), (await another_client()).log(queue)
    wanted: list[tuple[Position, int]] = [
        (End.NEXT, 1200),
        (End.FIRST, 0),
        (End.LAST, 1199),
        (500, 500),
        (1200, 1200),
        (10**14, 1200),
    ]
    for position, cursor in wanted:
        assert await here.seek("audit", position) == cursor
        assert await there.cursor("audit") == cursor
    assert await there.cursor("billing") is None


async def test_one_holder_at_a_time_reads_for_a_group(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(50))
    here, there = broker_under_test.log(queue), (await another_client()).log(queue)
    first, second = Reader(), Reader()
    hold = here.hold("audit", first)
    await first.hears(("granted", None))
    waiting = there.hold("audit", second)
    await here.commit("audit", 17)
    await asyncio.sleep(QUIET)
    assert second.told == []
    await hold.release()
    await second.hears(("granted", 17))
    await waiting.release()
    assert first.told == [("granted", None)]
    assert second.told == [("granted", 17)]


async def test_groups_are_held_apart(broker_under_test: Broker, another_client: Place) -> None:
    queue = await stream(broker_under_test)
    here, there = broker_under_test.log(queue), (await another_client()).log(queue)
    await here.commit("billing", 3)
    audit, billing = Reader(), Reader()
    here.hold("audit", audit)
    there.hold("billing", billing)
    await audit.hears(("granted", None))
    await billing.hears(("granted", 3))


async def test_a_wish_that_was_given_up_is_never_granted(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await stream(broker_under_test)
    here, there = broker_under_test.log(queue), (await another_client()).log(queue)
    first, gone, last = Reader(), Reader(), Reader()
    hold = here.hold("audit", first)
    await first.hears(("granted", None))
    wish = there.hold("audit", gone)
    there.hold("audit", last)
    await wish.release()
    await hold.release()
    await last.hears(("granted", None))
    assert gone.told == []


async def test_a_holder_is_told_when_somebody_seeks_and_only_then(
    broker_under_test: Broker, another_client: Place
) -> None:
    queue = await stream(broker_under_test)
    await enqueue(broker_under_test, queue, *messages(50))
    here, there = broker_under_test.log(queue), (await another_client()).log(queue)
    holder, waiting = Reader(), Reader()
    hold: Hold = here.hold("audit", holder)
    await holder.hears(("granted", None))
    there.hold("audit", waiting)
    await here.commit("audit", 20)
    await there.commit("audit", 21)
    await there.seek("billing", 1)
    await there.seek("audit", End.FIRST)
    await holder.hears(("granted", None), ("moved", 0))
    await here.seek("audit", End.NEXT)
    await holder.hears(("granted", None), ("moved", 0), ("moved", 50))
    await hold.release()
    await waiting.hears(("granted", 50))
    assert len(holder.told) == 3
