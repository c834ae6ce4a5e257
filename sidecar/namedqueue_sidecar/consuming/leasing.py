"""Leases: jobs for workers that cannot be called and come to fetch them.

A pull waits for jobs, and what it gets is leased: the worker has the job until it finishes it,
extends the lease, or time is up, which is a failed attempt like any other. A lease ends in one of
these ways:

    ack                 acknowledged
    nack, or time is up published to the ladder or the dead letters, confirmed, then acknowledged
    reject              published to the dead letters, confirmed, then acknowledged
    drained             handed back at the end of the grace period, uncounted

Deliveries follow demand (`inhand.py`): none come while no pull waits, and a job that no pull wants
any more is handed back at once.

When the connection is lost the leases on it are void, but their workers are still at it. If such
a job comes to us again before its lease has run out the two are joined; if its worker says that it
is processed, that is remembered and the job is not run again.

With a guard a job's key is claimed before a pull gets it, and how a lease ended is written before
the job is acknowledged.
"""

import asyncio
import random as randomness
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from namedqueue import retry
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.idempotency import Claim, Refused, State
from namedqueue.outcomes import Failure, Kind, Outcome, invalid
from namedqueue_sidecar.brokers.port import Broker, Dead, Delivery, Main, QueueKey
from namedqueue_sidecar.consuming.attempts import Attempt, InFlight, next_stage, put_off
from namedqueue_sidecar.consuming.copies import Copies, Memory
from namedqueue_sidecar.consuming.guarding import Guard
from namedqueue_sidecar.consuming.hands import Hands
from namedqueue_sidecar.consuming.inhand import InHand
from namedqueue_sidecar.consuming.interims import Interims
from namedqueue_sidecar.consuming.lease import DrainingError, End, Lease, LeaseEndedError, LeasePull
from namedqueue_sidecar.consuming.leased import Leased
from namedqueue_sidecar.consuming.onward import Onward
from namedqueue_sidecar.consuming.outbox import Outbox
from namedqueue_sidecar.consuming.pulls import Pulls, Wish
from namedqueue_sidecar.consuming.rules import Rules
from namedqueue_sidecar.consuming.tally import Tally

LONGEST_HOLD: Final = 29 * 60.0
"""Seconds that a job can be leased, extended or not, unless `worker.timeout` is longer: brokers
take a job back from whoever is silent for half an hour."""

SAFE_WITHIN: Final = 30.0
"""Seconds that a worker which finishes a lease waits for the job to be safe at its next stage."""

_DEFAULT_VISIBILITY: Final = 30.0
_STORE_PAUSE: Final = 0.5


class Leases:
    """Leases the jobs of one durable queue, or with `interims` of an ephemeral one."""

    def __init__(
        self,
        queue: NamedQueue,
        broker: Broker,
        *,
        memory: Memory | None = None,
        interims: Interims | None = None,
        guard: Guard | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self.key = QueueKey.of(queue)
        self.tally = Tally(*self.key, ephemeral=interims is not None)
        self._loop = asyncio.get_running_loop()
        self._now_ms = now_ms
        self._random = random
        self._guard = guard
        self._onward = Onward(Outbox(broker) if interims is None else interims, guard)
        self._copies = Copies(memory)
        self._pulls = Pulls[LeasePull](self._answer)
        self._claiming: set[Attempt] = set()
        self._claimed_by: dict[Delivery, Claim] = {}
        self._leased = Leased(self._expired)
        self._moving: set[Attempt] = set()
        self._draining = False
        self._drained = asyncio.Event()
        self.update(queue)
        self._in_hand = InHand(broker.subscribe(self.key, self, prefetch=0), self._ask)
        self._hands = Hands(self._in_hand, self._copies, self.tally)

    def update(self, queue: NamedQueue) -> None:
        """Follow a changed spec; leases under way keep their time."""
        worker = queue.spec.worker
        self._rules = Rules.of(queue)
        self.default_visibility = worker.timeout.seconds if worker else _DEFAULT_VISIBILITY
        self.longest_visibility = max(LONGEST_HOLD, self.default_visibility)

    @property
    def busy(self) -> bool:
        """Whether somebody waits for a job, or has one."""
        return bool(self._pulls) or len(self._in_hand) > 0

    @property
    def flights(self) -> list[InFlight]:
        """What is leased, to whom, and until when."""
        return [
            InFlight(lease.job, lease.worker, lease.began_at, lease.until) for lease in self._leased
        ]

    # Calls of workers

    async def pull(self, wish: Wish) -> Sequence[Lease]:
        """Lease jobs; waits for the first, and returns none if there is none in time."""
        if self._draining:
            raise DrainingError
        pull = LeasePull(wish)
        self._pulls.add(pull)
        self._ask()
        try:
            leases = await pull.answer
        except asyncio.CancelledError:
            self._withdraw(pull)
            raise
        if leases is None:
            raise DrainingError
        return leases

    async def finish(self, lease_id: str, outcome: Outcome) -> retry.Decision:
        """End a lease, and return what was decided once the job is safe.

        Whoever asks again while the job moves on waits for the same end.
        """
        lease = self._leased.find(lease_id)
        if lease.settled is None:
            lease.settled = self._loop.create_future()
            self._leased.stop_clock(lease)
            self._conclude(lease, outcome)
        async with asyncio.timeout(SAFE_WITHIN):
            settled = await asyncio.shield(lease.settled)
        if isinstance(settled, End):
            raise LeaseEndedError(settled)
        return settled

    def extend(self, lease_id: str, visibility: float | None) -> Lease:
        """Give a lease more time from now on, up to the longest that a job can be held."""
        lease = self._leased.find(lease_id)
        if lease.settled is not None:
            raise LeaseEndedError(End.FINISHED)
        if lease.delivery is None:
            raise LeaseEndedError(End.LOST)
        self._leased.extend(lease, visibility, self.longest_visibility)
        return lease

    async def drain(self, patience: float) -> None:
        """Lease no more, give workers time to finish, hand back the rest; then let go.

        A second call only waits.
        """
        if self._draining:
            await self._drained.wait()
            return
        self._draining = True
        for pull in self._pulls.leave_all():
            self._hand_back(pull.got)
            if not pull.answer.done():
                pull.answer.set_result(None)
        await self._in_hand.stop(patience)
        self._leased.close()
        for attempt in {*self._leased, *self._moving, *self._claiming}:
            self._let_go(attempt)
        await self._in_hand.close()
        self._drained.set()

    # Calls of the broker

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take jobs over from the broker and give them to the pulls that wait."""
        self._in_hand.took(len(deliveries))
        unwanted = []
        for delivery in deliveries:
            if delivery.redelivered and self._hands.recognised(delivery):
                continue
            problem = self._rules.problem_with(delivery.job)
            if problem is not None:
                self._refuse(delivery, invalid(problem))
            elif self._guard is not None:
                self._claim(self._guard, delivery)
            elif self._pulls:
                self._pulls.give(delivery)
            else:
                unwanted.append(delivery)
        self._hand_back(unwanted)
        self._ask()

    def lost(self) -> None:
        """Void what we hold: the broker gives it out again."""
        self._copies.connection_lost()
        self._give_back_keys(tuple(self._claimed_by))
        self._pulls.void()
        for attempt in (*self._moving, *self._claiming):
            attempt.delivery = None
            self._onward.end(attempt, State.FAILED)
        self._moving.clear()
        for lease in self._leased:
            lease.delivery = None
            if lease.moving:
                self._leased.end(lease, End.LOST)
            else:
                self._copies.stray(lease.job, lease)
        self._in_hand.void()

    def _hand_back(self, deliveries: Sequence[Delivery]) -> None:
        self._give_back_keys(deliveries)
        self._hands.hand_back(deliveries)

    # Claims

    def _claim(self, guard: Guard, delivery: Delivery) -> None:
        attempt = Attempt(delivery, self._loop.time(), self._now_ms())
        if guard.claim(attempt, partial(self._claimed, attempt)):
            delivery.job = attempt.job
            self._claiming.add(attempt)
        else:
            self._refuse(delivery, invalid(guard.keyless))

    def _claimed(self, attempt: Attempt, answer: Claim | Refused | None) -> None:
        """Give a job whose key is ours to a pull; else see to it without one."""
        self._claiming.discard(attempt)
        attempt.claim = answer if isinstance(answer, Claim) else None
        delivery = attempt.delivery
        if delivery is None:
            self._onward.end(attempt, State.RECEIVED)
        elif attempt.claim is not None and self._pulls:
            self._claimed_by[delivery] = attempt.claim
            self._pulls.give(delivery)
        elif answer is Refused.DUPLICATE:
            self._hands.ack(delivery)
        elif answer is Refused.IN_PROGRESS:
            later = put_off(self.key, attempt.job, self._rules.policy, self._random())
            self._publish(attempt, later, retry.ACK)
        else:
            self._onward.end(attempt, State.RECEIVED)
            self._hand_back([delivery])

    def _give_back_keys(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            claim = self._claimed_by.pop(delivery, None)
            if claim is not None and self._guard is not None:
                self._guard.end(claim, State.RECEIVED)

    # Pulls

    def _ask(self) -> None:
        """Have the broker deliver what the pulls lack, and nothing while none waits."""
        lacking = self._pulls.lacking
        if lacking and self._guard is not None and not self._guard.available:
            lacking = 0
            self._loop.call_later(_STORE_PAUSE, self._ask)
        self._in_hand.want(lacking)

    def _answer(self, pull: LeasePull) -> None:
        """Lease to a pull what it got."""
        now, now_ms = self._loop.time(), self._now_ms()
        pull.leases = [Lease(delivery, now, now_ms, pull.wish) for delivery in pull.got]
        for delivery, lease in zip(pull.got, pull.leases, strict=True):
            lease.claim = self._claimed_by.pop(delivery, None)
            self._leased.add(lease)
            self.tally.started(lease.waited_ms)
        if not pull.answer.done():
            pull.answer.set_result(pull.leases)
        self._ask()

    def _withdraw(self, pull: LeasePull) -> None:
        """Take back what a pull got, or was about to get, whose worker is gone."""
        if self._pulls.leave(pull):
            self._hand_back(pull.got)
        for lease in pull.leases:
            if lease in self._leased and lease.settled is None:
                self._let_go(lease)
        self._ask()

    # Ends

    def _expired(self, lease: Lease) -> None:
        timeout = self._rules.outcome(Failure.TIMEOUT, self._now_ms())
        message = f"{lease.worker} neither finished nor extended its lease in time"
        self._conclude(lease, replace(timeout, message=message))

    def _conclude(self, lease: Lease, outcome: Outcome) -> None:
        seconds = self._loop.time() - lease.began
        self.tally.answered(outcome, seconds)
        if lease.delivery is None:
            self._conclude_void(lease, outcome)
            return
        decision = self._rules.decide(lease.job, outcome, self._random())
        if isinstance(decision, retry.Retry | retry.DeadLetter):
            self._move_on(lease, outcome, decision)
        else:
            self.tally.ended(lease.job.attempt, dead=False)
            self._moving.add(lease)
            self._onward.record(lease, State.PROCESSED, partial(self._finish, lease, decision))

    def _conclude_void(self, lease: Lease, outcome: Outcome) -> None:
        """End a lease whose delivery is void: what was processed must not run again."""
        self._copies.forget_stray(lease.job)
        processed = outcome.kind is Kind.PROCESSED
        self._onward.end(lease, State.PROCESSED if processed else State.FAILED)
        if processed:
            self._copies.done(lease.job)
            self._leased.end(lease, retry.ACK)
        else:
            self._leased.end(lease, End.LOST)

    def _refuse(self, delivery: Delivery, outcome: Outcome) -> None:
        """End a job that no worker may see."""
        attempt = Attempt(delivery, self._loop.time(), self._now_ms())
        self.tally.started(None)
        self.tally.answered(outcome, 0)
        decision = self._rules.decide(attempt.job, outcome, self._random())
        if isinstance(decision, retry.Retry | retry.DeadLetter):
            self._move_on(attempt, outcome, decision)

    def _move_on(
        self, attempt: Attempt, outcome: Outcome, decision: retry.Retry | retry.DeadLetter
    ) -> None:
        if isinstance(decision, retry.DeadLetter):
            self.tally.ended(attempt.job.attempt, dead=True)
        record = attempt.record(outcome, self._loop.time() - attempt.began)
        publication = next_stage(self.key, attempt.job, decision, record, self._now_ms())
        self._publish(attempt, publication, decision)

    def _publish(
        self, attempt: Attempt, publication: Main | Dead, decision: retry.Decision
    ) -> None:
        """Publish to the next stage; the job stays in our hands until it is safe there."""
        self._moving.add(attempt)
        self._onward.publish(attempt, publication, partial(self._finish, attempt, decision))

    def _finish(self, attempt: Attempt, decision: retry.Decision) -> None:
        self._moving.discard(attempt)
        if attempt.delivery is None:
            self._copies.done(attempt.job)
        else:
            self._hands.ack(attempt.delivery)
        if isinstance(attempt, Lease):
            self._leased.end(attempt, decision)

    def _let_go(self, attempt: Attempt) -> None:
        """Hand a job back; what was under way with it comes to nothing."""
        delivery, attempt.delivery = attempt.delivery, None
        if delivery is not None:
            self._hand_back([delivery])
        self._moving.discard(attempt)
        self._onward.end(attempt, State.RECEIVED)
        if isinstance(attempt, Lease):
            self._copies.forget_stray(attempt.job)
            if not attempt.moving:
                self.tally.let_go()
            self._leased.end(attempt, End.HANDED_BACK)
