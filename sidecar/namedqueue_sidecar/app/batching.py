"""An app that is called with many jobs at once, behind the port of one that gets them singly.

A worker posts its jobs as ever; each call holds one entry of a batch. Calls to one path are
gathered until the batch is full or the first of them has waited for `maxWait`, and go out as one
POST. Its answer is taken apart again, so that each job hears its own.

No more than `concurrency` POSTs are under way. A batch whose time has come waits for one of them to
end, and grows while it waits. A batch never holds two jobs of one id, for a result could not say
which it means.
"""

import asyncio
from collections import deque
from functools import partial

from namedqueue import batches
from namedqueue.api.workers import Batch
from namedqueue.outcomes import Attempted, Failure
from namedqueue_sidecar.app.port import App, Call, Done


class _Gathered:
    """A batch that is being gathered."""

    def __init__(self, first: Call) -> None:
        self.first = first
        self.calls: dict[str, tuple[Call, Done]] = {}
        self.bytes = 2
        self.due = False

    def takes(self, call: Call, most: int) -> bool:
        """Tell whether there is room for one more."""
        fits = self.bytes + len(call.body) + 1 <= batches.LARGEST_BODY
        return len(self.calls) < most and fits and call.job_id not in self.calls

    def add(self, call: Call, done: Done) -> None:
        self.calls[call.job_id] = (call, done)
        self.bytes += len(call.body) + 1

    def call(self) -> Call:
        """Return the POST of all of them."""
        entries = [call.body for call, _ in self.calls.values()]
        return self.first._replace(
            body=batches.body(entries),
            job_id="",
            largest_answer=batches.LARGEST_RESULT * len(entries),
        )


class BatchingApp:
    """Gathers calls, and hands out the answers."""

    def __init__(self, app: App, batch: Batch, concurrency: int) -> None:
        self._app = app
        self._most, self._wait = batch.max_messages, batch.max_wait.seconds
        self._free = concurrency
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, _Gathered] = {}
        self._ready: deque[_Gathered] = deque()

    def post(self, call: Call, done: Done) -> None:
        """Call the app with others; `done` gets the answer for this job."""
        gathered = self._open.get(call.path)
        if gathered is None or not gathered.takes(call, self._most):
            self._close(gathered)
            gathered = self._open[call.path] = _Gathered(call)
            self._loop.call_later(self._wait, self._time_is_up, gathered)
        gathered.add(call, done)
        if len(gathered.calls) == self._most:
            self._close(gathered)

    async def ready(self) -> bool:
        """Tell whether the app answers its probe."""
        return await self._app.ready()

    async def close(self) -> None:
        """Drop the connections; calls under way, and those not yet begun, end as resets."""
        waiting = [*self._ready, *self._open.values()]
        self._ready.clear()
        self._open.clear()
        for gathered in waiting:
            self._tell(gathered, Failure.RESET)
        await self._app.close()

    def _time_is_up(self, gathered: _Gathered) -> None:
        gathered.due = True
        if self._free:
            self._close(gathered)

    def _close(self, gathered: _Gathered | None) -> None:
        """Gather no more, and let a batch go out as soon as it may; nothing if it did already."""
        if gathered is None or self._open.get(gathered.first.path) is not gathered:
            return
        del self._open[gathered.first.path]
        self._ready.append(gathered)
        self._send()

    def _send(self) -> None:
        while self._ready and self._free:
            self._free -= 1
            gathered = self._ready.popleft()
            self._app.post(gathered.call(), partial(self._answered, gathered))

    def _answered(self, gathered: _Gathered, answer: Attempted) -> None:
        self._free += 1
        self._tell(gathered, answer)
        self._send()
        for due in [each for each in self._open.values() if each.due][: self._free]:
            self._close(due)

    def _tell(self, gathered: _Gathered, answer: Attempted) -> None:
        each = batches.outcomes(answer, gathered.calls.keys())
        for job_id, (_, done) in gathered.calls.items():
            done(each[job_id])
