"""The builtin broker: the port, kept by this process.

A batch that is published becomes one change: all of its rows are committed together. Verdicts that
need no storage (no such queue, no room) are known at once but are told with the rest, after the
commit, so that a batch is settled once. What goes to ephemeral queues is kept in memory, whatever
keeps the rest, and waits for no disk.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from namedqueue import topics
from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar.brokers.builtin.consumers import Consumer
from namedqueue_sidecar.brokers.builtin.dead_letters import BuiltinDeadLetters
from namedqueue_sidecar.brokers.builtin.ephemeral import EphemeralQueue
from namedqueue_sidecar.brokers.builtin.journal import Journal
from namedqueue_sidecar.brokers.builtin.log import Streams
from namedqueue_sidecar.brokers.builtin.queues import Queue
from namedqueue_sidecar.brokers.builtin.settings import settings_of
from namedqueue_sidecar.brokers.builtin.sqlite import SqliteStorage
from namedqueue_sidecar.brokers.builtin.storage import (
    Appended,
    Batch,
    MemoryStorage,
    Message,
    Placed,
    QueueRow,
    Settings,
)
from namedqueue_sidecar.brokers.builtin.streams import Stream
from namedqueue_sidecar.brokers.builtin.surroundings import CallLater, Surroundings
from namedqueue_sidecar.brokers.port import (
    Dead,
    DeadLetters,
    Depth,
    Log,
    Main,
    Publication,
    QueueKey,
    Receiver,
    Settled,
    Subscription,
    Topic,
    Verdict,
)

_Place = TypeVar("_Place", Queue, Stream)

PATIENCE: Final = 30.0
"""Seconds after which a publication is UNKNOWN, for a disk that neither writes nor fails."""

_Row: TypeAlias = tuple[Queue, Placed, Message, bool]
_Entry: TypeAlias = tuple[Stream, Appended]


class BuiltinBroker:
    """Keeps jobs in memory, or in a folder that one process at a time may use."""

    def __init__(
        self,
        data: Path | None = None,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        call_later: CallLater | None = None,
    ) -> None:
        """Take time from elsewhere with `now_ms` and `call_later`; tests do."""
        self._storage = MemoryStorage() if data is None else SqliteStorage(data)
        self._now_ms = now_ms
        self._call_later = call_later
        self._surroundings: Surroundings | None = None
        self._in_memory: Surroundings | None = None
        self._queues: dict[QueueKey, Queue] = {}
        self._consumers: dict[QueueKey, list[Consumer]] = {}
        self._streams = Streams()
        self._unsettled: deque[_Publishing] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._queue_ids = count(1)
        self._declaring = asyncio.Lock()

    async def open(self) -> None:
        """Take the folder and find in it what the last process left; StorageError if it cannot."""
        loop = asyncio.get_running_loop()
        contents = await self._storage.open()
        jobs = list(contents.jobs)
        self._queue_ids = count(1 + max((row.id for row in contents.queues), default=0))
        self._surroundings = Surroundings(
            loop=loop,
            storage=self._storage,
            journal=Journal(self._storage, loop),
            now_ms=self._now_ms,
            call_later=self._call_later or loop.call_later,
            seqs=count(1 + (jobs[-1].seq if jobs else 0)),
            tags=count(1),
        )
        memory = MemoryStorage()
        self._in_memory = replace(self._surroundings, storage=memory, journal=Journal(memory, loop))
        for row in contents.queues:
            if row.settings.stream is not None:
                self._streams.add(row, self._surroundings, contents.streams[row.id])
        of_jobs = (row for row in contents.queues if row.settings.stream is None)
        by_id = {row.id: self._add(row) for row in of_jobs}
        for placed in jobs:
            by_id[placed.queue].arrived(placed, waited=True)

    async def close(self) -> None:
        """Write what is on its way and let the folder go."""
        if self._surroundings is None:
            return
        journal = self._surroundings.journal
        self._surroundings = None
        for queue in self._queues.values():
            queue.close()
        self._streams.close()
        await journal.drain()
        if self._watch is not None:
            self._watch.cancel()
        self._queues.clear()
        self._consumers.clear()
        await self._storage.close()

    async def declare(self, queue: NamedQueue) -> None:
        """Make the queue exist as specified; a changed spec holds at once."""
        key = QueueKey.of(queue)
        settings = settings_of(queue)
        async with self._declaring:
            live = self._queues.get(key) or self._streams.find(key)
            if live is not None and live.settings == settings:
                return
            _refuse_another_type(key, live, settings)
            row = QueueRow(next(self._queue_ids) if live is None else live.id, *key, settings)
            await self._around(settings).journal.written(Batch(queues=[row]))
            if live is not None:
                live.apply(settings)
            elif settings.stream is not None:
                self._streams.add(row, self._open)
            else:
                self._add(row)

    async def undeclare(self, queue: QueueKey) -> None:
        """Forget a queue and all that is in it."""
        async with self._declaring:
            live = self._queues.pop(queue, None) or self._streams.remove(queue)
            if live is not None:
                live.close()
                await self._around(live.settings).journal.written(Batch(dropped=[live.id]))

    @property
    def unavailable(self) -> str | None:
        """Why publishing cannot work right now."""
        if self._surroundings is None:
            return "the builtin broker is not open"
        return self._surroundings.journal.problem

    def unavailable_for(self, queue: QueueKey | None) -> str | None:  # noqa: ARG002  # all have one fate
        """Why nothing can be sent to a queue."""
        return self.unavailable

    @property
    def interrupted(self) -> str | None:
        """Nothing stands between this broker and its consumers."""
        return None

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        """Store a batch; `settled` is called when it is safe."""
        if self._surroundings is None:
            verdicts = [Verdict.UNKNOWN] * len(batch)
            asyncio.get_running_loop().call_soon(settled, verdicts)
            return
        rows: list[_Row] = []
        entries: list[_Entry] = []
        verdicts = [self._route(publication, rows, entries) for publication in batch]
        publishing = _Publishing(verdicts, settled, self._surroundings.loop.time())
        self._unsettled.append(publishing)
        self._keep_watch()
        passing = [row for row in rows if row[0].settings.ephemeral]
        kept = [row for row in rows if not row[0].settings.ephemeral]
        if passing and (kept or entries):
            self._write(passing, (), None)
        self._write(kept if kept or entries else passing, entries, publishing)

    def subscribe(
        self,
        queue: QueueKey,
        receiver: Receiver,
        prefetch: int,
        *,
        partitions: int = 0,  # noqa: ARG002 - here a FIFO queue is one piece
    ) -> Subscription:
        """Begin deliveries, now or as soon as the queue is declared."""
        consumers = self._consumers.setdefault(queue, [])
        consumer = Consumer(receiver, prefetch, closed=partial(_forget, consumers))
        consumers.append(consumer)
        live = self._queues.get(queue)
        if live is not None:
            live.attach(consumer)
        return consumer

    async def consumers(self, queue: QueueKey) -> int:
        """Return how many want jobs of a queue."""
        return sum(consumer.wants_jobs for consumer in self._consumers.get(queue, ()))

    async def depth(self, queue: QueueKey) -> Depth | None:
        """Return how many jobs are where."""
        live = self._queues.get(queue) or self._streams.find(queue)
        return None if live is None else live.depth()

    def dead_letters(self, queue: QueueKey) -> DeadLetters:
        """Return the queue's dead letters."""
        return BuiltinDeadLetters(partial(self._queues.get, queue))

    def log(self, queue: QueueKey) -> Log:
        """Return a stream's messages and cursors."""
        return self._streams.log(queue)

    @property
    def _open(self) -> Surroundings:
        if self._surroundings is None:
            raise RuntimeError("the builtin broker is not open; await open() first")
        return self._surroundings

    def _around(self, settings: Settings) -> Surroundings:
        """Return where a queue keeps its jobs: in memory if it is ephemeral."""
        if settings.ephemeral and self._in_memory is not None:
            return self._in_memory
        return self._open

    def _add(self, row: QueueRow) -> Queue:
        key = QueueKey(row.namespace, row.name)
        around, consumers = self._around(row.settings), self._consumers.setdefault(key, [])
        live = (
            EphemeralQueue(row, around, consumers, self._expire)
            if row.settings.ephemeral
            else Queue(row, around, consumers)
        )
        self._queues[key] = live
        return live

    def _expire(self, queue: EphemeralQueue) -> None:
        """Forget a queue that nobody uses; its consumers wait until it is declared again."""
        if self._queues.get(queue.key) is queue:
            del self._queues[queue.key]
            queue.close()
            self._around(queue.settings).journal.write(Batch(dropped=[queue.id]), lambda _: None)

    def _route(self, publication: Publication, rows: list[_Row], entries: list[_Entry]) -> Verdict:
        """Add what a publication becomes, and return the verdict if that is stored."""
        match publication:
            case Main(key, job, 0) if (stream := self._streams.find(key)) is not None:
                entries.append((stream, stream.place(job)))
            case Main(key, job, delay_ms):
                queue = self._queues.get(key)
                if queue is None or delay_ms > queue.settings.longest_delay_ms:
                    return Verdict.UNROUTABLE
                if delay_ms <= 0 and queue.room == 0:
                    return Verdict.FULL
                rows.append((queue, *queue.place(job, delay_ms), delay_ms > 0))
            case Dead(key, record):
                queue = self._queues.get(key)
                if queue is None or queue.settings.ephemeral:
                    return Verdict.UNROUTABLE
                rows.append((queue, *queue.place_dead(record), False))
            case Topic(namespace, job):
                queues = self._subscribed(self._queues.values(), namespace, job.topic)
                streams = self._subscribed(self._streams, namespace, job.topic)
                if not queues and not streams:
                    return Verdict.UNROUTABLE
                if any(queue.room == 0 for queue in queues):
                    return Verdict.FULL
                rows.extend((queue, *queue.place(job), False) for queue in queues)
                entries.extend((stream, stream.place(job)) for stream in streams)
        return Verdict.CONFIRMED

    @staticmethod
    def _subscribed(places: Iterable[_Place], namespace: str, topic: str | None) -> list[_Place]:
        if topic is None:
            return []
        return [
            queue
            for queue in places
            if queue.key.namespace == namespace
            and any(topics.matches(pattern, topic) for pattern in queue.settings.subscriptions)
        ]

    def _write(
        self,
        rows: Sequence[_Row],
        entries: Sequence[_Entry],
        publishing: "_Publishing | None",
    ) -> None:
        """Store what is kept in one place; a publishing is settled when it is safe."""
        change = Batch(
            added=[(placed, message) for _, placed, message, _ in rows],
            appended=[appended for _, appended in entries],
        )
        around = self._around(rows[0][0].settings) if rows else self._open
        around.journal.write(change, partial(self._stored, publishing, rows, entries))

    def _stored(
        self,
        publishing: "_Publishing | None",
        rows: Sequence[_Row],
        entries: Sequence[_Entry],
        error: Exception | None,
    ) -> None:
        if error is None:
            for stream, appended in entries:
                stream.arrived(appended.place)
        for queue, placed, _, waited in rows:
            (queue.arrived if error is None else queue.failed)(placed, waited=waited)
        if publishing is None:
            return
        publishing.settle(known=error is None)
        while self._unsettled and self._unsettled[0].settled is None:
            self._unsettled.popleft()

    def _keep_watch(self) -> None:
        """Set one timer for all: the oldest publication is the first to be late."""
        if self._watch is None and self._unsettled:
            late_at = self._unsettled[0].since + PATIENCE
            self._watch = self._open.loop.call_at(late_at, self._settle_late)

    def _settle_late(self) -> None:
        self._watch = None
        if self._surroundings is None:
            return
        long_ago = self._surroundings.loop.time() - PATIENCE
        while self._unsettled and self._unsettled[0].since <= long_ago:
            self._unsettled.popleft().settle(known=False)
        self._keep_watch()


class _Publishing:
    """A batch on its way; `settled` is None once it was called."""

    __slots__ = ("settled", "since", "verdicts")

    def __init__(self, verdicts: list[Verdict], settled: Settled, since: float) -> None:
        self.verdicts = verdicts
        self.settled: Settled | None = settled
        self.since = since

    def settle(self, *, known: bool) -> None:
        """Tell the verdicts, once; what was to be confirmed is unknown if its commit is."""
        settled, self.settled = self.settled, None
        if settled is not None:
            settled(self.verdicts if known else [_doubted(verdict) for verdict in self.verdicts])


def _refuse_another_type(key: QueueKey, live: Queue | Stream | None, new: Settings) -> None:
    """Refuse to make a queue what it is not: its jobs would have no place there."""
    if live is not None and live.settings.kind != new.kind:
        raise ValueError(
            f"{key} exists and its spec.type cannot change; give the queue another name"
        )


def _doubted(verdict: Verdict) -> Verdict:
    return Verdict.UNKNOWN if verdict is Verdict.CONFIRMED else verdict


def _forget(consumers: list[Consumer], consumer: Consumer) -> None:
    if consumer in consumers:
        consumers.remove(consumer)
