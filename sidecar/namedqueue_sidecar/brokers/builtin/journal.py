"""Group commit: all that happened in one turn of the loop goes into one transaction.

While a commit is under way (an fsync takes longer than hundreds of jobs take Python) the next
group gathers. So one caller waits for one fsync, and a thousand callers wait for the same one.

When a commit fails (the disk is full) nothing of it was applied. Whoever asked to be told hears
the error and undoes his part. What nobody waits for, acknowledgements and delivery marks, is
carried into the next group, which is tried again until it succeeds.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from namedqueue_sidecar.brokers.builtin.storage import Batch, Storage

RETRY_PAUSE: Final = 1.0

Then: TypeAlias = Callable[[Exception | None], None]


class _Group:
    """A batch in the making: what somebody waits for, and what nobody does."""

    __slots__ = ("awaited", "plain", "thens")

    def __init__(self) -> None:
        self.awaited = Batch()
        self.plain = Batch()
        self.thens: list[Then] = []

    def __bool__(self) -> bool:
        return bool(self.thens or self.plain)

    def batch(self) -> Batch:
        whole = Batch()
        whole.extend(self.awaited)
        whole.extend(self.plain)
        return whole


class Journal:
    """The one writer of a storage."""

    def __init__(self, storage: Storage, loop: asyncio.AbstractEventLoop) -> None:
        self._storage = storage
        self._loop = loop
        self._group = _Group()
        self._scheduled = False
        self._committing = False
        self._rounds: list[asyncio.Future[None]] = []
        self.problem: str | None = None

    def remove(self, seqs: Sequence[int]) -> None:
        """Remove messages soon."""
        self._group.plain.removed.extend(seqs)
        self._schedule()

    def mark_delivered(self, seqs: Sequence[int]) -> None:
        """Note soon that these were given out, so that a crash cannot hide it."""
        self._group.plain.delivered.extend(seqs)
        self._schedule()

    def trim(self, stream: int, first: int) -> None:
        """Remove soon what a stream has below an offset."""
        self._group.plain.trimmed.append((stream, first))
        self._schedule()

    def write(self, change: Batch, then: Then) -> None:
        """Apply a change with the others of this turn; `then` hears of its commit or its failure.

        Calls of `then` come in the order of writing.
        """
        self._group.awaited.extend(change)
        self._group.thens.append(then)
        self._schedule()

    async def written(self, change: Batch, then: Then | None = None) -> None:
        """Apply a change and return when it is safe; `then` is called in any case."""
        waiter: asyncio.Future[None] = self._loop.create_future()

        def committed(error: Exception | None) -> None:
            if then is not None:
                then(error)
            if not waiter.done():
                waiter.set_exception(error) if error else waiter.set_result(None)

        self.write(change, committed)
        await waiter

    async def drain(self) -> None:
        """Return when everything is safe, or when it is clear that it will not be."""
        while self._group or self._committing:
            self._schedule()
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._rounds.append(waiter)
            await waiter
            if self.problem is not None and not self._group.thens:
                return

    def _schedule(self) -> None:
        if not self._scheduled and not self._committing:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._committing or not self._group:
            return
        group, self._group = self._group, _Group()
        self._committing = True
        self._storage.commit(group.batch(), partial(self._committed, group))

    def _committed(self, group: _Group, error: Exception | None) -> None:
        self._committing = False
        if error is None:
            self.problem = None
        else:
            self.problem = f"the last write to the storage failed: {error}"
            group.plain.extend(self._group.plain)
            self._group.plain = group.plain
            self._loop.call_later(RETRY_PAUSE, self._flush)
        for then in group.thens:
            self._tell(then, error)
        rounds, self._rounds = self._rounds, []
        for waiter in rounds:
            if not waiter.done():
                waiter.set_result(None)
        if self._group and (error is None or self._group.thens):
            self._schedule()

    def _tell(self, then: Then, error: Exception | None) -> None:
        """One listener that raises must not keep the others from hearing."""
        try:
            then(error)
        except Exception as fault:  # noqa: BLE001 - reported to the loop, as for any callback
            self._loop.call_exception_handler(
                {"message": "a listener to a commit raised", "exception": fault}
            )
