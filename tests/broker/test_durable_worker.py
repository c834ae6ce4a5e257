"""A durable queue with an app beside it, from the first attempt to the last: the seeds' flows.

Each is told once and holds on every adapter.
"""

import asyncio
import itertools
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pytest
from aiohttp import web

from broker.port.play import answer, declare, enqueue, eventually, job, named_queue
from broker.test_rabbitmq_adapter import ended_connections
from fixtures.adapters import rabbitmq_client
from fixtures.punctual import EARLIEST, check_lateness
from namedqueue.deadletters import DeadLetterRecord
from namedqueue.envelope import Job
from namedqueue_sidecar.app.http import HttpApp
from namedqueue_sidecar.brokers.port import Broker, QueueKey
from namedqueue_sidecar.consuming.durable import DurableWorker
from namedqueue_sidecar.consuming.workplace import Workplace
from testbed import rabbitmq
from testbed.ports import free_ports

QUICK = {"maxAttempts": 4, "delay": "250ms", "multiplier": 2, "maxDelay": "2s", "jitter": 0}


@dataclass(frozen=True)
class Call:
    id: str
    attempt: int
    at: float
    body: bytes


Handler: TypeAlias = Callable[[Call], web.Response | Awaitable[web.Response]]


class TinyApp:
    """An app that only answers HTTP, and remembers what it was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.calls: list[Call] = []
        self.running: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.handler: Handler = lambda _: web.Response()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        server = web.Application()
        server.router.add_post("/jobs", self._take)
        self._runner = web.AppRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def attempts(self, sent: Job) -> list[Call]:
        return [call for call in self.calls if call.id == sent.id]

    async def _take(self, request: web.Request) -> web.Response:
        headers = request.headers
        body = await request.read()
        call = Call(headers["ce-id"], int(headers["NQ-Attempt"]), time.monotonic(), body)
        self.calls.append(call)
        self.running[call.id] += 1
        response = self.handler(call)
        if not isinstance(response, web.Response):
            response = await response
        self.running[call.id] -= 1
        self.finished[call.id] += 1
        return response


class Stand:
    """A queue, an app and the worker between them."""

    def __init__(self, broker: Broker, app: TinyApp, queue: QueueKey) -> None:
        self.broker, self.app, self.queue = broker, app, queue

    async def letter(self, sent: Job) -> DeadLetterRecord:
        letters = self.broker.dead_letters(self.queue)
        found = await answer(lambda: letters.find(sent.id), lambda found: found is not None)
        assert found is not None
        return found

    async def left(self) -> tuple[int, ...]:
        """Wait until no job is ready, in flight or waiting; return the depth."""
        depth = await answer(
            lambda: self.broker.depth(self.queue),
            lambda depth: depth is not None and not any(depth[:3]),
        )
        assert depth is not None
        return depth


SetUp: TypeAlias = Callable[..., Awaitable[tuple[Stand, DurableWorker]]]


@pytest.fixture
async def running() -> AsyncIterator[AsyncExitStack]:
    """Give what takes workers and apps down before their broker."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def set_up(broker_under_test: Broker, running: AsyncExitStack) -> SetUp:
    """Start a queue, an app and a worker on each adapter, and take them down in good order."""
    return partial(standing, running, broker_under_test)


async def standing(
    running: AsyncExitStack,
    broker: Broker,
    *,
    app_is_there: bool = True,
    worker: dict[str, Any] | None = None,
    **spec: Any,
) -> tuple[Stand, DurableWorker]:
    app = TinyApp(free_ports(1)[0])
    running.push_async_callback(app.stop)
    if app_is_there:
        await app.start()
    spec = {"retry": QUICK} | spec
    spec["worker"] = {"port": app.port, "path": "/jobs"} | (worker or {})
    queue = await declare(broker, **spec)
    http = HttpApp(app.port, None)
    running.push_async_callback(http.close)
    consuming = DurableWorker(Workplace(named_queue(**spec), broker, http))
    consuming.start()
    running.push_async_callback(consuming.drain, 1.0)
    return Stand(broker, app, queue), consuming


def failing(times: int, response: Callable[[], web.Response]) -> Handler:
    """Answer so many attempts of each job with a failure, and the rest with success."""
    seen: defaultdict[str, int] = defaultdict(int)

    def handle(call: Call) -> web.Response:
        seen[call.id] += 1
        return response() if seen[call.id] <= times else web.Response()

    return handle


def gaps(calls: list[Call]) -> list[float]:
    """Return the seconds between one attempt and the next."""
    return [later.at - earlier.at for earlier, later in itertools.pairwise(calls)]


async def test_a_job_that_fails_twice_is_retried_and_succeeds(set_up: SetUp) -> None:
    stand, _ = await set_up()
    stand.app.handler = failing(2, lambda: web.Response(status=500))
    await enqueue(stand.broker, stand.queue, sent := job(b'{"order":1}'))
    await eventually(lambda: len(stand.app.attempts(sent)) == 3, "three attempts")
    assert [call.attempt for call in stand.app.attempts(sent)] == [1, 2, 3]
    assert {call.body for call in stand.app.calls} == {sent.payload}
    assert (await stand.left())[3] == 0


async def test_delays_grow_are_capped_and_are_met_within_300_ms(set_up: SetUp) -> None:
    policy = QUICK | {"maxAttempts": 6, "maxDelay": "1s"}
    stand, _ = await set_up(retry=policy)
    stand.app.handler = failing(5, lambda: web.Response(status=503))

    async def lateness() -> list[float]:
        await enqueue(stand.broker, stand.queue, sent := job())
        await eventually(lambda: len(stand.app.attempts(sent)) == 6, "six attempts")
        delays = zip(gaps(stand.app.attempts(sent)), (0.25, 0.5, 1.0, 1.0, 1.0), strict=True)
        return [gap - wanted for gap, wanted in delays]

    await check_lateness(lateness)


async def test_no_job_waits_behind_the_delay_of_another(set_up: SetUp) -> None:
    stand, _ = await set_up(retry=QUICK | {"maxAttempts": 7, "maxDelay": "8s"})
    delays = {b"long": 4, b"middling": 2, b"short": 1}
    stand.app.handler = lambda call: (
        web.Response(status=500, headers={"Retry-After": str(delays[call.body])})
        if call.attempt == 1
        else web.Response()
    )

    async def lateness() -> list[float]:
        await enqueue(stand.broker, stand.queue, *(sent := [job(each) for each in delays]))
        tried = [partial(stand.app.attempts, each) for each in sent]
        await eventually(lambda: all(len(each()) == 2 for each in tried), "each came twice")
        return [
            gap - delays[each.payload] for each in sent for gap in gaps(stand.app.attempts(each))
        ]

    await check_lateness(lateness)


async def test_jitter_stretches_each_delay_by_a_part_of_itself(set_up: SetUp) -> None:
    stand, _ = await set_up(
        retry=QUICK | {"maxAttempts": 2, "delay": "1s", "maxDelay": "1s", "jitter": 1}
    )
    stand.app.handler = failing(1, lambda: web.Response(status=500))

    async def lateness() -> list[float]:
        await enqueue(stand.broker, stand.queue, *(sent := [job() for _ in range(20)]))
        tried = [partial(stand.app.attempts, each) for each in sent]
        await eventually(lambda: all(len(each()) == 2 for each in tried), "all came twice")
        found = [gap for each in tried for gap in gaps(each())]
        assert min(found) >= 1.0 + EARLIEST
        assert max(found) - min(found) > 0.2
        return [max(gap - 2.0, 0.0) for gap in found]

    await check_lateness(lateness)


async def test_a_job_that_never_succeeds_ends_as_a_dead_letter_with_its_history(
    set_up: SetUp,
) -> None:
    stand, _ = await set_up()
    problem = json.dumps({"code": "payment-declined", "detail": "no money"})
    stand.app.handler = lambda _: web.Response(
        status=500, text=problem, content_type="application/problem+json"
    )
    await enqueue(stand.broker, stand.queue, sent := job(b'{"order":2}'))
    record = await stand.letter(sent)
    assert len(stand.app.attempts(sent)) == 4
    document = record.document()
    assert document["attemptCount"] == 4
    assert document["terminalReasonCode"] == "PAYMENT_DECLINED"
    assert "after 4 attempts" in str(document["terminalReasonMessage"])
    assert [each.attempt for each in record.job.history.records] == [1, 2, 3, 4]
    assert {each.error_code for each in record.job.history.records} == {"PAYMENT_DECLINED"}
    assert document["payloadSnapshot"] == {"order": 2}
    assert await stand.left() == (0, 0, 0, 1)


async def test_a_permanent_failure_is_a_dead_letter_at_once(set_up: SetUp) -> None:
    stand, _ = await set_up()
    stand.app.handler = lambda _: web.Response(status=422)
    await enqueue(stand.broker, stand.queue, sent := job())
    record = await stand.letter(sent)
    assert record.reason.code == "HTTP_422"
    assert len(stand.app.attempts(sent)) == 1


async def test_a_payload_against_the_schema_never_reaches_the_app(set_up: SetUp) -> None:
    stand, _ = await set_up(schema={"type": "object", "required": ["order"]})
    await enqueue(stand.broker, stand.queue, bad := job(b"{}"), good := job(b'{"order":1}'))
    assert (await stand.letter(bad)).reason.code == "VALIDATION_ERROR"
    await eventually(lambda: len(stand.app.attempts(good)) == 1, "the good one came")
    assert stand.app.attempts(bad) == []


async def test_while_the_app_is_away_no_attempt_is_used(set_up: SetUp) -> None:
    stand, worker = await set_up(app_is_there=False)
    await enqueue(stand.broker, stand.queue, before := job())
    await stand.app.start()
    await eventually(lambda: len(stand.app.attempts(before)) == 1, "it came with the app")
    await stand.app.stop()
    await enqueue(stand.broker, stand.queue, *(meanwhile := [job() for _ in range(5)]))
    await eventually(lambda: not worker.gate.is_open, "the absence is known")
    await stand.app.start()
    await eventually(
        lambda: all(len(stand.app.attempts(each)) == 1 for each in meanwhile), "all came"
    )
    assert {call.attempt for call in stand.app.calls} == {1}
    assert (await stand.left())[3] == 0


async def test_retry_after_is_obeyed_and_uses_no_attempt(set_up: SetUp) -> None:
    stand, _ = await set_up(retry=QUICK | {"maxAttempts": 2})
    stand.app.handler = failing(3, lambda: web.Response(status=429, headers={"Retry-After": "1"}))

    async def lateness() -> list[float]:
        await enqueue(stand.broker, stand.queue, sent := job())
        await eventually(lambda: len(stand.app.attempts(sent)) == 4, "four calls")
        calls = stand.app.attempts(sent)
        assert {call.attempt for call in calls} == {1}
        assert min(gaps(calls)) >= 0.25 + EARLIEST
        return [max(gap - 1.0, 0.0) for gap in gaps(calls)]

    await check_lateness(lateness)
    assert (await stand.left())[3] == 0


@pytest.mark.parametrize("ends", ["after it came again", "before it comes again"])
async def test_a_job_under_way_when_the_connection_is_lost_is_not_run_twice(
    broker: rabbitmq.Broker, vhost: str, running: AsyncExitStack, ends: str
) -> None:
    client = rabbitmq_client(broker, vhost)
    await client.open()
    running.push_async_callback(client.close)
    stand, worker = await standing(running, client, worker={"timeout": "5m"})
    gate = asyncio.Event()

    async def slow(_: Call) -> web.Response:
        await gate.wait()
        return web.Response()

    stand.app.handler = slow
    await enqueue(stand.broker, stand.queue, *(sent := [job() for _ in range(5)]))
    await eventually(lambda: len(stand.app.calls) == 5, "all are under way")
    await ended_connections(broker, vhost)
    if ends == "after it came again":
        await eventually(lambda: flights_joined(worker), "all were joined with their copies")
    gate.set()
    assert await stand.left() == (0, 0, 0, 0)
    assert Counter(call.id for call in stand.app.calls) == {each.id: 1 for each in sent}


def flights_joined(worker: DurableWorker) -> bool:
    """Tell whether every job under way has come again by a later connection."""
    deliveries = [flight.delivery for flight in worker._flights]
    return all(delivery is not None and delivery.tag >> 48 >= 2 for delivery in deliveries)


async def test_a_drain_under_load_loses_nothing_and_counts_nothing(set_up: SetUp) -> None:
    stand, worker = await set_up(worker={"concurrency": 5})

    async def work(_: Call) -> web.Response:
        await asyncio.sleep(0.02)
        return web.Response()

    stand.app.handler = work
    jobs = [job() for _ in range(300)]
    await enqueue(stand.broker, stand.queue, *jobs)
    await eventually(lambda: len(stand.app.calls) > 50, "work is under way")
    await worker.drain(patience=10.0)
    done = set(stand.app.finished)
    assert sum(stand.app.running.values()) == 0
    assert len(done) < 300
    app = HttpApp(stand.app.port, None)
    spec: dict[str, Any] = {"retry": QUICK, "worker": {"port": stand.app.port, "path": "/jobs"}}
    successor = DurableWorker(Workplace(named_queue(**spec), stand.broker, app))
    successor.start()
    await eventually(lambda: len(stand.app.finished) == 300, "the rest is done")
    assert await stand.left() == (0, 0, 0, 0)
    await successor.drain(patience=10.0)
    await app.close()
    assert {call.attempt for call in stand.app.calls} == {1}
    assert set(Counter(call.id for call in stand.app.calls).values()) == {1}


async def test_what_cannot_finish_in_time_is_handed_back_uncounted(set_up: SetUp) -> None:
    stand, worker = await set_up()
    stuck = asyncio.Event()

    async def hang(_: Call) -> web.Response:
        await stuck.wait()
        return web.Response()

    stand.app.handler = hang
    await enqueue(stand.broker, stand.queue, job(), job())
    await eventually(lambda: len(stand.app.calls) == 2, "both are under way")
    await worker.drain(patience=0.2)
    depth = await answer(
        lambda: stand.broker.depth(stand.queue), lambda depth: depth == (2, 0, 0, 0)
    )
    assert depth is not None
    stuck.set()


async def test_no_more_jobs_run_at_once_than_the_concurrency_allows(set_up: SetUp) -> None:
    stand, _ = await set_up(worker={"concurrency": 3})
    most = 0

    async def work(_: Call) -> web.Response:
        nonlocal most
        most = max(most, sum(stand.app.running.values()))
        await asyncio.sleep(0.02)
        return web.Response()

    stand.app.handler = work
    await enqueue(stand.broker, stand.queue, *(job() for _ in range(60)))
    await eventually(lambda: len(stand.app.finished) == 60, "all are done")
    assert most == 3
