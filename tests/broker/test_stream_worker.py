"""A stream with an app beside it: each group gets it in order, from its own place, with no gap."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import pytest

from broker.port.play import answer, declare, enqueue, eventually, job, named_queue, publish
from fixtures.adapters import Place
from fixtures.told import FAILED, OK, QUICK, WRONG, Told
from namedqueue.outcomes import Answer
from namedqueue.positions import End
from namedqueue_sidecar.app.port import Call
from namedqueue_sidecar.brokers.port import Broker, QueueKey, Topic, Verdict
from namedqueue_sidecar.consuming import streaming
from namedqueue_sidecar.consuming.streaming import StreamWorker
from namedqueue_sidecar.consuming.workplace import Workplace

AUDIT = {"group": "audit"}


class Seen(NamedTuple):
    """A call as the app saw it."""

    group: str
    offset: int
    attempt: int
    body: bytes
    at: float


def see(call: Call) -> Seen:
    headers, now = call.headers, asyncio.get_running_loop().time()
    group, offset = headers["NQ-Stream-Group"], int(headers["NQ-Offset"])
    return Seen(group, offset, int(headers["NQ-Attempt"]), call.body, now)


class Listener(Told[Seen]):
    """An app that follows a stream for some groups."""

    def __init__(self) -> None:
        super().__init__(see)

    def offsets(self, group: str = "audit") -> list[int]:
        """Return what a group was given, in order, repetitions included."""
        return [seen.offset for seen in self.seen if seen.group == group]

    async def sees(self, group: str, offset: int) -> None:
        """Wait until a group got a message."""
        await eventually(lambda: offset in self.offsets(group), f"{group} came to {offset}")


class Stand(NamedTuple):
    """A stream, an app and the worker between them."""

    broker: Broker
    queue: QueueKey
    app: Listener
    worker: StreamWorker

    async def cursor(self, wanted: int, group: str = "audit") -> None:
        """Wait until a group has committed this cursor."""
        log = self.broker.log(self.queue)
        await answer(lambda: log.cursor(group), lambda cursor: cursor == wanted)

    async def update(self, *consumers: dict[str, Any], **spec: Any) -> None:
        """Change the manifest, as a plane does: on the broker first."""
        await declare(self.broker, **fields(*consumers, **spec))
        self.worker.update(manifest(*consumers, **spec), 1.0)


SetUp: TypeAlias = Callable[..., Awaitable[Stand]]


def fields(*consumers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    worker = {"port": 8080} | spec.pop("worker", {})
    stream = {"consumers": [*consumers]} | spec.pop("stream", {})
    return {"type": "stream", "stream": stream, "worker": worker, "retry": QUICK} | spec


def manifest(*consumers: dict[str, Any], **spec: Any) -> Any:
    return named_queue(**fields(*consumers, **spec))


@pytest.fixture
async def set_up(place: Place) -> AsyncIterator[SetUp]:
    """Give a way to set a stream with its worker up; each call is one more pod."""
    stands: list[Stand] = []

    async def build(*consumers: dict[str, Any], messages: int = 0, **spec: Any) -> Stand:
        broker = await place()
        queue = await declare(broker, **fields(*consumers, **spec))
        if messages:
            await send(broker, queue, messages)
        app = Listener()
        stands.append(
            Stand(
                broker,
                queue,
                app,
                StreamWorker(Workplace(manifest(*consumers, **spec), broker, app)),
            )
        )
        stands[-1].worker.start()
        return stands[-1]

    yield build
    for stand in stands:
        await stand.worker.drain(0)


async def send(broker: Broker, queue: QueueKey, count: int, first: int = 0) -> None:
    jobs = [job(str(number).encode()) for number in range(first, first + count)]
    await enqueue(broker, queue, *jobs)


async def test_a_stream_is_replayed_by_two_groups_from_different_positions(set_up: SetUp) -> None:
    stand = await set_up(
        {"group": "audit", "from": "first"}, {"group": "billing", "from": 30}, messages=50
    )
    await stand.app.sees("audit", 49)
    await stand.app.sees("billing", 49)
    await send(stand.broker, stand.queue, 10, first=50)
    await stand.app.sees("audit", 59)
    await stand.app.sees("billing", 59)
    assert stand.app.offsets("audit") == list(range(60))
    assert stand.app.offsets("billing") == list(range(30, 60))
    assert [seen.body for seen in stand.app.seen if seen.group == "audit"] == [
        str(number).encode() for number in range(60)
    ]
    assert stand.app.overlaps == 0
    await stand.cursor(60, "audit")
    await stand.cursor(60, "billing")


async def test_the_same_messages_are_work_for_a_queue_and_history_for_a_stream(
    set_up: SetUp,
) -> None:
    """Two queues with overlapping topics, as the seed has it: one for work, one for replay."""
    stand = await set_up(AUDIT, subscriptions=[{"topic": "order/#"}])
    work = await declare(stand.broker, "work", subscriptions=[{"topic": "order/+/created"}])
    topics = ["order/eu/created", "order/eu/cancelled", "order/us/created"]
    for topic in topics:
        sent = job(topic.encode(), topic=topic)
        assert await publish(stand.broker, Topic("shop", sent)) == [Verdict.CONFIRMED]
    await stand.app.sees("audit", 2)
    assert [seen.body.decode() for seen in stand.app.seen] == topics
    depth = await answer(lambda: stand.broker.depth(work), lambda it: bool(it and it.ready == 2))
    assert depth == (2, 0, 0, 0)
    assert await stand.broker.log(stand.queue).seek("audit", End.FIRST) == 0
    await eventually(lambda: stand.app.offsets() == [0, 1, 2, 0, 1, 2], "it was replayed")
    assert await stand.broker.depth(work) == (2, 0, 0, 0)


async def test_a_failed_message_is_retried_in_place_and_the_group_waits(set_up: SetUp) -> None:
    stand = await set_up(AUDIT, {"group": "billing"}, retry=QUICK | {"delay": "1s"})
    stand.app.reply = lambda seen: (
        FAILED if (seen.group, seen.offset) == ("audit", 2) and seen.attempt < 3 else OK
    )
    await send(stand.broker, stand.queue, 2)
    for group in ("audit", "billing"):
        await stand.app.sees(group, 1)
    await send(stand.broker, stand.queue, 3, first=2)
    for group in ("billing", "audit"):
        await stand.app.sees(group, 4)
    assert stand.app.offsets() == [0, 1, 2, 2, 2, 3, 4]
    tries = [seen for seen in stand.app.seen if seen.group == "audit" and seen.offset == 2]
    assert [seen.attempt for seen in tries] == [1, 2, 3]
    assert all(late.at - soon.at >= 1.0 for soon, late in pairwise(tries))
    assert stand.app.offsets("billing") == [0, 1, 2, 3, 4]
    others = [seen.at for seen in stand.app.seen if seen.group == "billing"]
    assert others[-1] < tries[-1].at, "the other group waited"


async def test_patience_asked_for_by_the_app_uses_no_attempt(set_up: SetUp) -> None:
    stand = await set_up(AUDIT)
    refusals = iter([Answer(429, retry_after="0"), Answer(503, retry_after="0")] * 3)
    stand.app.reply = lambda _: next(refusals, OK)
    await send(stand.broker, stand.queue, 2)
    await stand.app.sees("audit", 1)
    assert [seen.attempt for seen in stand.app.seen] == [1] * 8


async def test_a_group_that_halts_says_so_and_waits_for_a_seek(
    set_up: SetUp, caplog: pytest.LogCaptureFixture
) -> None:
    stand = await set_up({"group": "audit", "onError": "halt"}, {"group": "billing"})
    stand.app.reply = lambda seen: WRONG if (seen.group, seen.offset) == ("audit", 3) else OK
    with caplog.at_level(logging.ERROR):
        await send(stand.broker, stand.queue, 6)
        await eventually(lambda: bool(stand.worker.troubles), "it halts")
    [trouble] = stand.worker.troubles
    assert "group audit of shop/orders halts at offset 3" in trouble
    assert "HTTP_422" in trouble
    assert "nq streams seek orders audit 4" in trouble
    assert "group audit of shop/orders halts at offset 3" in caplog.text
    await stand.cursor(3)
    await stand.app.sees("billing", 5)
    assert stand.app.offsets() == [0, 1, 2, 3]
    assert await stand.broker.log(stand.queue).seek("audit", 4) == 4
    await stand.app.sees("audit", 5)
    assert stand.app.offsets() == [0, 1, 2, 3, 4, 5]
    assert stand.worker.troubles == []
    await stand.cursor(6)


async def test_a_group_that_halts_tries_again_when_its_manifest_changes(set_up: SetUp) -> None:
    stand = await set_up(AUDIT)
    stand.app.reply = lambda _: FAILED
    await send(stand.broker, stand.queue, 2)
    await eventually(lambda: bool(stand.worker.troubles), "it halts")
    assert [seen.attempt for seen in stand.app.seen] == [1, 2, 3]
    stand.app.reply = lambda _: OK
    await stand.update(AUDIT, worker={"timeout": "5s"})
    await stand.app.sees("audit", 1)
    assert stand.app.offsets() == [0, 0, 0, 0, 1]
    assert stand.app.seen[3].attempt == 1


async def test_a_group_that_skips_goes_on_and_names_what_it_skipped(
    set_up: SetUp, caplog: pytest.LogCaptureFixture
) -> None:
    stand = await set_up({"group": "audit", "onError": "skip"})
    stand.app.reply = lambda seen: WRONG if seen.offset in (1, 2) else OK
    with caplog.at_level(logging.WARNING):
        await send(stand.broker, stand.queue, 5)
        await stand.app.sees("audit", 4)
    assert stand.app.offsets() == [0, 1, 2, 3, 4]
    skipped = [record.getMessage() for record in caplog.records if "skipped" in record.message]
    assert [line.split(",")[0] for line in skipped] == [
        "group audit of shop/orders skipped offset 1",
        "group audit of shop/orders skipped offset 2",
    ]
    assert all("HTTP_422" in line for line in skipped)
    assert stand.worker.groups["audit"].tally.dead == 2
    await stand.cursor(5)


async def test_a_filter_lets_only_its_topics_through_and_the_cursor_goes_past_the_rest(
    set_up: SetUp,
) -> None:
    stand = await set_up({"group": "eu", "filter": "order/eu/#"}, {"group": "all", "filter": "#"})
    topics = ["order/us/new", "order/eu/new", None, "order/eu", "order/us/old", "order/us/gone"]
    await enqueue(stand.broker, stand.queue, *(job(b"{}", topic=topic) for topic in topics))
    await stand.app.sees("all", 5)
    await stand.cursor(6, "eu")
    assert stand.app.offsets("eu") == [1, 3]
    assert stand.app.offsets("all") == [0, 1, 2, 3, 4, 5]


async def test_a_filter_holds_for_what_came_after_a_seek_while_the_app_was_at_work(
    set_up: SetUp,
) -> None:
    stand = await set_up({"group": "audit", "filter": "order/eu/#"})
    topics = ["order/eu/new", "order/us/new", "order/eu/old"]
    stand.app.may_answer.clear()
    await enqueue(stand.broker, stand.queue, *(job(b"{}", topic=topic) for topic in topics))
    await stand.app.sees("audit", 0)
    await stand.broker.log(stand.queue).seek("audit", 1)
    group = stand.worker.groups["audit"]
    await eventually(lambda: [each.offset for each in group._entries] == [1, 2], "they came")
    stand.app.may_answer.set()
    await stand.cursor(3)
    assert stand.app.offsets() == [0, 2]


async def test_a_payload_that_violates_the_schema_never_reaches_the_app(set_up: SetUp) -> None:
    schema = {"type": "object", "required": ["order"]}
    stand = await set_up({"group": "audit", "onError": "skip"}, schema=schema)
    await enqueue(stand.broker, stand.queue, job(b"{}"), job(b"nonsense"), job(b'{"order":1}'))
    await stand.app.sees("audit", 2)
    assert stand.app.offsets() == [2]


async def test_while_the_app_is_away_nothing_is_counted_and_then_it_goes_on(
    set_up: SetUp,
) -> None:
    stand = await set_up(AUDIT)
    await send(stand.broker, stand.queue, 2)
    await stand.app.sees("audit", 1)
    stand.app.there = False
    await send(stand.broker, stand.queue, 2, first=2)
    await eventually(lambda: not stand.worker.gate.is_open, "the gate closed")
    stand.app.there = True
    await stand.app.sees("audit", 3)
    assert [(seen.offset, seen.attempt) for seen in stand.app.seen] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),
    ]


async def test_another_pod_goes_on_when_the_app_of_the_first_stays_away(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LONGEST_ABSENCE", 0.2)
    first = await set_up(AUDIT, messages=5)
    await first.cursor(5)
    second = await set_up(AUDIT)
    first.app.there = False
    await send(first.broker, first.queue, 5, first=5)
    await second.app.sees("audit", 9)
    assert second.app.offsets() == [5, 6, 7, 8, 9]
    assert first.app.offsets() == [0, 1, 2, 3, 4]


async def test_one_pod_at_a_time_follows_a_group_and_a_drain_hands_it_over(
    set_up: SetUp,
) -> None:
    first = await set_up(AUDIT, messages=20)
    await first.app.sees("audit", 19)
    second = await set_up(AUDIT)
    await send(first.broker, first.queue, 20, first=20)
    await first.app.sees("audit", 39)
    await first.worker.drain(30)
    await send(second.broker, second.queue, 20, first=40)
    await second.app.sees("audit", 59)
    assert first.app.offsets() == list(range(40))
    assert second.app.offsets() == list(range(40, 60)), "something was repeated or skipped"


async def test_a_drain_finishes_the_message_under_way_and_commits_it(set_up: SetUp) -> None:
    stand = await set_up(AUDIT)
    stand.app.may_answer.clear()
    await send(stand.broker, stand.queue, 5)
    await stand.app.sees("audit", 0)
    draining = asyncio.create_task(stand.worker.drain(30))
    await asyncio.sleep(0.05)
    assert not draining.done()
    stand.app.may_answer.set()
    await draining
    assert stand.app.offsets() == [0]
    assert await stand.broker.log(stand.queue).cursor("audit") == 1


async def test_what_a_drain_cannot_finish_is_not_committed(set_up: SetUp) -> None:
    stand = await set_up(AUDIT, messages=3)
    await stand.cursor(3)
    stand.app.may_answer.clear()
    await send(stand.broker, stand.queue, 2, first=3)
    await stand.app.sees("audit", 3)
    await stand.worker.drain(0.05)
    stand.app.may_answer.set()
    assert await stand.broker.log(stand.queue).cursor("audit") == 3
    again = await set_up(AUDIT)
    await again.app.sees("audit", 4)
    assert again.app.offsets() == [3, 4]


async def test_who_seeks_while_messages_fly_is_obeyed_at_once_and_in_order(
    set_up: SetUp,
) -> None:
    stand = await set_up(AUDIT, messages=200)
    log = stand.broker.log(stand.queue)
    await stand.app.sees("audit", 50)
    assert await log.seek("audit", 0) == 0
    await eventually(lambda: 0 in stand.app.offsets()[51:], "it began anew")
    await eventually(lambda: stand.app.offsets()[-1] == 199, "it came to the end")
    came = stand.app.offsets()
    turn = came.index(0, 1)
    assert came[:turn] == list(range(turn))
    assert came[turn:] == list(range(200))
    assert stand.app.overlaps == 0
    await stand.cursor(200)


async def test_an_attempt_under_way_at_a_seek_ends_unheard_before_the_next_begins(
    set_up: SetUp,
) -> None:
    stand = await set_up(AUDIT)
    stand.app.may_answer.clear()
    await send(stand.broker, stand.queue, 10)
    await stand.app.sees("audit", 0)
    assert await stand.broker.log(stand.queue).seek("audit", 7) == 7
    await eventually(lambda: stand.worker.groups["audit"].attempt is not None, "it flies")
    stand.app.may_answer.set()
    await stand.app.sees("audit", 9)
    assert stand.app.offsets() == [0, 7, 8, 9]
    assert stand.app.overlaps == 0
    await stand.cursor(10)


async def test_a_group_that_begins_with_what_comes_next_begins_there_also_in_the_next_process(
    set_up: SetUp,
) -> None:
    late = {"group": "late", "from": "next"}
    stand = await set_up(late, messages=10)
    await stand.cursor(10, "late")
    await stand.worker.drain(5)
    await send(stand.broker, stand.queue, 3, first=10)
    again = await set_up(late)
    await again.app.sees("late", 12)
    assert (stand.app.offsets("late"), again.app.offsets("late")) == ([], [10, 11, 12])


async def test_groups_come_and_go_with_the_manifest_and_keep_their_place(set_up: SetUp) -> None:
    stand = await set_up(AUDIT, messages=5)
    await stand.cursor(5)
    await stand.update({"group": "billing", "from": 3})
    await stand.app.sees("billing", 4)
    await send(stand.broker, stand.queue, 3, first=5)
    await stand.app.sees("billing", 7)
    assert stand.app.offsets() == [0, 1, 2, 3, 4]
    await stand.update({"group": "billing"}, AUDIT)
    await stand.app.sees("audit", 7)
    assert stand.app.offsets() == list(range(8))
    assert stand.app.offsets("billing") == [3, 4, 5, 6, 7]


async def test_groups_take_turns_where_there_are_fewer_slots(set_up: SetUp) -> None:
    groups = [{"group": f"g-{number}"} for number in range(4)]
    stand = await set_up(*groups, worker={"concurrency": 1})
    await send(stand.broker, stand.queue, 1)
    for group in groups:
        await stand.app.sees(group["group"], 0)
    stand.app.may_answer.clear()
    await send(stand.broker, stand.queue, 20, first=1)
    await eventually(
        lambda: sum(each.may_try for each in stand.worker.groups.values()) == len(groups) - 1,
        "all but one wait for their turn",
    )
    stand.app.may_answer.set()
    for group in groups:
        await stand.app.sees(group["group"], 20)
        assert stand.app.offsets(group["group"]) == list(range(21))
    assert stand.app.most == 1
    halfway = {seen.group for seen in stand.app.seen[:60] if seen.offset > 0}
    assert len(halfway) == len(groups), "one group had to wait for another to end"


async def test_the_pace_holds_for_a_stream(set_up: SetUp) -> None:
    stand = await set_up(AUDIT, worker={"rateLimit": {"requests": 10, "per": "1s"}})
    await send(stand.broker, stand.queue, 30)
    await stand.app.sees("audit", 29)
    assert stand.app.seen[-1].at - stand.app.seen[0].at >= 1.5
