"""Jobs of an ephemeral queue between two attempts, in this process's memory.

Such a queue has no ladder and no dead letters. A job that failed waits here for the policy's delay
and is then sent to its queue again, not persistent, as the next attempt; one that failed for good
is dropped. It is acknowledged when it comes in here, so what is here ends with the process. A drain
does not lose it: whatever still waits is sent to its queue at once, for another pod.

Nothing is dropped in silence: each drop is counted, and each reason is logged once.
"""

import asyncio
import contextlib
import logging
from functools import partial
from itertools import count
from typing import Final

from namedqueue import codes
from namedqueue.envelope import Job
from namedqueue_sidecar.brokers.port import Broker, Main, Publication, QueueKey, Topic
from namedqueue_sidecar.consuming.outbox import Arrived, Outbox, StillOurs
from namedqueue_sidecar.consuming.tally import Tally

MOST_JOBS: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024

_MOST_REASONS: Final = 100
_log = logging.getLogger(__name__)


class Interims:
    """Takes publications as an outbox does, and sees them through in memory."""

    def __init__(self, key: QueueKey, broker: Broker) -> None:
        self._key = key
        self._tally = Tally(*key, ephemeral=True)
        self._outbox = Outbox(broker)
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        self._jobs: dict[int, Job] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._bytes = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._closed = False
        self._reasons: set[str] = set()

    def send(
        self,
        publication: Publication,
        arrived: Arrived,
        still_ours: StillOurs,  # noqa: ARG002 - it is ours: memory is there at once
    ) -> None:
        """Take over a job that is to be retried, or drop one that is not; it has arrived then."""
        if isinstance(publication, Main):
            self._keep(publication.job, publication.delay_ms)
        elif not isinstance(publication, Topic):
            self._say(publication.record.reason.code, publication.record.reason.message)
        arrived()

    async def close(self, patience: float) -> None:
        """Send what waits to its queue at once, and drop what does not get there in time."""
        for number, timer in tuple(self._timers.items()):
            timer.cancel()
            self._due(number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), patience)
        self._closed = True
        for job in self._jobs.values():
            self._drop(job, codes.INTERRUPTED, "the broker did not take it back before the end")
        self._jobs.clear()

    def _keep(self, job: Job, delay_ms: int) -> None:
        if self._closed or len(self._jobs) >= MOST_JOBS or self._bytes > MOST_BYTES:
            self._drop(job, codes.NO_ROOM, "too many jobs wait for their next attempt here")
            return
        number = next(self._numbers)
        self._jobs[number] = job
        self._bytes += len(job.payload)
        self._empty.clear()
        self._timers[number] = self._loop.call_later(delay_ms / 1000, self._due, number)

    def _due(self, number: int) -> None:
        del self._timers[number]
        again = Main(self._key, self._jobs[number], persistent=False)
        self._outbox.send(again, partial(self._left, number), lambda: not self._closed)

    def _left(self, number: int) -> None:
        job = self._jobs.pop(number, None)
        if job is not None:
            self._bytes -= len(job.payload)
        if not self._jobs:
            self._empty.set()

    def _drop(self, job: Job, code: str, message: str) -> None:
        self._tally.ended(job.attempt, dead=True)
        self._say(code, message)

    def _say(self, code: str, message: str) -> None:
        if code not in self._reasons and len(self._reasons) < _MOST_REASONS:
            self._reasons.add(code)
            _log.warning(
                "%s: a job was dropped with %s: %s; further ones are only counted",
                self._key,
                code,
                message,
                extra={"action": "drop", "queue": str(self._key), "code": code},
            )
