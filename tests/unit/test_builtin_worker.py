"""The worker of a durable queue on the builtin broker, with an app that answers as it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.port.play import (
    QUEUE,
    Hands,
    answer,
    enqueue,
    eventually,
    job,
    named_queue,
    publish,
    redrive,
)
from fixtures.builtin import opened
from namedqueue.outcomes import Answer
from namedqueue_sidecar.app.port import Call, Done
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Main, Publication, Settled, Verdict
from namedqueue_sidecar.consuming import durable
from namedqueue_sidecar.consuming.durable import DurableWorker
from namedqueue_sidecar.consuming.outbox import Outbox
from namedqueue_sidecar.consuming.workplace import Workplace

OK, FAILED, WRONG = Answer(200), Answer(500), Answer(422)


class Told:
    """An app that gives the answer it is told to give, when it is told to."""

    def __init__(self, reply: Callable[[Call], Answer]) -> None:
        self.reply = reply
        self.calls: list[Call] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def post(self, call: Call, done: Done) -> None:
        self.calls.append(call)
        asyncio.get_running_loop().create_task(self._answer(call, done))

    async def _answer(self, call: Call, done: Done) -> None:
        await self.may_answer.wait()
        done(self.reply(call))

    async def ready(self) -> bool:
        return True

    async def close(self) -> None:
        pass


@asynccontextmanager
async def working(broker: BuiltinBroker, app: Told, **spec: Any) -> AsyncIterator[DurableWorker]:
    """Give a worker of the queue that is drained at the end."""
    queue = named_queue(worker={"port": 8080, "path": "/jobs", "concurrency": 1}, **spec)
    await broker.declare(queue)
    worker = DurableWorker(Workplace(queue, broker, app))
    worker.start()
    try:
        yield worker
    finally:
        await worker.drain(patience=0)


async def test_a_job_is_retried_dead_lettered_redriven_and_done() -> None:
    app = Told(lambda _: FAILED)
    retry = {"maxAttempts": 3, "delay": "250ms", "multiplier": 1, "jitter": 0}
    async with opened() as broker, working(broker, app, retry=retry):
        await enqueue(broker, QUEUE, sent := job(b"payload"))
        letters = broker.dead_letters(QUEUE)
        letter = await answer(lambda: letters.find(sent.id), lambda found: found is not None)
        assert letter is not None
        assert letter.reason.code == "HTTP_500"
        assert [record.attempt for record in letter.job.history.records] == [1, 2, 3]
        app.reply = lambda _: OK
        assert await redrive(letters) == 1
        await answer(lambda: broker.depth(QUEUE), lambda depth: depth == (0, 0, 0, 0))
        await eventually(lambda: len(app.calls) == 4, "the app was called once more")
        assert {call.body for call in app.calls} == {b"payload"}


async def test_what_a_drain_handed_back_is_not_published_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[Publication] = []

    def refuse(batch: Sequence[Publication], settled: Settled) -> None:
        refused.extend(batch)
        settled([Verdict.UNKNOWN] * len(batch))

    app = Told(lambda _: FAILED)
    app.may_answer.clear()
    async with opened() as broker:
        async with working(broker, app) as worker:
            await enqueue(broker, QUEUE, job())
            await eventually(lambda: len(app.calls) == 1, "the app has it")
            with monkeypatch.context() as refusing:
                refusing.setattr(broker, "publish", refuse)
                app.may_answer.set()
                await eventually(lambda: bool(refused), "its retry does not arrive")
                await worker.drain(patience=0)
        outbox = worker._onward._outbox
        assert isinstance(outbox, Outbox)
        await eventually(lambda: len(outbox) == 0, "nobody tries any more")
        assert await broker.depth(QUEUE) == (1, 0, 0, 0)


async def test_a_retry_without_delay_does_not_wait_for_room_in_a_full_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its slot would wait for room, and the room for its slot, unless a quick app fetches ahead."""
    monkeypatch.setattr(durable, "QUICK", 0.0)
    app = Told(lambda _: FAILED)
    retry = {"maxAttempts": 2, "delay": "0ms", "maxDelay": "0ms"}
    async with opened() as broker, working(broker, app, retry=retry, durable={"maxLength": 1}):
        app.may_answer.clear()
        await enqueue(broker, QUEUE, job())
        await eventually(lambda: len(app.calls) == 1, "the first is in flight")
        verdicts = [Verdict.CONFIRMED]
        while verdicts == [Verdict.CONFIRMED]:
            verdicts = await publish(broker, Main(QUEUE, job()))
            await asyncio.sleep(0.01)
        assert verdicts == [Verdict.FULL]
        app.may_answer.set()
        depth = await answer(lambda: broker.depth(QUEUE), lambda d: d is not None and d.dead >= 2)
        assert depth is not None


async def test_what_a_worker_holds_goes_back_when_it_drains() -> None:
    app = Told(lambda _: OK)
    app.may_answer.clear()
    async with opened() as broker:
        async with working(broker, app):
            await enqueue(broker, QUEUE, job(), job(), job())
            await eventually(lambda: len(app.calls) == 1, "one is in flight")
        assert await broker.depth(QUEUE) == (3, 0, 0, 0)
        app.may_answer.set()
        hands = Hands()
        broker.subscribe(QUEUE, hands, prefetch=3)
        await hands.hold(3)
        assert {delivery.job.attempt for delivery in hands.came} == {1}
