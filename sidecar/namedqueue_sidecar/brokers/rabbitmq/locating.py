"""Where in a stream a position is.

The broker knows `first`, offsets and the chunks of `last` and of a time, and tells offsets only
with messages. So a position is found by looking at messages. Offsets grow from one message to the
next, but not always by one: RabbitMQ numbers notes of its own where a segment begins.
"""

import asyncio
from collections import deque
from datetime import UTC, datetime
from typing import Final

from aiormq.abc import DeliveredMessage
from aiormq.connection import Connection

from namedqueue.positions import End, Moment, Position
from namedqueue_sidecar.brokers.rabbitmq.messages import incoming_entry, offset_of
from namedqueue_sidecar.brokers.rabbitmq.subscription import MOST_PREFETCH
from namedqueue_sidecar.brokers.rabbitmq.tapping import Start, tapping

_LOOKED_AT_ONCE: Final = 500

CLOCKS_APART_MS: Final = 5_000
"""How far the clocks of a publisher and of the broker may differ.

A message says when it was enqueued and the broker when its chunk was written. The search begins so
much earlier among the chunks, and is exact among the messages.
"""


async def locate(connection: Connection, queue: str, position: Position) -> int:
    """Return the offset that a position stands for now: between the oldest and the next."""
    match position:
        case Moment(at):
            return await _since(connection, queue, at)
        case End.FIRST:
            return (await span(connection, queue))[0]
        case End.LAST:
            newest = await look(connection, queue, "last")
            return 0 if newest is None else offset_of(newest)
        case End.NEXT:
            newest = await look(connection, queue, "last")
            return 0 if newest is None else offset_of(newest) + 1
        case _:
            oldest, following = await span(connection, queue)
            return min(max(position, oldest), following)


async def span(connection: Connection, queue: str) -> tuple[int, int]:
    """Return the offset of the oldest message there is, and the one that comes next."""
    oldest, newest = await asyncio.gather(
        look(connection, queue, "first"), look(connection, queue, "last")
    )
    if oldest is None or newest is None:
        return 0, 0
    return offset_of(oldest), offset_of(newest) + 1


async def look(connection: Connection, queue: str, end: Start) -> DeliveredMessage | None:
    """Return the oldest (`first`) or the newest (`last`) message of a stream."""
    found: deque[DeliveredMessage] = deque()
    async with tapping(connection, 1 if end == "first" else MOST_PREFETCH) as tap:
        await tap.begin(queue, end, found.append)
        await tap.settled()
    if not found:
        return None
    return found[0] if end == "first" else found[-1]


async def _since(connection: Connection, queue: str, at: int) -> int:
    """Return the first message that was not enqueued before a time, or what comes next."""
    found: deque[DeliveredMessage] = deque()
    chunk = datetime.fromtimestamp(max(0, at - CLOCKS_APART_MS) // 1000, UTC)
    looked_at = 0
    async with tapping(connection, _LOOKED_AT_ONCE) as tap:
        await tap.begin(queue, chunk, found.append)
        await tap.settled()
        while found:
            looked_at += len(found)
            while found:
                entry = incoming_entry(found.popleft(), queue)
                if entry.job.enqueued_at >= at:
                    return entry.offset
            tap.credit(looked_at)
            await tap.settled()
    return await locate(connection, queue, End.NEXT)
