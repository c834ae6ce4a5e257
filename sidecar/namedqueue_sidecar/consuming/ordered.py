"""The worker of a FIFO queue: the jobs of a group run one after another, groups side by side.

A failed attempt is repeated in place. While its job rests only its group waits, and the slot goes
to another group. A job that failed for good is published to the dead letters, confirmed, then
acknowledged, and its group goes on. So a job ends in one of three ways: processed, dead-lettered,
or not finished, which means that it goes back to the queue in its old place.

Every step is a plain call from the event loop, in this order: `deliver`, `_start`, `_attempt`,
`_answered`, `_conclude`. A job is in its line from its delivery until it is settled. With a guard
there are two steps more: `_claimed` before the app is called, `_record` before the job is settled.

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
from collections.abc import Sequence
from functools import partial

from namedqueue import retry
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.idempotency import Claim, Refused, State
from namedqueue.keypaths import extract
from namedqueue.outcomes import Attempted, Kind, Outcome, invalid
from namedqueue.topology.fifo import LOOK_AHEAD
from namedqueue_sidecar.brokers.port import Delivery
from namedqueue_sidecar.consuming.alarm import Alarm
from namedqueue_sidecar.consuming.attempts import Attempt, InFlight, next_stage
from namedqueue_sidecar.consuming.copies import Copies
from namedqueue_sidecar.consuming.flights import Flights, pushed
from namedqueue_sidecar.consuming.gate import LONGEST_ABSENCE, Gate
from namedqueue_sidecar.consuming.groups import Group, Groups, Place
from namedqueue_sidecar.consuming.onward import Onward
from namedqueue_sidecar.consuming.outbox import Outbox
from namedqueue_sidecar.consuming.progress import Progress
from namedqueue_sidecar.consuming.resting import Resting
from namedqueue_sidecar.consuming.rules import Calling, Rules
from namedqueue_sidecar.consuming.tally import Tally
from namedqueue_sidecar.consuming.workplace import Workplace


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

    def __init__(self, workplace: Workplace) -> None:
        fifo = workplace.queue.spec.durable_or_default.fifo
        if fifo is None:
            raise ValueError(f"{workplace.key} has no spec.durable.fifo, so no groups")
        self.key = workplace.key
        self.tally = Tally(*self.key)
        self.gate = Gate(workplace.ready, self._gate_moved)
        self._workplace = workplace
        self._fifo = fifo
        self._loop = asyncio.get_running_loop()
        self._rules = Rules.of(workplace.queue)
        self._calling = Calling.of(workplace.queue, workplace.share, self._loop.time())
        self._groups = Groups()
        self._resting = Resting(self._rested)
        self._runs = Flights[_Run]()
        self._progress = Progress()
        self._copies = Copies(workplace.memory)
        self._onward = Onward(Outbox(workplace.broker), workplace.guard)
        self._absence = Alarm(self._release)
        self._alarm = Alarm(self._start)
        self._released = True
        self._draining = False
        self._subscription = workplace.broker.subscribe(
            self.key, self, prefetch=0, partitions=fifo.partitions
        )

    def update(self, queue: NamedQueue, share: float) -> None:
        """Follow a changed spec or share of the rate limit; jobs in flight go on as begun."""
        self._rules, self._calling = Rules.of(queue), Calling.of(queue, share, self._loop.time())
        self._start()

    def start(self) -> None:
        """Begin; the first job is taken when the app is there."""
        self.gate.close()

    @property
    def flights(self) -> list[InFlight]:
        """What the app is working on."""
        return pushed(self._runs, self._calling.timeout_ms)

    async def drain(self, patience: float) -> None:
        """Take no more, finish what the app has begun; the rest goes back as we let go."""
        self._draining = True
        await self._subscription.stop()
        await self._runs.landed(patience)
        await self.gate.stop()
        self._absence.cancel()
        self._alarm.cancel()
        self._resting.stop()
        self.tally.handed_back(len(self._groups))
        for run in self._runs:
            run.delivery = None
            if not run.moving:
                self.tally.let_go()
            self._onward.end(run, State.RECEIVED)
        self._runs.clear()
        await self._subscription.close()

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
        self._resting.stop()
        for run in tuple(self._runs):
            run.delivery = None
            if run.moving:
                self._runs.land(run)
                self._onward.end(run, State.FAILED)
                run.group.busy = False
        self._remember(self._groups.void())

    def _start(self) -> None:
        """Start what may start now, and see to the rest later."""
        if self._released:
            self._hand_back_what_rests()
            return
        while self._may_start:
            pause = self._calling.pace.take(self._loop.time())
            if pause > 0:
                self._alarm.set(pause)
                return
            self._attempt(self._groups.take())

    @property
    def _may_start(self) -> bool:
        return (
            self._groups.any_ready
            and self.gate.is_open
            and len(self._runs) < self._calling.slots
            and not self._draining
        )

    def _attempt(self, group: Group) -> None:
        head = group.line[0]
        if head.delivery.redelivered and self._copies.take_done(head.delivery.job):
            self.tally.copy_dropped()
            self._settle(group)
            return
        run = _Run(group, self._loop.time(), self._workplace.now_ms())
        self._runs.begin(run)
        self.tally.started(run.waited_ms)
        problem, guard = self._rules.problem_with(run.job), self._workplace.guard
        if problem is not None:
            self._conclude(run, invalid(problem))
        elif guard is None:
            self._call(run)
        elif not guard.claim(run, partial(self._claimed, run)):
            self._conclude(run, invalid(guard.keyless))

    def _call(self, run: _Run) -> None:
        self._workplace.app.post(self._calling.call(run.job), partial(self._answered, run))

    def _claimed(self, run: _Run, answer: Claim | Refused | None) -> None:
        """Call the app if the key is ours; else see to the job without it, or let it rest."""
        run.claim = answer if isinstance(answer, Claim) else None
        ours = run in self._runs and (run.delivery is not None or self._came_again(run))
        if run.claim is not None and ours:
            run.began, run.began_at = self._loop.time(), self._workplace.now_ms()
            self._call(run)
            return
        self._onward.end(run, State.RECEIVED)
        if run not in self._runs:
            return  # let go at the end of a drain
        self.tally.let_go()
        self._runs.land(run)
        if not ours:
            self._groups.free(run.group)
        elif answer is Refused.DUPLICATE:
            self._settle(run.group)
        elif answer is Refused.IN_PROGRESS:
            self._resting.begin(run.group, self._rules.policy.delay.seconds)
        else:
            self._groups.free(run.group)
            self.gate.close()
        self._start()

    def _answered(self, run: _Run, attempted: Attempted) -> None:
        if run not in self._runs:
            return  # let go at the end of a drain
        self._conclude(run, self._rules.outcome(attempted, self._workplace.now_ms()))
        self._start()

    def _conclude(self, run: _Run, outcome: Outcome) -> None:
        seconds = self._loop.time() - run.began
        self.tally.answered(outcome, seconds)
        decision = self._rules.decide(run.job, outcome, self._workplace.random())
        if run.delivery is None and not self._came_again(run):
            self._land_stray(run, decision, outcome, seconds)
            return
        match decision:
            case retry.Ack() | retry.Drop():
                self.tally.ended(run.job.attempt, dead=False)
                if run.claim is None:
                    self._runs.land(run)
                    self._settle(run.group)
                else:
                    self._onward.record(run, State.PROCESSED, partial(self._finish, run))
            case retry.Pause():
                self._onward.end(run, State.RECEIVED)
                self._runs.land(run)
                self._groups.free(run.group)
                self.gate.close()
            case retry.Retry() as again:
                self._onward.end(run, State.FAILED)
                self._runs.land(run)
                run.group.line[0].job = run.job.retried(again, run.record(outcome, seconds))
                self._resting.begin(run.group, again.delay_ms / 1000)
            case retry.DeadLetter() as reason:
                self.tally.ended(run.job.attempt, dead=True)
                record, now = run.record(outcome, seconds), self._workplace.now_ms()
                letter = next_stage(self.key, run.job, reason, record, now)
                self._onward.publish(run, letter, partial(self._finish, run))

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
        self._runs.land(run)
        processed = outcome.kind in (Kind.PROCESSED, Kind.DROPPED)
        self._onward.end(run, State.PROCESSED if processed else State.FAILED)
        if processed:
            self._copies.done(run.as_delivered)
        elif isinstance(decision, retry.Retry):
            again = run.job.retried(decision, run.record(outcome, seconds))
            self._progress.remember(run.as_delivered, again)
        self._groups.free(run.group)

    def _finish(self, run: _Run) -> None:
        """Settle the job; of a void delivery remember that it needs no attempt."""
        if run.delivery is None:
            self._copies.done(run.as_delivered)
        elif run in self._runs:
            self._runs.land(run)
            self._settle(run.group)
        self._start()

    def _settle(self, group: Group) -> None:
        delivery = self._groups.settle(group).delivery
        self._copies.acked(delivery.job)
        self._subscription.ack((delivery,))

    def _rested(self, group: Group) -> None:
        self._groups.free(group)
        self._start()

    def _gate_moved(self) -> None:
        self._absence.cancel()
        if not self.gate.is_open:
            self._absence.set(LONGEST_ABSENCE)
        elif not self._draining:
            self._released = False
            self._subscription.set_prefetch(LOOK_AHEAD * self._fifo.partitions)
            self._start()

    def _release(self) -> None:
        """Let another pod work: this one's app has been away for too long."""
        self._released = True
        self._subscription.set_prefetch(0)
        self._hand_back_what_rests()

    def _hand_back_what_rests(self) -> None:
        """Hand back everything but what is with the app or on its way to the dead letters."""
        self._resting.stop()
        left = self._groups.leave()
        if left:
            self._remember(left)
            self.tally.handed_back(len(left))
            self._subscription.hand_back([place.delivery for place in left])

    def _remember(self, places: Sequence[Place]) -> None:
        for place in places:
            self._progress.remember(place.delivery.job, place.job)
