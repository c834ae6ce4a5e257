"""The worker of a stream: pushes it to the app for each group that the manifest names.

Groups are independent of one another. Within a group messages are tried one at a time and in order,
and a failed attempt is repeated in place; `following.py` keeps a group's way. Groups take turns
where they share slots or a rate limit.

One pod at a time follows a group. A pod wishes for its groups while its app is there, and lets
go of them when the app has been away for LONGEST_ABSENCE, for another pod to go on.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from namedqueue import retry
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.handler import stream_headers
from namedqueue.outcomes import Attempted, Outcome, invalid
from namedqueue_sidecar.app.port import Call
from namedqueue_sidecar.consuming.alarm import Alarm
from namedqueue_sidecar.consuming.attempts import Attempt, InFlight
from namedqueue_sidecar.consuming.flights import pushed
from namedqueue_sidecar.consuming.following import Following
from namedqueue_sidecar.consuming.gate import LONGEST_ABSENCE, Gate
from namedqueue_sidecar.consuming.rules import Calling, Rules
from namedqueue_sidecar.consuming.workplace import Workplace
from namedqueue_sidecar.ending import end

_LAST_MOMENT = 10.0
_PATIENCE = 30.0
"""Seconds that a group which is not wanted any more may take for the message it is at."""


class StreamWorker:
    """Pushes one stream to the app beside it."""

    def __init__(self, workplace: Workplace) -> None:
        self.key = workplace.key
        self.gate = Gate(workplace.ready, self._gate_moved)
        self._workplace = workplace
        self._log = workplace.broker.log(self.key)
        self._loop = asyncio.get_running_loop()
        self._groups: dict[str, Following] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._absence = Alarm(self._stand_back)
        self._alarm = Alarm(self._start)
        self._draining = False
        self.update(workplace.queue, workplace.share)

    def update(self, queue: NamedQueue, share: float) -> None:
        """Follow a changed spec or share of the rate limit; attempts under way go on as begun."""
        self._rules, self._calling = Rules.of(queue), Calling.of(queue, share, self._loop.time())
        wanted = {consumer.group: consumer for consumer in queue.spec.stream_or_default.consumers}
        for name in self._groups.keys() - wanted.keys():
            self._leave(self._groups.pop(name))
        for name, consumer in wanted.items():
            if name in self._groups:
                self._groups[name].update(consumer)
            else:
                self._groups[name] = Following(self.key, consumer, self._log, self._start)
        if self.gate.is_open:
            self._follow()

    def start(self) -> None:
        """Begin; the groups are wished for when the app is there."""
        self.gate.close()

    @property
    def groups(self) -> Mapping[str, Following]:
        return self._groups

    @property
    def flights(self) -> list[InFlight]:
        """What the app is working on."""
        return pushed(self._attempts, self._calling.timeout_ms)

    @property
    def troubles(self) -> list[str]:
        """Say which groups halt, and how they go on."""
        return [
            f"group {name} of {self.key} halts at offset {halt.offset}, job {halt.job_id} "
            f"({halt.code}: {halt.message}); mend the app or the manifest, or go past it with "
            f"`nq streams seek {self.key.name} {name} {halt.offset + 1}`"
            for name, group in self._groups.items()
            if (halt := group.halt) is not None
        ]

    async def drain(self, patience: float) -> None:
        """Begin nothing, finish what the app has begun, commit, and let go of the groups."""
        self._draining = True
        ending = [self._loop.create_task(group.stop(patience)) for group in self._groups.values()]
        if ending or self._leaving:
            await asyncio.wait({*ending, *self._leaving}, timeout=patience + _LAST_MOMENT)
        await end(*ending, *self._leaving)
        await self.gate.stop()
        self._absence.cancel()
        self._alarm.cancel()

    def _start(self) -> None:
        """Start what may start now; whoever started last comes last next time."""
        for name, group in tuple(self._groups.items()):
            if not self._may_start:
                return
            if group.may_try:
                pause = self._calling.pace.take(self._loop.time())
                if pause > 0:
                    self._alarm.set(pause)
                    return
                self._groups[name] = self._groups.pop(name)
                self._attempt(group)

    @property
    def _may_start(self) -> bool:
        return (
            self.gate.is_open and not self._draining and len(self._attempts) < self._calling.slots
        )

    @property
    def _attempts(self) -> list[Attempt]:
        return [group.attempt for group in self._groups.values() if group.attempt is not None]

    def _attempt(self, group: Following) -> None:
        attempt = group.begin(self._workplace.now_ms())
        group.tally.started(attempt.waited_ms)
        problem = self._rules.problem_with(attempt.job)
        if problem is None:
            self._workplace.app.post(
                self._call(group, attempt), partial(self._answered, group, attempt)
            )
        else:
            self._loop.call_soon(self._conclude, group, attempt, invalid(problem))

    def _call(self, group: Following, attempt: Attempt) -> Call:
        call = self._calling.call(attempt.job)
        offset = attempt.delivery.tag if attempt.delivery is not None else 0
        return call._replace(headers={**call.headers, **stream_headers(group.name, offset)})

    def _answered(self, group: Following, attempt: Attempt, attempted: Attempted) -> None:
        self._conclude(group, attempt, self._rules.outcome(attempted, self._workplace.now_ms()))

    def _conclude(self, group: Following, attempt: Attempt, outcome: Outcome) -> None:
        if group.attempt is not attempt:
            return  # let go at the end of a drain
        group.land()
        seconds = self._loop.time() - attempt.began
        group.tally.answered(outcome, seconds)
        if attempt.delivery is not None:
            self._carry_out(group, attempt, outcome, seconds)
        self._start()

    def _carry_out(
        self, group: Following, attempt: Attempt, outcome: Outcome, seconds: float
    ) -> None:
        job = attempt.job
        match self._rules.decide(job, outcome, self._workplace.random()):
            case retry.Ack() | retry.Drop():
                group.tally.ended(job.attempt, dead=False)
                group.done()
            case retry.Pause():
                self.gate.close()
            case retry.Retry() as again:
                record = attempt.record(outcome, seconds)
                group.again(job.retried(again, record), again.delay_ms / 1000)
            case retry.DeadLetter() as reason:
                group.failed(reason)

    def _gate_moved(self) -> None:
        self._absence.cancel()
        if self.gate.is_open:
            self._follow()
        else:
            self._absence.set(LONGEST_ABSENCE)

    def _follow(self) -> None:
        if not self._draining:
            for group in self._groups.values():
                group.start()
            self._start()

    def _stand_back(self) -> None:
        """Let another pod follow: this one's app has been away for too long."""
        for group in self._groups.values():
            self._leave(group)

    def _leave(self, group: Following) -> None:
        task = self._loop.create_task(self._left(group))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _left(self, group: Following) -> None:
        await group.stop(_PATIENCE)
        if self.gate.is_open and group in self._groups.values():
            self._follow()
