"""The worker of a durable queue: each delivery becomes one attempt, and ends in one of four ways.

    processed     acknowledged
    to be retried published to the ladder, confirmed, then acknowledged
    failed        published to the dead letters, confirmed, then acknowledged
    not started   handed back: the app is away, we are draining, or another pod is idle

Every step is a plain call from the event loop, in this order: `deliver`, `_start`, `_attempt`,
`_answered`, `_conclude`. A job is in `_waiting` or in `_flights`, never in both.

When the connection is lost its deliveries are void, but the app may be at work on them. Those
flights go on as strays. The broker gives their jobs out again: if the job comes back to us while
its stray still flies the two are joined, and if it comes after the stray has landed it is
recognised and not run again.
"""

import asyncio
import contextlib
import random as randomness
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from namedqueue import retry
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.envelope import Job
from namedqueue.outcomes import Attempted, Kind, Outcome, classify, invalid
from namedqueue_sidecar.app.calls import Caller
from namedqueue_sidecar.app.port import App
from namedqueue_sidecar.brokers.port import Broker, Dead, Delivery, Main, QueueKey, Subscription
from namedqueue_sidecar.consuming.attempts import Attempt, InFlight, next_stage
from namedqueue_sidecar.consuming.copies import Copies, Memory
from namedqueue_sidecar.consuming.gate import Gate
from namedqueue_sidecar.consuming.outbox import Outbox
from namedqueue_sidecar.consuming.pace import Pace
from namedqueue_sidecar.consuming.tally import Tally
from namedqueue_sidecar.consuming.validation import validator

LONGEST_UNSTARTED: Final = 1.0
"""Seconds that a job may wait behind busy slots before it is handed back for an idle pod."""

QUICK: Final = 0.01
SLOW: Final = 0.05
"""Handlers below QUICK seconds are given a job ahead for each slot, above SLOW no longer."""


class DurableWorker:
    """Works off one durable queue with the app beside it."""

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
        self.key = QueueKey(queue.metadata.namespace, queue.metadata.name)
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._app = app
        self._now_ms = now_ms
        self._random = random
        self.tally = Tally(*self.key)
        self._outbox = Outbox(broker)
        self._gate = Gate(app, self._gate_moved)
        self._waiting: deque[tuple[Delivery, float]] = deque()
        self._flights: set[Attempt] = set()
        self._nothing_flies = asyncio.Event()
        self._nothing_flies.set()
        self._copies = Copies[Attempt](memory)
        self._typical = SLOW
        self._ahead = False
        self._draining = False
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
            self._subscription.set_prefetch(self._prefetch)
            self._start()

    def start(self) -> None:
        """Begin; the first job is taken when the app is there."""
        self._subscription = self._broker.subscribe(self.key, self, prefetch=0)
        self._gate.close()

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    @property
    def flights(self) -> list[InFlight]:
        """What the app is working on."""
        return [
            InFlight(each.job, "push", each.began_at, each.began_at + self._timeout_ms)
            for each in self._flights
        ]

    @property
    def app_is_there(self) -> bool:
        return self._gate.is_open

    async def drain(self, patience: float) -> None:
        """Take no more, finish what the app has begun, hand back the rest; then let go."""
        self._draining = True
        await self._held.stop()
        self._hand_back_waiting()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nothing_flies.wait(), patience)
        await self._gate.stop()
        self._hand_back([flight.delivery for flight in self._flights if flight.delivery])
        for flight in self._flights:
            if not flight.moving:
                self.tally.let_go()
        self._flights.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        await self._held.close()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take jobs over from the broker."""
        now = self._loop.time()
        self._waiting.extend((delivery, now) for delivery in deliveries)
        if self._draining or not self._gate.is_open:
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
                self._land(flight)
            else:
                self._copies.stray(flight.job, flight)

    def _start(self) -> None:
        """Start what may start now, and see to the rest later."""
        while self._waiting and self._gate.is_open:
            if len(self._flights) >= self._concurrency:
                self._hand_back_what_waited()
                self._wake_in(LONGEST_UNSTARTED)
                return
            pause = self._pace.take(self._loop.time())
            if pause > 0:
                self._wake_in(pause)
                return
            self._attempt(self._waiting.popleft()[0])

    def _wake_in(self, seconds: float) -> None:
        if self._alarm is not None:
            if self._alarm.when() <= self._loop.time() + seconds:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._start()

    def _hand_back_what_waited(self) -> None:
        """Give jobs that found no slot here to a pod that has one."""
        latest = self._loop.time() - LONGEST_UNSTARTED
        if self._waiting[0][1] > latest:
            return
        self._look_ahead(wanted=False)
        stale = []
        while self._waiting and self._waiting[0][1] <= latest:
            stale.append(self._waiting.popleft()[0])
        self._hand_back(stale)

    def _attempt(self, delivery: Delivery) -> None:
        job = delivery.job
        if delivery.redelivered and self._recognised(delivery):
            return
        began_at = self._now_ms()
        flight = Attempt(delivery, self._loop.time(), began_at)
        self._flights.add(flight)
        self._nothing_flies.clear()
        self.tally.started(began_at - job.enqueued_at if job.attempt == 1 else None)
        problem = self._problem_with(job)
        if problem is None:
            self._app.post(self._caller.call(job), partial(self._answered, flight))
        else:
            self._conclude(flight, invalid(problem))

    def _recognised(self, delivery: Delivery) -> bool:
        """Tell whether a redelivered job needs no attempt: it is under way, or it is done."""
        stray = self._copies.take_stray(delivery.job)
        if stray is not None:
            stray.delivery = delivery
            return True
        if self._copies.take_done(delivery.job):
            self.tally.copy_dropped()
            self._ack(delivery)
            return True
        return False

    def _answered(self, flight: Attempt, attempted: Attempted) -> None:
        if flight not in self._flights:
            return  # handed back at the end of a drain
        self._conclude(flight, classify(attempted, self._spec.errors, now=self._now_ms()))
        self._start()

    def _conclude(self, flight: Attempt, outcome: Outcome) -> None:
        seconds = self._loop.time() - flight.began
        self.tally.answered(outcome, seconds)
        self._learn(seconds)
        job, delivery = flight.job, flight.delivery
        if delivery is None:
            self._land_stray(flight, outcome)
            return
        match self._decide(job, outcome):
            case retry.Ack() | retry.Drop():
                self._land(flight)
                self.tally.ended(job.attempt, dead=False)
                self._ack(delivery)
            case retry.Pause():
                self._land(flight)
                self._hand_back([delivery])
                self._gate.close()
            case (retry.Retry() | retry.DeadLetter()) as decision:
                if isinstance(decision, retry.DeadLetter):
                    self.tally.ended(job.attempt, dead=True)
                record = flight.record(outcome, seconds)
                self._move_on(flight, next_stage(self.key, job, decision, record, self._now_ms()))

    def _decide(self, job: Job, outcome: Outcome) -> retry.Decision:
        policy, draw = self._spec.retry, self._random()
        return retry.decide(policy, job.attempt, outcome, throttles=job.throttles, random=draw)

    def _land_stray(self, flight: Attempt, outcome: Outcome) -> None:
        """End a flight whose delivery is void: what was processed must not run again."""
        self._land(flight)
        self._copies.take_stray(flight.job)
        if outcome.kind in (Kind.PROCESSED, Kind.DROPPED):
            self._copies.done(flight.job)

    def _move_on(self, flight: Attempt, publication: Main | Dead) -> None:
        """Publish to the next stage; the slot stays taken until the job is safe there."""
        flight.moving = True

        def arrived() -> None:
            self._land(flight)
            if flight.delivery is None:
                self._copies.done(flight.job)
            else:
                self._ack(flight.delivery)
            self._start()

        self._outbox.send(publication, arrived, still_ours=lambda: flight.delivery is not None)

    def _land(self, flight: Attempt) -> None:
        self._flights.discard(flight)
        if not self._flights:
            self._nothing_flies.set()

    def _ack(self, delivery: Delivery) -> None:
        self._copies.acked(delivery.job)
        self._held.ack((delivery,))

    def _hand_back(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self.tally.handed_back(len(deliveries))
            self._held.hand_back(deliveries)

    def _hand_back_waiting(self) -> None:
        self._hand_back([delivery for delivery, _ in self._waiting])
        self._waiting.clear()

    def _gate_moved(self) -> None:
        self._held.set_prefetch(self._prefetch)
        if self._gate.is_open:
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
            self._held.set_prefetch(self._prefetch)

    @property
    def _prefetch(self) -> int:
        if self._draining or not self._gate.is_open:
            return 0
        return self._pace.at_most(self._concurrency * (2 if self._ahead else 1))

    @property
    def _held(self) -> Subscription:
        if self._subscription is None:
            raise RuntimeError(f"the worker of {self.key} was never started")
        return self._subscription
