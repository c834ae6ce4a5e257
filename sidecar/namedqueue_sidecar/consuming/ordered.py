"""The worker of a FIFO queue: the jobs of a group run one after another, groups side by side.

A failed attempt is repeated in place. While its job rests only its group waits, and the slot goes
to another group. A job that failed for good is published to the dead letters, confirmed, then
acknowledged, and its group goes on. So a job ends in one of three ways: processed, dead-lettered,
or not finished, which means that it goes back to the queue in its old place.

Every step is a plain call from the event loop, in this order: `deliver`, `_start`, `_attempt`,
`_answered`, `_conclude`. A job is in its line from its delivery until it is settled.

Order holds through trouble, because nothing is ever handed back singly while we go on:

    the app is away    its jobs stay in line; only when it has been away for LONGEST_ABSENCE are
                       they handed back, all of them, for another pod
    a drain            nothing new is started; what was not finished goes back with the subscription
    a lost connection  all deliveries are void, and the broker gives them out again in order; a
                       group whose head is still with the app waits for it, and if its job comes
                       again meanwhile the two are joined

What the app was given just before a crash may run twice, in this pod or in another, like
everywhere. How many jobs are held is LOOK_AHEAD for each partition, whatever the concurrency: a
blocked group holds up others of its partition only once so many of its jobs stand in line, and
the broker can put back in order only what a consumer takes in one go, so all pods take the same.

A job without a group, from a stranger, has the one that `groupBy` finds in it. Jobs in which that
finds nothing are one group together: where order is in doubt it is kept.
"""

import asyncio
import contextlib
import random as randomness
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from namedqueue import retry
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.deadletters import bury
from namedqueue.envelope import Job
from namedqueue.keypaths import extract
from namedqueue.outcomes import Attempted, Kind, Outcome, classify, invalid
from namedqueue.topology.fifo import LOOK_AHEAD
from namedqueue_sidecar.app.calls import Caller
from namedqueue_sidecar.app.port import App
from namedqueue_sidecar.brokers.port import Broker, Dead, Delivery, QueueKey, Subscription
from namedqueue_sidecar.consuming.attempts import Attempt, InFlight
from namedqueue_sidecar.consuming.copies import Copies, Memory
from namedqueue_sidecar.consuming.gate import Gate
from namedqueue_sidecar.consuming.groups import Group, Groups, Place
from namedqueue_sidecar.consuming.outbox import Outbox
from namedqueue_sidecar.consuming.pace import Pace
from namedqueue_sidecar.consuming.progress import Progress
from namedqueue_sidecar.consuming.tally import Tally
from namedqueue_sidecar.consuming.validation import validator

LONGEST_ABSENCE: Final = 30.0
"""Seconds that jobs wait here for an app that is away before another pod may have them."""


class _Run(Attempt):
    """An attempt at the head of a group; `as_delivered` is the job as the broker knows it."""

    __slots__ = ("as_delivered", "group")

    def __init__(self, group: Group, began: float, began_at: int) -> None:
        head = group.line[0]
        super().__init__(head.delivery, began, began_at)
        self.job = head.job
        self.group = group
        self.as_delivered = head.delivery.job


class OrderedWorker:
    """Works off one FIFO queue with the app beside it."""

    def __init__(
        self,
        queue: NamedQueue,
        broker: Broker,
        app: App,
        *,
        share: float = 1.0,
        memory: Memory | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        fifo = queue.spec.durable_or_default.fifo
        if fifo is None:
            raise ValueError(f"{queue.metadata.name} has no spec.durable.fifo, so no groups")
        self.key = QueueKey(queue.metadata.namespace, queue.metadata.name)
        self._fifo = fifo
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._now_ms = now_ms
        self._random = random
        self._app = app
        self.tally = Tally(*self.key)
        self._outbox = Outbox(broker)
        self._gate = Gate(app, self._gate_moved)
        self._groups = Groups()
        self._runs: set[_Run] = set()
        self._resting: dict[Group, asyncio.TimerHandle] = {}
        self._nothing_flies = asyncio.Event()
        self._nothing_flies.set()
        self._copies = Copies[_Run](memory)
        self._progress = Progress()
        self._released = True
        self._draining = False
        self._absence: asyncio.TimerHandle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._subscription: Subscription | None = None
        self.update(queue, share)

    def update(self, queue: NamedQueue, share: float) -> None:
        """Follow a changed spec or share of the rate limit; jobs in flight go on as begun."""
        worker = queue.spec.worker
        if worker is None:
            raise ValueError(f"{self.key} has no spec.worker, so there is no app to call")
        self._spec = queue.spec
        self._caller = Caller(worker, queue.spec.retry)
        self._problem_with = validator(queue.spec.payload_schema)
        self._concurrency = worker.concurrency
        self._timeout_ms = worker.timeout.milliseconds
        self._pace = Pace.of(worker.rate_limit, share, self._loop.time())
        if self._subscription is not None:
            self._start()

    def start(self) -> None:
        """Begin; the first job is taken when the app is there."""
        partitions = self._fifo.partitions
        self._subscription = self._broker.subscribe(self.key, self, 0, partitions=partitions)
        self._gate.close()

    @property
    def in_flight(self) -> int:
        return len(self._runs)

    @property
    def flights(self) -> list[InFlight]:
        """What the app is working on."""
        return [
            InFlight(run.job, "push", run.began_at, run.began_at + self._timeout_ms)
            for run in self._runs
        ]

    @property
    def app_is_there(self) -> bool:
        return self._gate.is_open

    async def drain(self, patience: float) -> None:
        """Take no more, finish what the app has begun; the rest goes back as we let go."""
        self._draining = True
        await self._held.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nothing_flies.wait(), patience)
        await self._gate.stop()
        for timer in (self._absence, self._alarm):
            if timer is not None:
                timer.cancel()
        self._stop_resting()
        self.tally.handed_back(len(self._groups))
        for run in self._runs:
            if not run.moving:
                self.tally.let_go()
        self._runs.clear()
        await self._held.close()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take jobs over from the broker, in the order of their partitions."""
        for delivery in deliveries:
            job = self._progress.resumed(delivery.job) if delivery.redelivered else delivery.job
            if job.group is None:
                job = job._replace(group=extract(self._fifo.group_by, job))
            self._groups.add(job.group or "", Place(delivery, job))
        self._start()

    def lost(self) -> None:
        """Void what we hold: the broker gives it out again."""
        self._copies.connection_lost()
        self._stop_resting()
        for run in tuple(self._runs):
            run.delivery = None
            if run.moving:
                self._land(run)
                run.group.busy = False
        self._remember(self._groups.void())

    def _start(self) -> None:
        """Start what may start now, and see to the rest later."""
        if self._released:
            self._hand_back_what_rests()
            return
        while self._may_start:
            pause = self._pace.take(self._loop.time())
            if pause > 0:
                self._wake_in(pause)
                return
            self._attempt(self._groups.take())

    @property
    def _may_start(self) -> bool:
        return (
            self._groups.any_ready
            and self._gate.is_open
            and len(self._runs) < self._concurrency
            and not self._draining
        )

    def _wake_in(self, seconds: float) -> None:
        if self._alarm is None:
            self._alarm = self._loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._start()

    def _attempt(self, group: Group) -> None:
        head = group.line[0]
        if head.delivery.redelivered and self._copies.take_done(head.delivery.job):
            self.tally.copy_dropped()
            self._settle(group)
            return
        began_at, job = self._now_ms(), head.job
        run = _Run(group, self._loop.time(), began_at)
        self._runs.add(run)
        self._nothing_flies.clear()
        first = job.attempt == 1 and job.throttles == 0
        self.tally.started(began_at - job.enqueued_at if first else None)
        problem = self._problem_with(job)
        if problem is None:
            self._app.post(self._caller.call(job), partial(self._answered, run))
        else:
            self._conclude(run, invalid(problem))

    def _answered(self, run: _Run, attempted: Attempted) -> None:
        if run not in self._runs:
            return  # let go at the end of a drain
        self._conclude(run, classify(attempted, self._spec.errors, now=self._now_ms()))
        self._start()

    def _conclude(self, run: _Run, outcome: Outcome) -> None:
        seconds = self._loop.time() - run.began
        self.tally.answered(outcome, seconds)
        decision = self._decide(run.job, outcome)
        if run.delivery is None and not self._came_again(run):
            self._land_stray(run, decision, outcome, seconds)
            return
        match decision:
            case retry.Ack() | retry.Drop():
                self._land(run)
                self.tally.ended(run.job.attempt, dead=False)
                self._settle(run.group)
            case retry.Pause():
                self._land(run)
                self._groups.free(run.group)
                self._gate.close()
            case retry.Retry() as again:
                self._land(run)
                run.group.line[0].job = run.job.retried(again, run.record(outcome, seconds))
                self._rest(run.group, again.delay_ms / 1000)
            case retry.DeadLetter() as reason:
                self.tally.ended(run.job.attempt, dead=True)
                self._bury(run, reason, outcome, seconds)

    def _decide(self, job: Job, outcome: Outcome) -> retry.Decision:
        policy, draw = self._spec.retry, self._random()
        return retry.decide(policy, job.attempt, outcome, throttles=job.throttles, random=draw)

    def _came_again(self, run: _Run) -> bool:
        """Join a stray with its job, if that is at the head of its line again."""
        if not run.group.line:
            return False
        head, was = run.group.line[0], run.as_delivered
        job = head.delivery.job
        if job.copy_key != was.copy_key or job.enqueued_at != was.enqueued_at:
            return False
        run.delivery = head.delivery
        head.job = run.job
        return True

    def _land_stray(
        self, run: _Run, decision: retry.Decision, outcome: Outcome, seconds: float
    ) -> None:
        """End a run whose delivery is void: what was processed must not run again."""
        self._land(run)
        if outcome.kind in (Kind.PROCESSED, Kind.DROPPED):
            self._copies.done(run.as_delivered)
        elif isinstance(decision, retry.Retry):
            again = run.job.retried(decision, run.record(outcome, seconds))
            self._progress.remember(run.as_delivered, again)
        self._groups.free(run.group)

    def _bury(self, run: _Run, reason: retry.DeadLetter, outcome: Outcome, seconds: float) -> None:
        """Publish to the dead letters; the group waits until the job is safe there."""
        run.moving = True
        record = bury(run.job, reason, run.record(outcome, seconds), self._now_ms())

        def arrived() -> None:
            if run.delivery is None:
                self._copies.done(run.as_delivered)
            elif run in self._runs:
                self._land(run)
                self._settle(run.group)
            self._start()

        publication = Dead(self.key, record)
        self._outbox.send(publication, arrived, still_ours=lambda: run.delivery is not None)

    def _land(self, run: _Run) -> None:
        self._runs.discard(run)
        if not self._runs:
            self._nothing_flies.set()

    def _settle(self, group: Group) -> None:
        delivery = self._groups.settle(group).delivery
        self._copies.acked(delivery.job)
        self._held.ack((delivery,))

    def _rest(self, group: Group, seconds: float) -> None:
        self._resting[group] = self._loop.call_later(seconds, self._rested, group)

    def _rested(self, group: Group) -> None:
        del self._resting[group]
        self._groups.free(group)
        self._start()

    def _stop_resting(self) -> None:
        for group, timer in self._resting.items():
            timer.cancel()
            group.busy = False
        self._resting.clear()

    def _gate_moved(self) -> None:
        if self._absence is not None:
            self._absence.cancel()
            self._absence = None
        if not self._gate.is_open:
            self._absence = self._loop.call_later(LONGEST_ABSENCE, self._release)
        elif not self._draining:
            self._released = False
            self._held.set_prefetch(LOOK_AHEAD * self._fifo.partitions)
            self._start()

    def _release(self) -> None:
        """Let another pod work: this one's app has been away for too long."""
        self._absence = None
        self._released = True
        self._held.set_prefetch(0)
        self._hand_back_what_rests()

    def _hand_back_what_rests(self) -> None:
        """Hand back everything but what is with the app or on its way to the dead letters."""
        self._stop_resting()
        left = self._groups.leave()
        if left:
            self._remember(left)
            self.tally.handed_back(len(left))
            self._held.hand_back([place.delivery for place in left])

    def _remember(self, places: Sequence[Place]) -> None:
        for place in places:
            self._progress.remember(place.delivery.job, place.job)

    @property
    def _held(self) -> Subscription:
        if self._subscription is None:
            raise RuntimeError(f"the worker of {self.key} was never started")
        return self._subscription
