"""The acceptance of idempotency: four sidecars, two of them killed again and again, and a ledger.

The sidecars are real processes at one PostgreSQL and one RabbitMQ. One app serves all of them and
writes every effect into its ledger, with the sidecar that asked for it. A key may have a second
effect only if the sidecar of the one before was killed before it could write that down.
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
import pytest
from aiohttp import web

from broker.port.play import NAMESPACE, answer, declare, eventually, named_queue
from fixtures.adapters import rabbitmq_client
from fixtures.brokers import VERSIONS
from fixtures.scale import FULL
from namedqueue_sidecar.brokers.port import Depth
from testbed.ports import free_ports
from testbed.rabbitmq import Broker

JOBS = 20_000 if FULL else 400
KEYS = JOBS * 7 // 10
WITHIN = 2400.0
BATCH = 500
KILLS = max(2, JOBS // 500)
"""How many kills there are at the least: the app stops for the steady sidecars until they came."""

LEAST_EFFECTS = 20
"""What a victim has done before it is killed, so that it is killed at work."""

NEAR = 15.0
"""Seconds within which a kill came between an effect and its record, on a machine this busy."""

SPEC: dict[str, Any] = {
    "idempotency": {"key": "body.key", "ttl": "1d"},
    "retry": {"maxAttempts": 5, "delay": "250ms", "multiplier": 2, "maxDelay": "4s"},
}

pytestmark = pytest.mark.timeout(WITHIN * 1.5)


class Effect(NamedTuple):
    sidecar: str
    at: float


@dataclass
class Ledger:
    """Every effect of every key, and when which sidecar was killed."""

    effects: defaultdict[int, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    by_sidecar: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    killed: dict[str, float] = field(default_factory=dict)

    def enter(self, key: int, sidecar: str) -> None:
        self.effects[key].append(Effect(sidecar, time.monotonic()))
        self.by_sidecar[sidecar] += 1

    @property
    def doubled(self) -> list[Effect]:
        """The effects that another one of the same key came after."""
        return [effect for effects in self.effects.values() for effect in effects[:-1]]

    @property
    def unexplained(self) -> list[Effect]:
        """Those of them that no kill explains."""
        return [
            effect
            for effect in self.doubled
            if abs(self.killed.get(effect.sidecar, 0.0) - effect.at) > NEAR
        ]


class App:
    """Has an effect for every call, and takes its time to say so.

    The steady sidecars get only so far with each kill, so that the kills are spread over the work.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.port = 0
        self.steady: list[str] = []
        self._go_on = asyncio.Event()
        self.look()

    def look(self) -> None:
        """Let the steady sidecars go on, or not."""
        kills = len(self.ledger.killed)
        ahead = len(self.ledger.effects) > KEYS * (kills + 1) // (KILLS + 1)
        (self._go_on.clear if ahead and kills < KILLS else self._go_on.set)()

    async def handle(self, request: web.Request) -> web.Response:
        job, sidecar = orjson.loads(await request.read()), request.match_info["sidecar"]
        if sidecar in self.steady:
            await self._go_on.wait()
        self.ledger.enter(job["key"], sidecar)
        self.look()
        await asyncio.sleep(random.uniform(0, 0.1))  # noqa: S311 - chance, not a secret
        return web.Response()


@pytest.fixture
async def app() -> AsyncIterator[App]:
    """Serve the app of all sidecars."""
    made = App()
    server = web.Application()
    server.router.add_post("/jobs/{sidecar}", made.handle)
    runner = web.AppRunner(server, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = int(runner.addresses[0][1])
    yield made
    await runner.cleanup()


class Fleet:
    """Sidecars in processes of their own, each with a name for its calls to the app."""

    def __init__(self, app: App, node: Broker, vhost: str, database: str, folder: Path) -> None:
        self._app, self._vhost, self._folder = app, vhost, folder
        self._numbers = count(1)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        account = {"connection_string": node.amqp_url(vhost)}
        self._mount("broker", account)
        self._mount("store", {"connection_string": database})

    def _mount(self, name: str, files: dict[str, str]) -> Path:
        folder = self._folder / name
        folder.mkdir()
        for key, value in files.items():
            (folder / key).write_text(value)
        return folder

    def start(self) -> str:
        """Start one more, and return its name."""
        name = f"s{next(self._numbers)}"
        worker = {"port": self._app.port, "path": f"/jobs/{name}", "concurrency": 10}
        worker["timeout"] = "30m"
        manifest = named_queue(**SPEC, worker=worker)
        written = manifest.model_dump_json(by_alias=True, exclude_none=True)
        queues = self._mount(f"queues-{name}", {"orders.json": written})
        self.ports[name], observed = free_ports(2)
        command = [sys.executable, "-m", "namedqueue_sidecar", "--queues", str(queues)]
        command += ["--broker", str(self._folder / "broker"), "--vhost", self._vhost]
        command += ["--store", str(self._folder / "store"), "--namespace", NAMESPACE]
        command += ["--port", str(self.ports[name]), "--observe-port", str(observed)]
        command += ["--observe-host", "127.0.0.1", "--log-level", "warning"]
        with (self._folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        return name

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        assert process.poll() is None, f"{name} has ended by itself"
        self._app.ledger.killed[name] = time.monotonic()
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._app.look()

    async def ready(self, name: str, session: aiohttp.ClientSession) -> None:
        async def is_ready() -> bool:
            try:
                url = f"http://127.0.0.1:{self.ports[name]}/healthz/ready"
                async with session.get(url) as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

        await answer(is_ready, bool)

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def enqueue_all(session: aiohttp.ClientSession, port: int) -> None:
    """Send a job for each key, and doubles of some, all mixed up."""
    drawn = random.Random(7)  # noqa: S311 - chance, not a secret
    keys = [*range(KEYS), *(drawn.randrange(KEYS) for _ in range(JOBS - KEYS))]
    drawn.shuffle(keys)
    url = f"http://127.0.0.1:{port}/v1/queues/orders/messages:batch"
    for start in range(0, JOBS, BATCH):
        batch = [{"payload": {"key": key}} for key in keys[start : start + BATCH]]
        async with session.post(url, json=batch) as response:
            assert await response.json() == {"accepted": len(batch)}


async def keep_killing(fleet: Fleet, app: App) -> None:
    """Have two victims, each killed when it has done something and replaced by another.

    That one starts before, for starting takes longer than all else.
    """

    async def one_after_another() -> None:
        name, done = fleet.start(), app.ledger.by_sidecar
        while True:
            successor = fleet.start()
            await eventually(lambda: done[name] >= LEAST_EFFECTS, f"{name} works", WITHIN)  # noqa: B023
            fleet.kill(name)
            name = successor

    await asyncio.gather(one_after_another(), one_after_another())


@pytest.mark.parametrize("broker_version", VERSIONS if FULL else VERSIONS[-1:], indirect=True)
async def test_every_effect_happens_once_per_key_or_a_kill_explains_the_second(
    app: App, broker: Broker, vhost: str, database: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as opened:
        client = rabbitmq_client(broker, vhost)
        opened.push_async_callback(client.close)
        await client.open()
        queue = await declare(client, **SPEC)
        timeout = aiohttp.ClientTimeout(total=WITHIN)
        session = await opened.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        fleet = Fleet(app, broker, vhost, database, tmp_path)
        opened.callback(fleet.close)
        steady = app.steady = [fleet.start(), fleet.start()]
        for name in steady:
            await fleet.ready(name, session)
        began = time.monotonic()
        killing = asyncio.create_task(keep_killing(fleet, app))
        await enqueue_all(session, fleet.ports[steady[0]])
        await eventually(
            lambda: killing.done() or len(app.ledger.effects) == KEYS, "every effect", WITHIN
        )
        if killing.done():
            killing.result()
        killing.cancel()
        nothing = Depth(0, 0, 0, 0)
        ends = time.monotonic() + WITHIN
        while (depth := await client.depth(queue)) != nothing:
            assert time.monotonic() < ends, depth
            assert depth is not None
            assert depth.dead == 0, "no job has failed"
            await asyncio.sleep(0.25)
        seconds = time.monotonic() - began
    ledger = app.ledger
    print(  # noqa: T201 - the figures of the acceptance
        f"\n{JOBS} jobs of {KEYS} keys, RabbitMQ {broker.version}: {seconds:.1f} s, "
        f"{len(ledger.killed)} kills; {sum(ledger.by_sidecar.values())} effects, "
        f"{len(ledger.doubled)} of them doubled by a kill between the app's answer and its "
        f"record, {len(ledger.unexplained)} for no reason"
    )
    assert sorted(ledger.effects) == list(range(KEYS))
    assert ledger.unexplained == []
    assert len(ledger.killed) >= KILLS
