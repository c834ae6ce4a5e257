"""Reading a stream by request: each answer is a piece of it, and the next piece is near.

A way through the stream stays open for a while after an answer. Whoever asks for what follows goes
on there, so that reading in bulk does not begin anew with every request; whoever asks for another
place begins a new one. Nothing here is anybody's: any number may read the same messages.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from namedqueue.topics import selects
from namedqueue_sidecar.brokers.port import Entry, Log, Reading

AHEAD: Final = 256
MOST_SCANNED: Final = 50_000
"""Messages that one answer may look at for those that its filter lets through."""

KEPT_OPEN: Final = 15.0
MOST_OPEN: Final = 4
_SOON: Final = 0.05
_SURELY: Final = 10.0
"""Seconds to wait for a message that is known to be there."""


class Wish(NamedTuple):
    """What somebody wants to read, and how long he waits for the first of it."""

    start: int
    most: int
    most_bytes: int
    wait: float
    filter: str | None


class Piece(NamedTuple):
    """A part of a stream; `next` is where it goes on."""

    entries: Sequence[Entry]
    next: int


class _Way:
    """An open way through the stream; `at` is the offset that comes next."""

    def __init__(self, log: Log, start: int) -> None:
        self.at = start
        self.came = asyncio.Event()
        self._buffer: deque[Entry] = deque()
        self._reading: Reading = log.read(start, self._receive, AHEAD)

    def _receive(self, entries: Sequence[Entry]) -> None:
        self._buffer.extend(entries)
        self.came.set()

    def take(self, most: int, most_bytes: int) -> list[Entry]:
        """Return what is here, and make room for what follows; the last may exceed the bytes."""
        taken: list[Entry] = []
        while self._buffer and len(taken) < most and most_bytes > 0:
            taken.append(self._buffer.popleft())
            most_bytes -= len(taken[-1].job.payload)
        if not self._buffer:
            self.came.clear()
        if taken:
            self.at = taken[-1].offset + 1
            self._reading.done(len(taken))
        return taken

    async def close(self) -> None:
        """Read no further."""
        await self._reading.close()


class Readers:
    """Reads one stream for whoever asks."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._loop = asyncio.get_running_loop()
        self._idle: deque[tuple[_Way, float]] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._busy: set[_Way] = set()
        self._closed = False
        self._end = 0

    async def read(self, wish: Wish) -> Piece:
        """Return what there is from a position on; wait only if there is nothing yet."""
        way = self._open(wish.start)
        self._busy.add(way)
        try:
            return await self._gather(way, wish)
        finally:
            self._busy.discard(way)
            self._keep(way)

    async def has_come_to(self, offset: int) -> bool:
        """Tell whether there is or was a message with this offset."""
        if offset >= self._end:
            self._end = max(self._end, (await self.log.span())[1])
        return offset < self._end

    async def close(self) -> None:
        """Let go of all that is open; whoever waits gets what there is."""
        self._closed = True
        for way in self._busy:
            way.came.set()
        if self._sweeping is not None:
            self._sweeping.cancel()
        while self._idle:
            self._close_oldest()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _gather(self, way: _Way, wish: Wish) -> Piece:
        found: list[Entry] = []
        size = scanned = 0
        until = self._loop.time() + wish.wait
        while len(found) < wish.most and size < wish.most_bytes and scanned < MOST_SCANNED:
            for entry in way.take(wish.most - len(found), wish.most_bytes - size):
                scanned += 1
                if selects(wish.filter, entry.job.topic):
                    found.append(entry)
                    size += len(entry.job.payload)
            if not way.came.is_set() and not await self._more(way, found, scanned, until):
                break
        self._end = max(self._end, way.at)
        return Piece(found, way.at)

    async def _more(self, way: _Way, found: Sequence[Entry], scanned: int, until: float) -> bool:
        """Wait for what follows, and tell whether it came.

        In the midst of a long stretch the next entries are on their way. At the end of what was
        read before it takes a question to know whether there are any.
        """
        if found:
            patience = _SOON if scanned >= AHEAD // 2 else 0.0
        elif await self._has(way.at):
            patience = _SURELY
        else:
            patience = until - self._loop.time()
        if patience > 0 and not self._closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(way.came.wait(), patience)
        return way.came.is_set() and not self._closed

    async def _has(self, at: int) -> bool:
        first, following = await self.log.span()
        return max(first, at) < following

    def _open(self, start: int) -> _Way:
        for index, (way, _) in enumerate(self._idle):
            if way.at == start:
                del self._idle[index]
                return way
        return _Way(self.log, start)

    def _keep(self, way: _Way) -> None:
        self._idle.append((way, self._loop.time() + KEPT_OPEN))
        if len(self._idle) > MOST_OPEN or self._closed:
            self._close_oldest()
        if self._sweeping is None and not self._closed:
            self._sweeping = self._loop.call_later(KEPT_OPEN, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = self._loop.time()
        while self._idle and self._idle[0][1] <= now:
            self._close_oldest()
        if self._idle:
            self._sweeping = self._loop.call_at(self._idle[0][1], self._sweep)

    def _close_oldest(self) -> None:
        way, _ = self._idle.popleft()
        task = self._loop.create_task(way.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
