"""A job whose next stage is missing waits for it, and a person is told once."""

import asyncio
from collections.abc import Sequence

import pytest

from broker.port.play import QUEUE, eventually, job, named_queue
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Main, Publication, Settled
from namedqueue_sidecar.consuming.outbox import Outbox


class Counting(BuiltinBroker):
    """Counts how often something is sent."""

    sent = 0

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        self.sent += 1
        super().publish(batch, settled)


async def test_a_missing_stage_is_waited_for_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, arrived = Counting(None), asyncio.Event()
    await broker.open()
    Outbox(broker).send(Main(QUEUE, job(), 4000), arrived.set, still_ours=lambda: True)
    await eventually(lambda: broker.sent >= 3, "it is sent again and again")
    await broker.declare(named_queue())
    await asyncio.wait_for(arrived.wait(), 30)
    await broker.close()
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        f"a job of {QUEUE} waits here"
    ]
