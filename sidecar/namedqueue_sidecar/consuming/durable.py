"""The worker of a durable queue: each delivery becomes one attempt, and ends in one of four ways.

    processed     acknowledged
    to be retried published to the ladder, confirmed, then acknowledged
    failed        published to the dead letters, confirmed, then acknowledged
    not started   handed back: the app is away, we are draining, or another pod is idle

Every step is a plain call from the event loop, in this order: `deliver`, `_start`, `_attempt`,
`_answered`, `_conclude`. A job is in `_waiting` or in `_flights`, never in both. With a guard there
are two steps more: `_claimed` before the app is called, and a record in the store before the
acknowledgement (`onward.py`).

When the connection is lost its deliveries are void, but the app may be at work on them. Those
flights go on as strays. The broker gives their jobs out again: if the job comes back to us while
its stray still flies the two are joined, and if it comes after the stray has landed it is
recognised and not run again.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from namedqueue import retry
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.idempotency import Claim, Refused, State
from namedqueue.outcomes import Attempted, Kind, Outcome, invalid
from namedqueue_sidecar.brokers.port import Dead, Delivery, Main
from namedqueue_sidecar.consuming.alarm import Alarm
from namedqueue_sidecar.consuming.attempts import Attempt, InFlight, next_stage, put_off
from namedqueue_sidecar.consuming.copies import Copies
from namedqueue_sidecar.consuming.flights import Flights, pushed
from namedqueue_sidecar.consuming.gate import Gate
from namedqueue_sidecar.consuming.hands import Hands
from namedqueue_sidecar.consuming.onward import Onward
from namedqueue_sidecar.consuming.outbox import Outbox
from namedqueue_sidecar.consuming.rules import Calling, Rules
from namedqueue_sidecar.consuming.tally import Tally
from namedqueue_sidecar.consuming.workplace import Workplace

LONGEST_UNSTARTED: Final = 1.0
"""Seconds that a job may wait behind busy slots before it is handed back for an idle pod."""

QUICK: Final = 0.01
SLOW: Final = 0.05
"""Handlers below QUICK seconds are given a job ahead for each slot, above SLOW no longer."""


class DurableWorker:
    """Works off one durable queue with the app beside it."""

    def __init__(self, workplace: Workplace) -> None:
        self.key = workplace.key
        self.tally = Tally(*self.key)
        self.gate = Gate(workplace.ready, self._gate_moved)
        self._workplace = workplace
        self._loop = asyncio.get_running_loop()
        self._rules = Rules.of(workplace.queue)
        self._calling = Calling.of(workplace.queue, workplace.share, self._loop.time())
        self._waiting: deque[tuple[Delivery, float]] = deque()
        self._flights = Flights[Attempt]()
        self._copies = Copies(workplace.memory)
        self._onward = Onward(Outbox(workplace.broker), workplace.guard)
        self._alarm = Alarm(self._start)
        self._typical = SLOW
        self._ahead = False
        self._draining = False
        self._subscription = workplace.broker.subscribe(self.key, self, prefetch=0)
        self._hands = Hands(self._subscription, self._copies, self.tally)

    def update(self, queue: NamedQueue, share: float) -> None:
        """Follow a changed spec or share of the rate limit; jobs in flight go on as begun."""
        self._rules, self._calling = Rules.of(queue), Calling.of(queue, share, self._loop.time())
        self._subscription.set_prefetch(self._prefetch)
        self._start()

    def start(self) -> None:
        """Begin; the first job is taken when the app is there."""
        self.gate.close()

    @property
    def flights(self) -> list[InFlight]:
        """What the app is working on."""
        return pushed(self._flights, self._calling.timeout_ms)

    async def drain(self, patience: float) -> None:
        """Take no more, finish what the app has begun, hand back the rest; then let go."""
        self._draining = True
        await self._subscription.stop()
        self._hand_back_waiting()
        await self._flights.landed(patience)
        await self.gate.stop()
        self._alarm.cancel()
        self._hands.hand_back([flight.delivery for flight in self._flights if flight.delivery])
        for flight in self._flights:
            flight.delivery = None
            if not flight.moving:
                self.tally.let_go()
            self._onward.end(flight, State.RECEIVED)
        self._flights.clear()
        await self._subscription.close()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take jobs over from the broker."""
        now = self._loop.time()
        self._waiting.extend((delivery, now) for delivery in deliveries)
        if self._draining or not self.gate.is_open:
            self._hand_back_waiting()
        else:
            self._start()

    def lost(self) -> None:
        """Void what we hold: the broker gives it out again."""
        self._waiting.clear()
        self._copies.connection_lost()
        for flight in tuple(self._flights):
            flight.delivery = None
            if flight.moving:
                self._flights.land(flight)
                self._onward.end(flight, State.FAILED)
            else:
                self._copies.stray(flight.job, flight)

    def _start(self) -> None:
        """Start what may start now, and see to the rest later."""
        while self._waiting and self.gate.is_open:
            if len(self._flights) >= self._calling.slots:
                self._hand_back_what_waited()
                self._alarm.set(LONGEST_UNSTARTED)
                return
            pause = self._calling.pace.take(self._loop.time())
            if pause > 0:
                self._alarm.set(pause)
                return
            self._attempt(self._waiting.popleft()[0])

    def _hand_back_what_waited(self) -> None:
        """Give jobs that found no slot here to a pod that has one."""
        latest = self._loop.time() - LONGEST_UNSTARTED
        if self._waiting[0][1] > latest:
            return
        self._look_ahead(wanted=False)
        stale = []
        while self._waiting and self._waiting[0][1] <= latest:
            stale.append(self._waiting.popleft()[0])
        self._hands.hand_back(stale)

    def _attempt(self, delivery: Delivery) -> None:
        if delivery.redelivered and self._hands.recognised(delivery):
            return
        flight = Attempt(delivery, self._loop.time(), self._workplace.now_ms())
        self._flights.begin(flight)
        self.tally.started(flight.waited_ms)
        problem, guard = self._rules.problem_with(flight.job), self._workplace.guard
        if problem is not None:
            self._conclude(flight, invalid(problem))
        elif guard is None:
            self._call(flight)
        elif not guard.claim(flight, partial(self._claimed, flight)):
            self._conclude(flight, invalid(guard.keyless))

    def _call(self, flight: Attempt) -> None:
        self._workplace.app.post(self._calling.call(flight.job), partial(self._answered, flight))

    def _claimed(self, flight: Attempt, answer: Claim | Refused | None) -> None:
        """Call the app if the key is ours; else see to the job without it."""
        flight.claim = answer if isinstance(answer, Claim) else None
        delivery = flight.delivery
        if flight.claim is not None and flight in self._flights and delivery is not None:
            flight.began, flight.began_at = self._loop.time(), self._workplace.now_ms()
            self._call(flight)
            return
        self._onward.end(flight, State.RECEIVED)
        if flight not in self._flights:
            return  # handed back at the end of a drain
        self.tally.let_go()
        if delivery is None:
            self._copies.forget_stray(flight.job)
            self._flights.land(flight)
        elif answer is Refused.DUPLICATE:
            self._finish(flight)
        elif answer is Refused.IN_PROGRESS:
            later = put_off(self.key, flight.job, self._rules.policy, self._workplace.random())
            self._move_on(flight, later)
        else:
            self._flights.land(flight)
            self._hands.hand_back([delivery])
            self.gate.close()

    def _answered(self, flight: Attempt, attempted: Attempted) -> None:
        if flight not in self._flights:
            return  # handed back at the end of a drain
        self._conclude(flight, self._rules.outcome(attempted, self._workplace.now_ms()))
        self._start()

    def _conclude(self, flight: Attempt, outcome: Outcome) -> None:
        seconds = self._loop.time() - flight.began
        self.tally.answered(outcome, seconds)
        self._learn(seconds)
        job, delivery = flight.job, flight.delivery
        if delivery is None:
            self._land_stray(flight, outcome)
            return
        match self._rules.decide(job, outcome, self._workplace.random()):
            case retry.Ack() | retry.Drop():
                self.tally.ended(job.attempt, dead=False)
                if flight.claim is None:
                    self._flights.land(flight)
                    self._hands.ack(delivery)
                else:
                    self._onward.record(flight, State.PROCESSED, partial(self._finish, flight))
            case retry.Pause():
                self._onward.end(flight, State.RECEIVED)
                self._flights.land(flight)
                self._hands.hand_back([delivery])
                self.gate.close()
            case (retry.Retry() | retry.DeadLetter()) as decision:
                if isinstance(decision, retry.DeadLetter):
                    self.tally.ended(job.attempt, dead=True)
                record, now = flight.record(outcome, seconds), self._workplace.now_ms()
                self._move_on(flight, next_stage(self.key, job, decision, record, now))

    def _move_on(self, flight: Attempt, publication: Main | Dead) -> None:
        """Publish to the next stage; the slot stays taken until the job is safe there."""
        self._onward.publish(flight, publication, partial(self._finish, flight))

    def _finish(self, flight: Attempt) -> None:
        """Free the slot and acknowledge; of a void delivery remember that it needs no attempt."""
        self._flights.land(flight)
        if flight.delivery is None:
            self._copies.done(flight.job)
        else:
            self._hands.ack(flight.delivery)
        self._start()

    def _land_stray(self, flight: Attempt, outcome: Outcome) -> None:
        """End a flight whose delivery is void: what was processed must not run again."""
        self._flights.land(flight)
        self._copies.forget_stray(flight.job)
        processed = outcome.kind in (Kind.PROCESSED, Kind.DROPPED)
        self._onward.end(flight, State.PROCESSED if processed else State.FAILED)
        if processed:
            self._copies.done(flight.job)

    def _hand_back_waiting(self) -> None:
        self._hands.hand_back([delivery for delivery, _ in self._waiting])
        self._waiting.clear()

    def _gate_moved(self) -> None:
        self._subscription.set_prefetch(self._prefetch)
        if self.gate.is_open:
            self._start()
        else:
            self._hand_back_waiting()

    def _learn(self, seconds: float) -> None:
        """Follow how long handlers take, and fetch ahead only while they are quick."""
        self._typical += (seconds - self._typical) / 16
        if self._typical < QUICK:
            self._look_ahead(wanted=True)
        elif self._typical > SLOW:
            self._look_ahead(wanted=False)

    def _look_ahead(self, *, wanted: bool) -> None:
        if self._ahead is not wanted:
            self._ahead = wanted
            self._subscription.set_prefetch(self._prefetch)

    @property
    def _prefetch(self) -> int:
        if self._draining or not self.gate.is_open:
            return 0
        return self._calling.pace.at_most(self._calling.slots * (2 if self._ahead else 1))
