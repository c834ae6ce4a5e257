"""Browsing, discarding and redriving what failed for good.

A page's cursor names its last letter and when that was dead-lettered. If the letter is gone by the
next page, that page begins with whatever was dead-lettered at that time or later, so that who
empties a queue page by page misses nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from namedqueue.deadletters import DeadLetterRecord, redriven
from namedqueue.topology.names import Names
from namedqueue_sidecar.brokers.port import Main, QueueKey, Verdict
from namedqueue_sidecar.brokers.rabbitmq.credentials import Provider
from namedqueue_sidecar.brokers.rabbitmq.publishing import Publisher
from namedqueue_sidecar.brokers.rabbitmq.walking import Letter, Walk, walking

_REDRIVE_BATCH: Final = 100


class RabbitMQDeadLetters:
    """The dead letters of one queue."""

    def __init__(
        self, queue: QueueKey, credentials: Provider, vhost: str, publisher: Publisher
    ) -> None:
        self._queue = queue
        self._credentials = credentials
        self._vhost = vhost
        self._publisher = publisher

    async def browse(
        self, after: str | None, limit: int
    ) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return a page and the cursor of the next one."""
        page = _Page(after, limit)
        async with self._walk(limit + 1 if after is None else None) as walk:
            async for letter in walk.letters():
                page.add(letter.record)
                if page.full:
                    break
        return page.finished()

    async def find(self, job_id: str) -> DeadLetterRecord | None:
        """Return one dead letter."""
        async with self._walk() as walk:
            async for letter in walk.letters():
                if letter.record.job.id == job_id:
                    return letter.record
        return None

    async def remove(self, job_ids: Sequence[str]) -> int:
        """Discard letters, each of them once."""
        wanted, removed = set(job_ids), 0
        async with self._walk() as walk:
            async for letter in walk.letters():
                if letter.record.job.id in wanted:
                    await walk.remove(letter)
                    wanted.discard(letter.record.job.id)
                    removed += 1
                if not wanted:
                    break
        return removed

    async def redrive(self, choose: Callable[[DeadLetterRecord], bool], limit: int | None) -> int:
        """Send chosen letters back, in batches, until one cannot be sent."""
        sent = 0
        chosen: list[Letter] = []
        async with self._walk() as walk:
            async for letter in walk.letters():
                if limit is not None and sent + len(chosen) >= limit:
                    break
                if choose(letter.record):
                    chosen.append(letter)
                if len(chosen) == _REDRIVE_BATCH:
                    arrived = await self._send_back(walk, chosen)
                    sent += arrived
                    if arrived < len(chosen):
                        return sent
                    chosen = []
            return sent + await self._send_back(walk, chosen)

    async def _send_back(self, walk: Walk, letters: Sequence[Letter]) -> int:
        """Publish, wait for the confirms, and only then remove what was confirmed."""
        settled: asyncio.Future[Sequence[Verdict]] = asyncio.get_running_loop().create_future()

        def note(verdicts: Sequence[Verdict]) -> None:
            if not settled.done():
                settled.set_result(verdicts)

        batch = [Main(self._queue, redriven(letter.record.job)) for letter in letters]
        self._publisher.publish(batch, note)
        arrived = 0
        for letter, verdict in zip(letters, await settled, strict=True):
            if verdict is Verdict.CONFIRMED:
                await walk.remove(letter)
                arrived += 1
        return arrived

    def _walk(self, most: int | None = None) -> AbstractAsyncContextManager[Walk]:
        names = Names(self._queue.namespace, self._queue.name)
        return walking(self._credentials, self._vhost, names.dead_letters, self._queue.name, most)


class _Page:
    """A page in the making: what follows the letter of the cursor, or else its moment."""

    def __init__(self, after: str | None, limit: int) -> None:
        self._limit = limit
        self._found = after is None
        moment, _, self._last = (after or "0.").partition(".")
        self._moment = int(moment) if moment.isdigit() else 0
        self._records: list[DeadLetterRecord] = []

    def add(self, record: DeadLetterRecord) -> None:
        if not self._found and record.job.id == self._last:
            self._found = True
            self._records.clear()
        elif self._found or (
            record.dead_lettered_at >= self._moment and len(self._records) <= self._limit
        ):
            self._records.append(record)

    @property
    def full(self) -> bool:
        """Whether the page and the proof that another one follows are there."""
        return self._found and len(self._records) > self._limit

    def finished(self) -> tuple[Sequence[DeadLetterRecord], str | None]:
        """Return the page, and a cursor if there is more."""
        page = self._records[: self._limit]
        if len(self._records) <= self._limit or not page:
            return page, None
        return page, f"{page[-1].dead_lettered_at}.{page[-1].job.id}"
