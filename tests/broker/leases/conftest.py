"""Workers that pull: leases over real HTTP, on every adapter, next to a pushed worker."""

from collections.abc import AsyncIterator

import pytest

from fixtures.planes import Stage, stage
from fixtures.pulling import QUICK
from namedqueue_sidecar.brokers.port import Broker


@pytest.fixture
async def scene(broker_under_test: Broker) -> AsyncIterator[Stage]:
    """Serve a plane with no queue yet, on each adapter."""
    async with stage(broker=broker_under_test) as running:
        yield running


@pytest.fixture
async def pulled(scene: Stage) -> Stage:
    """Serve queue `orders`, worked off only by those who pull."""
    await scene.apply(scene.queue(worker=False, retry=QUICK))
    return scene


@pytest.fixture
async def local() -> AsyncIterator[Stage]:
    """Serve queue `orders` on the builtin broker, for what no broker can change."""
    async with stage() as running:
        await running.apply(running.queue(worker=False, retry=QUICK))
        yield running
