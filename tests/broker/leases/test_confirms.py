"""The end of a lease while the broker does not confirm: who waits, how long, and for what."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from broker.port.play import eventually
from fixtures.planes import Stage, stage
from fixtures.pulling import (
    KEY,
    QUICK,
    enqueue,
    finish,
    held,
    lease_one,
)
from namedqueue_sidecar.brokers.port import Broker, Depth, Publication, Settled
from namedqueue_sidecar.consuming import leasing


class Mute:
    """A broker that keeps its word to itself until it is told to speak."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.silent = False
        self.unsaid: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        if self.silent:
            self.unsaid.append(lambda: self._broker.publish(batch, settled))
        else:
            self._broker.publish(batch, settled)

    def speak(self) -> None:
        unsaid, self.unsaid = self.unsaid, []
        for say in unsaid:
            say()


@pytest.fixture
async def mute() -> AsyncIterator[tuple[Stage, Mute]]:
    """Serve queue `orders` on a broker that does not confirm."""
    made: list[Mute] = []

    def wrap(broker: Broker) -> Broker:
        made.append(Mute(broker))
        return cast("Broker", made[0])

    async with stage(wrap) as running:
        await running.apply(running.queue(worker=False, retry=QUICK))
        await enqueue(running, 1)
        made[0].silent = True
        yield running, made[0]


async def test_the_answer_comes_when_the_job_is_safe_and_is_the_same_for_whoever_asks_again(
    mute: tuple[Stage, Mute],
) -> None:
    scene, broker = mute
    item = await lease_one(scene, visibility="3s")
    nacking = asyncio.create_task(finish(scene, item, "nack"))
    await eventually(lambda: bool(broker.unsaid), "the retry is on its way")
    rejecting = asyncio.create_task(finish(scene, item, "reject"))
    assert (await finish(scene, item, "extend")).code == "LEASE_FINISHED"
    await asyncio.sleep(3.2)  # past the visibility, which no longer counts
    assert not nacking.done()
    assert not rejecting.done()
    assert await scene.plane.broker.depth(KEY) == Depth(0, 1, 0, 0)
    broker.speak()
    expected = {"decision": "retry", "attempt": 2, "delayMs": 250}
    assert ((await nacking).json, (await rejecting).json) == (expected, expected)
    assert (await lease_one(scene))["attempt"] == 2


async def test_a_worker_is_not_kept_waiting_for_a_broker_that_does_not_confirm(
    mute: tuple[Stage, Mute], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, broker = mute
    monkeypatch.setattr(leasing, "SAFE_WITHIN", 0.1)
    item = await lease_one(scene)
    late = await finish(scene, item, "nack")
    assert (late.status, late.code) == (503, "BROKER_UNAVAILABLE")
    broker.speak()
    await eventually(lambda: held(scene) == 0, "the job moved on")
    assert (await finish(scene, item, "nack")).code == "LEASE_FINISHED"
    assert (await lease_one(scene))["attempt"] == 2


async def test_a_connection_that_is_lost_while_a_job_moves_on_is_told(
    mute: tuple[Stage, Mute],
) -> None:
    scene, broker = mute
    item = await lease_one(scene)
    nacking = asyncio.create_task(finish(scene, item, "nack"))
    await eventually(lambda: bool(broker.unsaid), "the retry is on its way")
    scene.plane.leasing(KEY).lost()
    told = await nacking
    assert (told.status, told.code) == (410, "LEASE_LOST")
    assert (await finish(scene, item, "ack")).code == "LEASE_LOST"


async def test_a_drain_does_not_wait_for_ever_for_a_broker_that_does_not_confirm(
    mute: tuple[Stage, Mute],
) -> None:
    scene, broker = mute
    item = await lease_one(scene)
    nacking = asyncio.create_task(finish(scene, item, "nack"))
    await eventually(lambda: bool(broker.unsaid), "the retry is on its way")
    await scene.plane.drain(patience=0.1)
    assert (await nacking).code == "LEASE_HANDED_BACK"
    assert await scene.plane.broker.depth(KEY) == Depth(1, 0, 0, 0)
