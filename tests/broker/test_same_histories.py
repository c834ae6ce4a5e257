"""The builtin broker and RabbitMQ live through the same random histories and agree.

Each job brings the script of its own life: how the app answers each attempt, until it succeeds,
fails for good, or takes the worker down with it. Jobs are enqueued, tried, timed out, throttled,
crashed, expired, redriven and discarded on both brokers at once. Whenever both are quiet the app
must have seen the same attempts of each job, and each must have ended in the same place for the
same reason.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar
from uuid import uuid4

import hypothesis
import pytest
from aiohttp import web
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from broker.port.play import NAMESPACE, answer, named_queue
from fixtures.adapters import rabbitmq_client
from fixtures.planes import HOST, Stage, stage
from fixtures.scale import FULL
from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar.app.http import HttpApp
from namedqueue_sidecar.app.port import Call, Done
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Broker, QueueKey
from namedqueue_sidecar.consuming.durable import DurableWorker
from namedqueue_sidecar.consuming.workplace import Workplace
from testbed import rabbitmq

T = TypeVar("T")
Script: TypeAlias = list[str]
Ending: TypeAlias = tuple[str, int, int, int]

MAX_ATTEMPTS = 3
SILENCE = 2.0
LONGEST_HISTORY = 300.0
QUICK = {"maxAttempts": MAX_ATTEMPTS, "delay": "250ms", "multiplier": 1, "jitter": 0}
ANSWERS: dict[str, Callable[[], web.Response]] = {
    "succeed": web.Response,
    "fail": lambda: web.Response(status=500),
    "fail for good": lambda: web.Response(status=422),
    "throttle": lambda: web.Response(status=429, headers={"Retry-After": "0"}),
    "drop": lambda: web.Response(status=500, headers={"NQ-Outcome": "drop"}),
}
SCRIPTS = st.builds(
    lambda steps, last: [*steps, last],
    st.lists(st.sampled_from([*ANSWERS, "time out", "crash"]), max_size=MAX_ATTEMPTS + 1),
    st.sampled_from(["succeed", "fail", "fail for good", "drop"]),
)
"""How the app answers attempt after attempt; the last answer is given for ever.

A time-out is never the last: it takes its time, and enough of them in a row end a job as well.
"""


class Impatient(HttpApp):
    """Waits for an answer as long as it takes, but not for one that will never come."""

    def __init__(self, port: int, silent: Callable[[str], bool]) -> None:
        super().__init__(port, None)
        self._silent = silent

    def post(self, call: Call, done: Done) -> None:
        silent = self._silent(json.loads(call.body)["name"])
        super().post(call._replace(timeout=SILENCE) if silent else call, done)


class Side:
    """One broker with a worker that crashes when an app's script says so."""

    def __init__(self, scene: Stage) -> None:
        self.scene = scene
        self.seen: dict[str, list[int]] = {}
        self._done: set[str] = set()
        self._scripts: dict[str, Script] = {}
        self._port = 0
        self._crashes: set[asyncio.Task[None]] = set()
        self._worker: DurableWorker | None = None
        self._app: HttpApp | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Side"]:
        """Run the app, and let go of all at the end."""
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0).start()
        self._port = int(runner.addresses[0][1])
        try:
            yield self
        finally:
            await self._stop()
            await runner.cleanup()

    async def begin(self, name: str) -> None:
        """Begin a new history on queues that nobody has used."""
        await self._stop()
        self.seen.clear()
        self._scripts.clear()
        self._done.clear()
        self._queue, self._short = (
            named_queue(
                name,
                retry=QUICK,
                worker={"port": self._port, "path": "/", "concurrency": 1},
            ),
            named_queue(f"{name}-short", durable={"messageTTL": "1s"}),
        )
        await self.scene.plane.apply([self._queue, self._short], declare=True, work=False)
        self._start()

    async def end(self) -> None:
        """Forget the queues of this history."""
        await self._stop()
        for queue in tuple(self.scene.plane.queues):
            await self.scene.plane.broker.undeclare(queue)

    async def enqueue(self, name: str, script: Script, *, short: bool = False) -> None:
        queue = self._short if short else self._queue
        if not short:
            self._scripts[name] = script
        entry = [{"id": name, "payload": {"name": name}}]
        sent = await self.scene.api.post(self._path(queue, "messages:batch"), entry)
        assert sent.json == {"accepted": 1}

    async def redrive(self) -> int:
        sent = await self.scene.api.post(self._path(self._queue, "redrive"), {})
        return int(sent.json["redriven"])

    async def discard(self, name: str) -> int:
        del self._scripts[name]
        path = self._path(self._queue, f"dead-letters/{name}")
        return (await self.scene.api.call("DELETE", path)).status

    async def quiet(self) -> dict[str, Ending]:
        """Wait until every job is done or dead, and return those that are dead, and of what."""
        await answer(
            lambda: self._dead(self._queue),
            lambda dead: self._scripts.keys() == self._done | dead.keys(),
            within=LONGEST_HISTORY,
        )
        depth = await answer(
            lambda: self.scene.plane.broker.depth(_key(self._queue)),
            lambda depth: depth is not None and not any(depth[:3]),
        )
        dead = await self._dead(self._queue)
        assert depth is not None
        assert depth.dead == len(dead)
        return dead

    async def expired(self, count: int) -> dict[str, Ending]:
        """Wait until so many jobs of the queue without a worker have expired, and return them."""
        await answer(
            lambda: self.scene.plane.broker.depth(_key(self._short)),
            lambda depth: depth is not None and depth == (0, 0, 0, count),
        )
        return await self._dead(self._short)

    async def _dead(self, queue: NamedQueue) -> dict[str, Ending]:
        page = await self.scene.api.get(self._path(queue, "dead-letters?limit=1000"))
        return {
            each["eventId"]: (
                each["terminalReasonCode"],
                each["attemptCount"],
                len(each["attemptHistory"]),
                each["redrives"],
            )
            for each in page.json["items"]
        }

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        name = json.loads(await request.read())["name"]
        self.seen.setdefault(name, []).append(int(request.headers["NQ-Attempt"]))
        script = self._scripts[name]
        step = script.pop(0) if len(script) > 1 else script[0]
        if step == "crash":
            task = asyncio.create_task(self._crash())
            self._crashes.add(task)
            task.add_done_callback(self._crashes.discard)
        if step in {"crash", "time out"}:
            await asyncio.Event().wait()
        if step in {"succeed", "drop"}:
            self._done.add(name)
        return ANSWERS[step]()

    async def _crash(self) -> None:
        await self._stop()
        self._start()

    def _start(self) -> None:
        self._app = Impatient(self._port, lambda name: self._scripts[name][0] == "time out")
        self._worker = DurableWorker(Workplace(self._queue, self.scene.plane.broker, self._app))
        self._worker.start()

    async def _stop(self) -> None:
        """End the worker as a crash does: no ack, no publish, no word to the broker."""
        worker, app, self._worker, self._app = self._worker, self._app, None, None
        if worker is None or app is None:
            return
        worker._draining = True
        worker._waiting.clear()
        worker._flights.clear()
        await app.close()
        await worker.gate.stop()
        await worker._subscription.close()

    def _path(self, queue: NamedQueue, rest: str) -> str:
        return f"/v1/queues/{queue.metadata.name}/{rest}"


def _key(queue: NamedQueue) -> QueueKey:
    return QueueKey(NAMESPACE, queue.metadata.name)


class Twins(RuleBasedStateMachine):
    """Does to both sides what Hypothesis thinks of."""

    runner: ClassVar[asyncio.Runner]
    sides: ClassVar[list[Side]]

    def __init__(self) -> None:
        super().__init__()
        self._names = count()
        self._dead: dict[str, Ending] = {}
        self._expired = 0
        name = f"h{uuid4().hex[:12]}"
        self._both(lambda side: side.begin(name))

    def _both(self, what: Callable[[Side], Coroutine[Any, Any, T]]) -> list[T]:
        async def gathered() -> list[T]:
            return await asyncio.gather(*(what(side) for side in self.sides))

        return self.runner.run(gathered())

    def _agreed(self, what: Callable[[Side], Coroutine[Any, Any, T]]) -> T:
        one, other = self._both(what)
        assert one == other
        return one

    @rule(scripts=st.lists(SCRIPTS, min_size=1, max_size=4))
    def enqueue(self, scripts: list[Script]) -> None:
        for script in scripts:
            self._enqueue(script)

    @rule()
    def let_all_come_to_rest(self) -> None:
        self._dead = self._agreed(lambda side: side.quiet())
        one, other = (side.seen for side in self.sides)
        assert one == other

    @rule()
    def redrive(self) -> None:
        self.let_all_come_to_rest()
        assert self._agreed(lambda side: side.redrive()) == len(self._dead)

    @rule(data=st.data())
    def discard_one(self, data: st.DataObject) -> None:
        self.let_all_come_to_rest()
        if self._dead:
            name = data.draw(st.sampled_from(sorted(self._dead)))
            assert self._agreed(lambda side: side.discard(name)) == 204

    @rule(jobs=st.integers(1, 3))
    def let_some_expire(self, jobs: int) -> None:
        names = [self._enqueue(["succeed"], short=True) for _ in range(jobs)]
        self._expired += jobs
        gone = self._agreed(lambda side: side.expired(self._expired))
        assert {gone[name][0] for name in names} == {"EXPIRED"}

    def _enqueue(self, script: Script, *, short: bool = False) -> str:
        name = f"job-{next(self._names)}"
        self._both(lambda side: side.enqueue(name, script.copy(), short=short))
        return name

    def teardown(self) -> None:
        self.let_all_come_to_rest()
        self._both(lambda side: side.end())


@pytest.mark.timeout(3600 if FULL else 900)
def test_both_brokers_live_through_the_same_histories(
    broker: rabbitmq.Broker, vhost: str, tmp_path: Path
) -> None:
    with asyncio.Runner() as runner:
        opened = AsyncExitStack()

        async def side(broker: Broker) -> Side:
            await broker.open()
            scene = await opened.enter_async_context(stage(broker=broker))
            return await opened.enter_async_context(Side(scene).serving())

        brokers: list[Broker] = [rabbitmq_client(broker, vhost), BuiltinBroker(tmp_path / "data")]
        try:
            Twins.runner, Twins.sides = runner, [runner.run(side(each)) for each in brokers]
            run_state_machine_as_test(
                Twins,
                settings=settings(
                    max_examples=100 if FULL else 4,
                    stateful_step_count=12,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                    phases=[hypothesis.Phase.generate],
                ),
            )
        finally:
            runner.run(opened.aclose())
