"""The worker of an ephemeral queue: best effort, and nothing that outlives this process.

A delivery becomes one attempt, and ends in one of three ways:

    processed, or given up  acknowledged; what was given up is dropped, counted and logged
    to be retried           acknowledged, and kept in memory until its next attempt (`interims`)
    not started             handed back: the app is away, or we are draining

There is no next stage whose confirm would have to be waited for, and so neither strays nor copies
to recognise. A job that the app is working on when the connection is lost may come again and run
twice, or be gone with the broker.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from namedqueue import retry
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.outcomes import Attempted, Outcome, invalid
from namedqueue_sidecar.brokers.port import Delivery
from namedqueue_sidecar.consuming.alarm import Alarm
from namedqueue_sidecar.consuming.attempts import Attempt, InFlight, next_stage
from namedqueue_sidecar.consuming.flights import Flights, pushed
from namedqueue_sidecar.consuming.gate import Gate
from namedqueue_sidecar.consuming.interims import Interims
from namedqueue_sidecar.consuming.rules import Calling, Rules
from namedqueue_sidecar.consuming.tally import Tally
from namedqueue_sidecar.consuming.workplace import Workplace


class EphemeralWorker:
    """Works off one ephemeral queue with the app beside it."""

    def __init__(self, workplace: Workplace, interims: Interims) -> None:
        self.key = workplace.key
        self.tally = Tally(*self.key, ephemeral=True)
        self.gate = Gate(workplace.ready, self._gate_moved)
        self._workplace = workplace
        self._interims = interims
        self._loop = asyncio.get_running_loop()
        self._rules = Rules.of(workplace.queue)
        self._calling = Calling.of(workplace.queue, workplace.share, self._loop.time())
        self._waiting: deque[Delivery] = deque()
        self._flights = Flights[Attempt]()
        self._alarm = Alarm(self._start)
        self._draining = False
        self._subscription = workplace.broker.subscribe(self.key, self, prefetch=0)

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
        self._hand_back([flight.delivery for flight in self._flights if flight.delivery])
        for _ in self._flights:
            self.tally.let_go()
        self._flights.clear()
        await self._subscription.close()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take jobs over from the broker."""
        self._waiting.extend(deliveries)
        if self._draining or not self.gate.is_open:
            self._hand_back_waiting()
        else:
            self._start()

    def lost(self) -> None:
        """Void what we hold: the broker gives it out again, unless it was restarted."""
        self._waiting.clear()
        for flight in self._flights:
            flight.delivery = None

    def _start(self) -> None:
        """Start what may start now; the rest waits for a slot, or for its time."""
        while self._waiting and self.gate.is_open and len(self._flights) < self._calling.slots:
            pause = self._calling.pace.take(self._loop.time())
            if pause > 0:
                self._alarm.set(pause)
                return
            self._attempt(self._waiting.popleft())

    def _attempt(self, delivery: Delivery) -> None:
        flight = Attempt(delivery, self._loop.time(), self._workplace.now_ms())
        self._flights.begin(flight)
        self.tally.started(flight.waited_ms)
        problem = self._rules.problem_with(flight.job)
        if problem is None:
            call = self._calling.call(flight.job)
            self._workplace.app.post(call, partial(self._answered, flight))
        else:
            self._conclude(flight, invalid(problem))

    def _answered(self, flight: Attempt, attempted: Attempted) -> None:
        if flight not in self._flights:
            return  # handed back at the end of a drain
        self._conclude(flight, self._rules.outcome(attempted, self._workplace.now_ms()))
        self._start()

    def _conclude(self, flight: Attempt, outcome: Outcome) -> None:
        seconds = self._loop.time() - flight.began
        self.tally.answered(outcome, seconds)
        self._flights.land(flight)
        job, delivery = flight.job, flight.delivery
        if delivery is None:
            return
        match self._rules.decide(job, outcome, self._workplace.random()):
            case retry.Ack() | retry.Drop():
                self.tally.ended(job.attempt, dead=False)
                self._subscription.ack((delivery,))
            case retry.Pause():
                self._hand_back([delivery])
                self.gate.close()
            case (retry.Retry() | retry.DeadLetter()) as decision:
                if isinstance(decision, retry.DeadLetter):
                    self.tally.ended(job.attempt, dead=True)
                record, now = flight.record(outcome, seconds), self._workplace.now_ms()
                onward = next_stage(self.key, job, decision, record, now)
                taken = partial(self._subscription.ack, (delivery,))
                self._interims.send(onward, taken, still_ours=lambda: True)

    def _hand_back(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self.tally.handed_back(len(deliveries))
            self._subscription.hand_back(deliveries)

    def _hand_back_waiting(self) -> None:
        self._hand_back(tuple(self._waiting))
        self._waiting.clear()

    def _gate_moved(self) -> None:
        self._subscription.set_prefetch(self._prefetch)
        if self.gate.is_open:
            self._start()
        else:
            self._hand_back_waiting()

    @property
    def _prefetch(self) -> int:
        """Fetch what can start; nothing is fetched ahead, so nothing waits here for long."""
        if self._draining or not self.gate.is_open:
            return 0
        return self._calling.pace.at_most(self._calling.slots)
