"""Ending a task for sure.

On Python 3.11 `asyncio.wait_for` swallows a cancellation that comes just as what it waits for is
done, and libraries use it freely. A task cancelled once may then run on for ever; it is cancelled
until it has ended.
"""

import asyncio
from typing import Any, Final

_PATIENCE: Final = 1.0


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel these and wait until all have ended; their results and errors are dropped."""
    under_way = {task for task in tasks if not task.done()}
    while under_way:
        for task in under_way:
            task.cancel()
        _, under_way = await asyncio.wait(under_way, timeout=_PATIENCE)
    for task in tasks:
        if not task.cancelled():
            task.exception()
