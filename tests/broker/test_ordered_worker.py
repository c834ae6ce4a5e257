"""A FIFO queue with an app beside it: order within a group holds through every kind of failure."""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pytest

from broker.port.play import answer, declare, enqueue, eventually, job, named_queue, redrive
from broker.test_rabbitmq_adapter import ended_connections
from fixtures.adapters import Place, rabbitmq_client
from fixtures.punctual import check_lateness
from fixtures.told import FAILED, OK, QUICK, WRONG, Told
from namedqueue.envelope import Job
from namedqueue.outcomes import Answer, Attempted
from namedqueue_sidecar.app.port import Call
from namedqueue_sidecar.brokers.port import Broker, QueueKey
from namedqueue_sidecar.consuming import ordered
from namedqueue_sidecar.consuming.ordered import OrderedWorker
from namedqueue_sidecar.consuming.workplace import Workplace
from testbed import rabbitmq


class Seen(NamedTuple):
    """A call as the app saw it."""

    id: str
    group: str
    attempt: int
    at: float


def see(call: Call) -> Seen:
    headers, now = call.headers, asyncio.get_running_loop().time()
    return Seen(headers["ce-id"], headers.get("NQ-Group", ""), int(headers["NQ-Attempt"]), now)


class Handler(Told[Seen]):
    """An app that handles jobs of groups."""

    def __init__(self) -> None:
        super().__init__(see)

    @property
    def finished(self) -> list[str]:
        return [seen.id for seen in self.processed]

    def attempts(self, sent: Job) -> list[int]:
        return [seen.attempt for seen in self.seen if seen.id == sent.id]


class Counting(OrderedWorker):
    """A worker that counts its losses."""

    losses = 0

    def lost(self) -> None:
        self.losses += 1
        super().lost()


class Stand(NamedTuple):
    """A queue, an app and the worker between them."""

    broker: Broker
    queue: QueueKey
    app: Handler
    worker: Counting

    async def left(self) -> int:
        """Wait until nothing is ready or in flight; return how many are dead."""
        depth = await answer(
            lambda: self.broker.depth(self.queue),
            lambda depth: depth is not None and not any(depth[:3]),
        )
        assert depth is not None
        return depth.dead


SetUp: TypeAlias = Callable[..., Awaitable[Stand]]


@pytest.fixture
async def running() -> AsyncIterator[AsyncExitStack]:
    """Give what takes workers down before their broker."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def set_up(broker_under_test: Broker, running: AsyncExitStack) -> SetUp:
    """Start workers of one FIFO queue, each with an app unless it is given one."""

    async def begin(
        broker: Broker | None = None,
        app: Handler | None = None,
        worker: dict[str, Any] | None = None,
        **spec: Any,
    ) -> Stand:
        return await standing(running, broker or broker_under_test, app or Handler(), worker, spec)

    return begin


async def standing(
    running: AsyncExitStack,
    broker: Broker,
    app: Handler,
    worker: dict[str, Any] | None,
    spec: dict[str, Any],
) -> Stand:
    wanted: dict[str, Any] = {
        "durable": {"fifo": {"groupBy": "body.group", "partitions": 3}},
        "retry": QUICK,
        "worker": {"port": 8080, "path": "/jobs"} | (worker or {}),
    } | spec
    queue = await declare(broker, **wanted)
    consuming = Counting(Workplace(named_queue(**wanted), broker, app))
    consuming.start()
    running.push_async_callback(consuming.drain, 1.0)
    return Stand(broker, queue, app, consuming)


def jobs_of(groups: int, each: int) -> list[Job]:
    """Return jobs of so many groups in turn."""
    return [job(group=f"g-{n}") for _ in range(each) for n in range(groups)]


def in_order(sent: list[Job], ids: list[str]) -> bool:
    """Tell whether the first finish of each job was in the order of its group."""
    expected, found = defaultdict(list), defaultdict(list)
    group_of = {each.id: each.group for each in sent}
    for each in sent:
        expected[each.group].append(each.id)
    for one in dict.fromkeys(ids):
        found[group_of[one]].append(one)
    return expected == found


async def test_a_group_waits_for_its_failed_job_and_the_others_go_on(set_up: SetUp) -> None:
    stand = await set_up(retry=QUICK | {"maxAttempts": 100})
    bad, *rest = sent = jobs_of(groups=1, each=5)
    others = [job(group=f"o-{n % 7}") for n in range(50)]
    stand.app.reply = lambda seen: FAILED if seen.id == bad.id else OK
    await enqueue(stand.broker, stand.queue, *sent, *others)
    await eventually(lambda: len(stand.app.finished) == 50, "the other groups are done")
    await eventually(lambda: len(stand.app.attempts(bad)) > 2, "it is tried again")
    assert not any(stand.app.attempts(each) for each in rest)
    stand.app.reply = lambda _: OK
    await eventually(lambda: len(stand.app.finished) == 55, "its group goes on")
    assert in_order(sent + others, stand.app.finished)
    assert stand.app.attempts(bad) == list(range(1, len(stand.app.attempts(bad)) + 1))
    assert stand.app.overlaps == 0
    assert await stand.left() == 0


async def test_a_job_is_tried_again_after_its_delay(set_up: SetUp) -> None:
    stand = await set_up(retry=QUICK | {"multiplier": 2})
    stand.app.reply = lambda seen: OK if seen.attempt == 3 else FAILED

    async def lateness() -> list[float]:
        await enqueue(stand.broker, stand.queue, sent := job(group="a"))
        await eventually(lambda: sent.id in stand.app.finished, "the third attempt")
        at = [seen.at for seen in stand.app.seen if seen.id == sent.id]
        gaps = [later - earlier for earlier, later in itertools.pairwise(at)]
        return [gap - wanted for gap, wanted in zip(gaps, (0.25, 0.5), strict=True)]

    await check_lateness(lateness)


async def test_a_job_that_fails_for_good_is_dead_lettered_and_its_group_goes_on(
    set_up: SetUp,
) -> None:
    stand = await set_up()
    tired, wrong, good = sent = jobs_of(groups=1, each=3)
    replies = {tired.id: FAILED, wrong.id: WRONG}
    stand.app.reply = lambda seen: replies.get(seen.id, OK)
    await enqueue(stand.broker, stand.queue, *sent)
    await eventually(lambda: stand.app.finished == [good.id], "the last one is done")
    assert [stand.app.attempts(each) for each in sent] == [[1, 2, 3], [1], [1]]
    letters = stand.broker.dead_letters(stand.queue)
    found = await letters.find(tired.id)
    assert found is not None
    assert found.reason.code == "HTTP_500"
    assert [record.attempt for record in found.job.history.records] == [1, 2, 3]
    assert await stand.left() == 2
    stand.app.reply = lambda _: OK
    assert await redrive(letters) == 2
    await eventually(lambda: len(stand.app.finished) == 3, "the redriven are done")
    assert await stand.left() == 0


async def test_a_payload_against_the_schema_never_reaches_the_app(set_up: SetUp) -> None:
    stand = await set_up(schema={"type": "object", "required": ["order"]})
    bad, good = job(b"{}", group="a"), job(b'{"order":1}', group="a")
    await enqueue(stand.broker, stand.queue, bad, good)
    await eventually(lambda: stand.app.finished == [good.id], "the good one is done")
    assert stand.app.attempts(bad) == []
    assert await stand.left() == 1


async def test_retry_after_is_obeyed_and_uses_no_attempt(set_up: SetUp) -> None:
    stand = await set_up(retry=QUICK | {"maxAttempts": 2})
    patience = Answer(429, retry_after="0")
    calls = itertools.count()
    stand.app.reply = lambda _: patience if next(calls) < 4 else OK
    await enqueue(stand.broker, stand.queue, *(sent := jobs_of(groups=1, each=2)))
    await eventually(lambda: len(stand.app.finished) == 2, "both are done")
    assert stand.app.attempts(sent[0]) == [1] * 5
    assert in_order(sent, stand.app.finished)


async def test_while_the_app_is_away_no_attempt_is_used_and_order_is_kept(set_up: SetUp) -> None:
    stand = await set_up()
    stand.app.there = False
    await enqueue(stand.broker, stand.queue, *(sent := jobs_of(groups=4, each=5)))
    await eventually(lambda: not stand.worker.gate.is_open, "the absence is known")
    stand.app.there = True
    await eventually(lambda: len(stand.app.finished) == 20, "all are done")
    assert in_order(sent, stand.app.finished)
    assert {seen.attempt for seen in stand.app.seen} == {1}


async def test_another_takes_over_from_one_whose_app_stays_away(
    set_up: SetUp, another_client: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered, "LONGEST_ABSENCE", 0.3)
    stand = await set_up()
    await eventually(lambda: stand.worker.gate.is_open, "it works")
    stand.app.there = False
    sent = jobs_of(groups=5, each=6)
    await enqueue(stand.broker, stand.queue, *sent)
    other = await set_up(await another_client(), Handler())
    await eventually(lambda: len(other.app.finished) == 30, "the other one did it all")
    assert in_order(sent, other.app.finished)
    assert stand.app.finished == []


async def test_as_many_groups_run_at_once_as_the_concurrency_allows(set_up: SetUp) -> None:
    stand = await set_up(worker={"concurrency": 4})
    stand.app.may_answer.clear()
    await enqueue(stand.broker, stand.queue, *jobs_of(groups=10, each=3))
    await eventually(lambda: len(stand.app.running) == 4, "four run")
    assert len(stand.worker.flights) == 4
    stand.app.may_answer.set()
    await eventually(lambda: len(stand.app.finished) == 30, "all are done")
    assert stand.app.most == 4
    assert stand.app.overlaps == 0


async def test_a_rate_limit_is_kept(set_up: SetUp) -> None:
    stand = await set_up(worker={"rateLimit": {"requests": 20, "per": "1s"}})
    await enqueue(stand.broker, stand.queue, *(sent := jobs_of(groups=10, each=6)))
    await eventually(lambda: len(stand.app.finished) == 60, "all are done")
    assert stand.app.seen[-1].at - stand.app.seen[0].at >= 1.5
    assert in_order(sent, stand.app.finished)


async def test_a_drain_loses_nothing_and_the_next_worker_goes_on_in_order(
    set_up: SetUp, another_client: Place
) -> None:
    stand = await set_up(worker={"concurrency": 3})
    sent = jobs_of(groups=10, each=20)
    broken = {each.id for each in sent[::9]}
    tried: Counter[str] = Counter()

    def reply(seen: Seen) -> Attempted:
        tried[seen.id] += 1
        return FAILED if seen.id in broken and tried[seen.id] == 1 else OK

    stand.app.reply = reply
    await enqueue(stand.broker, stand.queue, *sent)
    await eventually(lambda: len(stand.app.finished) > 40, "work is under way")
    await stand.worker.drain(patience=10.0)
    assert len(stand.app.finished) < 200
    await set_up(await another_client(), stand.app)
    await eventually(lambda: len(stand.app.finished) == 200, "the rest is done")
    assert in_order(sent, stand.app.finished)
    assert stand.app.overlaps == 0
    assert await stand.left() == 0


async def test_jobs_of_strangers_have_the_group_that_is_found_in_them(set_up: SetUp) -> None:
    stand = await set_up()
    sent = [job(b'{"group":%d}' % (number % 3)) for number in range(30)]
    sent += [job(b"nothing to be found") for _ in range(5)]
    await enqueue(stand.broker, stand.queue, *sent)
    await eventually(lambda: len(stand.app.finished) == 35, "all are done")
    assert {seen.group for seen in stand.app.seen} == {"0", "1", "2", ""}
    named = [each._replace(group=str(n % 3) if n < 30 else "") for n, each in enumerate(sent)]
    assert in_order(named, stand.app.finished)
    assert stand.app.overlaps == 0


def _more(worker: Counting, losses: int) -> bool:
    return worker.losses > losses


async def test_a_lost_connection_runs_nothing_twice_and_keeps_the_order(
    broker: rabbitmq.Broker, vhost: str, running: AsyncExitStack
) -> None:
    client = rabbitmq_client(broker, vhost)
    running.push_async_callback(client.close)
    await client.open()
    stand = await standing(running, client, Handler(), {"concurrency": 4}, {})
    sent = jobs_of(groups=6, each=10)
    stand.app.may_answer.clear()
    tried: Counter[str] = Counter()

    def reply(seen: Seen) -> Attempted:
        tried[seen.id] += 1
        return FAILED if seen.id == sent[0].id and tried[seen.id] == 1 else OK

    stand.app.reply = reply
    await enqueue(client, stand.queue, *sent)
    await eventually(lambda: len(stand.app.running) == 4, "four are under way")
    for _ in range(2):
        known = stand.worker.losses
        await ended_connections(broker, vhost)
        await eventually(partial(_more, stand.worker, known), "the loss is known")
    stand.app.may_answer.set()
    await eventually(lambda: len(stand.app.finished) >= 60, "all are done")
    assert await stand.left() == 0
    assert in_order(sent, stand.app.finished)
    assert stand.app.overlaps == 0
    assert Counter(stand.app.finished) == {each.id: 1 for each in sent}
    assert stand.app.attempts(sent[0]) == [1, 2]
