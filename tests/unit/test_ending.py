"""Ending tasks for sure."""

import asyncio

from namedqueue_sidecar.ending import end


async def test_a_task_that_swallows_its_first_cancellation_ends_all_the_same() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end(task)
    assert task.cancelled()


async def test_the_error_of_a_task_that_has_ended_is_dropped() -> None:
    async def broken() -> None:
        raise OSError("gone")

    task = asyncio.create_task(broken())
    await asyncio.wait([task])
    await end(task)
