"""One redrive as it runs: what it may send, how fast, and how far it is.

A run is the `Course` that a broker follows. It ends when nothing is left that was asked for, at its
limit, when too many of its jobs have come straight back, or when it is told to stop.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from enum import StrEnum
from typing import Final, TypeAlias

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.deadletters import DeadLetterRecord, redriven
from namedqueue.envelope import Job
from namedqueue_sidecar.brokers.port import DeadLetters
from namedqueue_sidecar.redriving.wishes import Wish

_AT_ONCE: Final = 500
_CATCH_UP: Final = 1.0
"""Seconds of its rate that a redrive may catch up with after it was held up."""

Moved: TypeAlias = Callable[[Sequence[DeadLetterRecord]], None]
Kept: TypeAlias = Callable[["Run"], Awaitable[None]]
Change: TypeAlias = Callable[[Job], Job]


class Phase(StrEnum):
    """Where a redrive stands."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    ABORTED = "Aborted"
    STOPPED = "Stopped"
    FAILED = "Failed"


def max_length_of(queue: NamedQueue) -> int | None:
    """Return how many jobs may be ready in a queue; None where that is not bounded as a whole."""
    durable = queue.spec.durable_or_default
    return None if durable.fifo is not None else durable.max_length


class Run:
    """A redrive under way, and its figures."""

    def __init__(
        self,
        name: str,
        wish: Wish,
        *,
        most_ready: int | None = None,
        moved: Moved = lambda _: None,
        kept: Kept | None = None,
        change: Change = lambda job: job,
    ) -> None:
        """Call `moved` with letters that are on their way, and `kept` when all are.

        Jobs go back as `change` makes them.
        """
        self.name = name
        self.phase = Phase.WAITING
        self.redriven = 0
        self.failed = 0
        self._wish = wish
        self._found: int | None = None
        self._before = 0
        self._moved = moved
        self._kept = kept
        self._change = change
        self.why = ""
        """Why it ended before its end."""
        self.most_ready = most_ready
        self._stopping = asyncio.Event()
        self._due: float | None = None

    @property
    def wary(self) -> int | None:
        return self._wish.abort_after_failures

    @property
    def at_once(self) -> int:
        """How many jobs may be on their way together: at most a second's worth."""
        if self._stopping.is_set() or self.phase in (Phase.ABORTED, Phase.STOPPED):
            return 0
        rate, limit = self._wish.rate_per_second, self._wish.limit
        batch = _AT_ONCE if rate is None else max(1, min(_AT_ONCE, math.floor(rate)))
        return batch if limit is None else max(0, min(batch, limit - self.redriven))

    @property
    def ahead(self) -> int:
        """Twice what may go together; jobs that are named are looked for in great strides."""
        return 2 * (_AT_ONCE if self._wish.ids is not None else self.at_once)

    @property
    def matched(self) -> int | None:
        """How many jobs it covers; None before they are counted."""
        if self.phase is Phase.SUCCEEDED and not self._wish.dry_run:
            return self.redriven
        if self._found is None:
            return None
        covered = self._found + self._before
        return covered if self._wish.limit is None else min(covered, self._wish.limit)

    def document(self) -> dict[str, object]:
        """Return how far the redrive is, as people and programs see it."""
        matched = self.matched
        return {
            "redrive": self.name,
            "phase": self.phase.value,
            "matched": matched,
            "redriven": self.redriven,
            "remaining": None if matched is None else max(0, matched - self.redriven),
            "failed": self.failed,
            "message": self.why,
        }

    async def count(self, letters: DeadLetters) -> None:
        """Count what there is to send; that alone is a dry run."""
        found = 0
        async with aclosing(letters.read()) as reading:
            async for record in reading:
                found += self.chooses(record)
                if found == self._wish.limit:
                    break
        self._found = found

    async def go(self, letters: DeadLetters, patience: float) -> None:
        """Send back what was asked for."""
        if self._wish.dry_run:
            await self.count(letters)
        else:
            await letters.redrive(self, patience)
        self._conclude()

    def fail(self, why: str) -> None:
        """End it: it cannot go on."""
        self.phase, self.why = Phase.FAILED, why

    def stop(self) -> None:
        """Take no further letter; what is on its way arrives."""
        self._stopping.set()

    def chooses(self, record: DeadLetterRecord) -> bool:
        return record.job.redrive != self.name and self._wish.chooses(record)

    def sends(self, record: DeadLetterRecord) -> Job:
        return redriven(self._change(record.job), self.name)

    def resumed(self, sent: int) -> None:
        self.phase = Phase.RUNNING
        self.redriven = self._before = sent

    async def release(self, jobs: int) -> int:
        """Keep the rate; at the end what is on its way goes at once."""
        rate, loop = self._wish.rate_per_second, asyncio.get_running_loop()
        if rate is None:
            return jobs
        due = loop.time() if self._due is None else max(self._due, loop.time() - _CATCH_UP)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._stopping.wait()
        if self._stopping.is_set():
            return jobs
        allowed = min(jobs, 1 + math.floor((loop.time() - due) * rate))
        self._due = due + allowed / rate
        return allowed

    def sent(self, letters: Sequence[DeadLetterRecord]) -> None:
        self.phase = Phase.RUNNING
        self.redriven += len(letters)
        self._moved(letters)

    def full(self) -> None:
        self.phase = Phase.STOPPED
        self.why = "the queue is full; go on when there is room"

    def came_back(self, jobs: int) -> None:
        self.failed = max(self.failed, jobs)
        if self.wary is not None and self.failed >= self.wary:
            self.phase = Phase.ABORTED
            self.why = f"{self.failed} of the jobs that were sent came straight back"

    async def ended(self) -> None:
        self._conclude()
        if self._kept is not None:
            await self._kept(self)

    def _conclude(self) -> None:
        if self.phase in (Phase.WAITING, Phase.RUNNING):
            stopped = self._stopping.is_set()
            self.phase = Phase.STOPPED if stopped else Phase.SUCCEEDED
            self.why = "it was told to stop" if stopped else ""
