"""A redrive that is told to stop does so, however slowly it goes."""

import asyncio

from namedqueue_sidecar.redriving.runs import Run
from namedqueue_sidecar.redriving.wishes import Wish


async def test_a_slow_redrive_that_is_told_to_stop_lets_go_at_once() -> None:
    run = Run("fix", Wish(rate_per_second=0.001))
    assert await run.release(1) == 1
    waiting = asyncio.create_task(run.release(1))
    await asyncio.sleep(0)
    run.stop()
    async with asyncio.timeout(10):
        assert await waiting == 1
    assert run.at_once == 0
