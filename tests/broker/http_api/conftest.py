"""The HTTP API of the data plane, row by row: real sockets, the builtin broker, a tiny app."""

from collections.abc import AsyncIterator

import pytest

from fixtures.planes import Stage, stage


@pytest.fixture
async def scene() -> AsyncIterator[Stage]:
    """Serve a plane with no queue yet."""
    async with stage() as running:
        yield running


@pytest.fixture
async def working(scene: Stage) -> Stage:
    """Serve queue `orders`, worked off by the tiny app."""
    await scene.apply(scene.queue())
    return scene


@pytest.fixture
async def idle(scene: Stage) -> Stage:
    """Serve queue `orders`, worked off by nobody."""
    await scene.apply(scene.queue(worker=False))
    return scene
