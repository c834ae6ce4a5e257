"""Leases: jobs for workers that cannot be called and come to fetch them.

A pull waits for jobs, and what it gets is leased: the worker has the job until it finishes it,
extends the lease, or time is up, which is a failed attempt like any other. A lease ends in one of
these ways:

    ack                 acknowledged
    nack, or time is up published to the ladder or the dead letters, confirmed, then acknowledged
    reject              published to the dead letters, confirmed, then acknowledged
    drained             handed back at the end of the grace period, uncounted

Deliveries follow demand. While nobody waits the prefetch is 0, so no job lies idle here while
another pod could run it; while pulls wait it is what they lack plus what is in our hands. A job
that no pull wants any more is handed back at once.

When the connection is lost the leases on it are void, but their workers are still at it. If such
a job comes to us again before its lease has run out the two are joined; if its worker says that it
is processed, that is remembered and the job is not run again.
"""

import asyncio
import contextlib
import random as randomness
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from namedqueue import retry
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.outcomes import Failure, Kind, Outcome, classify, invalid
from namedqueue_sidecar.brokers.port import Broker, Delivery, QueueKey
from namedqueue_sidecar.consuming.attempts import Attempt, InFlight, next_stage
from namedqueue_sidecar.consuming.copies import Copies, Memory
from namedqueue_sidecar.consuming.deadlines import Deadlines
from namedqueue_sidecar.consuming.lease import DrainingError, End, Lease, LeaseEndedError
from namedqueue_sidecar.consuming.outbox import Outbox
from namedqueue_sidecar.consuming.pulls import Pull, Pulls, Wish
from namedqueue_sidecar.consuming.tally import Tally
from namedqueue_sidecar.consuming.validation import validator

LONGEST_HOLD: Final = 29 * 60.0
"""Seconds that a job can be leased, extended or not, unless `worker.timeout` is longer: brokers
take a job back from whoever is silent for half an hour."""

SAFE_WITHIN: Final = 30.0
"""Seconds that a worker which finishes a lease waits for the job to be safe at its next stage."""

_DEFAULT_VISIBILITY: Final = 30.0
_REMEMBERED: Final = 10_000


class _Pull(Pull):
    """A pull with its answer, which is None if there will be no jobs because we are draining."""

    __slots__ = ("answer", "leases")

    def __init__(self, wish: Wish) -> None:
        super().__init__(wish)
        self.leases: list[Lease] = []
        self.answer: asyncio.Future[list[Lease] | None] = asyncio.Future()


class Leases:
    """Leases the jobs of one durable queue."""

    def __init__(
        self,
        queue: NamedQueue,
        broker: Broker,
        *,
        memory: Memory | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self.key = QueueKey(queue.metadata.namespace, queue.metadata.name)
        self._loop = asyncio.get_running_loop()
        self._now_ms = now_ms
        self._random = random
        self.tally = Tally(*self.key)
        self._outbox = Outbox(broker)
        self._copies = Copies[Lease](memory)
        self._pulls = Pulls[_Pull](self._answer)
        self._leases: dict[str, Lease] = {}
        self._moving: set[Attempt] = set()
        self._ended: dict[str, End] = {}
        self._deadlines = Deadlines(self._time_is_up)
        self._in_hand = 0
        self._empty_handed = asyncio.Event()
        self._empty_handed.set()
        self._draining = False
        self._drained = asyncio.Event()
        self._prefetch = 0
        self.update(queue)
        self._subscription = broker.subscribe(self.key, self, prefetch=0)

    def update(self, queue: NamedQueue) -> None:
        """Follow a changed spec; leases under way keep their time."""
        worker = queue.spec.worker
        self._spec = queue.spec
        self._problem_with = validator(queue.spec.payload_schema)
        self.default_visibility = worker.timeout.seconds if worker else _DEFAULT_VISIBILITY
        self.longest_visibility = max(LONGEST_HOLD, self.default_visibility)

    @property
    def flights(self) -> list[InFlight]:
        """What is leased, to whom, and until when."""
        return [
            InFlight(lease.job, lease.worker, lease.began_at, lease.until)
            for lease in self._leases.values()
        ]

    # Calls of workers

    async def pull(self, wish: Wish) -> Sequence[Lease]:
        """Lease jobs; waits for the first, and returns none if there is none in time."""
        if self._draining:
            raise DrainingError
        pull = _Pull(wish)
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
        lease = self._find(lease_id)
        if lease.settled is None:
            lease.settled = self._loop.create_future()
            self._deadlines.drop(lease.id)
            self._conclude(lease, outcome)
        async with asyncio.timeout(SAFE_WITHIN):
            settled = await asyncio.shield(lease.settled)
        if isinstance(settled, End):
            raise LeaseEndedError(settled)
        return settled

    def extend(self, lease_id: str, visibility: float | None) -> Lease:
        """Give a lease more time from now on, up to the longest that a job can be held."""
        lease = self._find(lease_id)
        if lease.settled is not None:
            raise LeaseEndedError(End.FINISHED)
        if lease.delivery is None:
            raise LeaseEndedError(End.LOST)
        latest = lease.began + self.longest_visibility
        moment = min(self._loop.time() + (visibility or lease.visibility), latest)
        lease.until = lease.began_at + round((moment - lease.began) * 1000)
        self._deadlines.set(lease.id, moment)
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
        await self._subscription.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty_handed.wait(), patience)
        self._deadlines.close()
        for attempt in {*self._leases.values(), *self._moving}:
            self._let_go(attempt)
        await self._subscription.close()
        self._drained.set()

    # Calls of the broker

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take jobs over from the broker and give them to the pulls that wait."""
        self._in_hand += len(deliveries)
        self._empty_handed.clear()
        unwanted = []
        for delivery in deliveries:
            if delivery.redelivered and self._recognised(delivery):
                continue
            problem = self._problem_with(delivery.job)
            if problem is not None:
                self._refuse(delivery, invalid(problem))
            elif self._pulls:
                self._pulls.give(delivery)
            else:
                unwanted.append(delivery)
        self._hand_back(unwanted)
        self._ask()

    def lost(self) -> None:
        """Void what we hold: the broker gives it out again."""
        self._copies.connection_lost()
        self._pulls.void()
        for attempt in self._moving:
            attempt.delivery = None
        self._moving.clear()
        for lease in tuple(self._leases.values()):
            lease.delivery = None
            if lease.moving:
                self._end(lease, End.LOST)
            else:
                self._copies.stray(lease.job, lease)
        self._released(self._in_hand)

    # Pulls

    def _ask(self) -> None:
        """Have the broker deliver what the pulls lack, and nothing while none waits."""
        lacking = self._pulls.lacking
        prefetch = self._in_hand + lacking if lacking else 0
        if prefetch != self._prefetch:
            self._prefetch = prefetch
            self._subscription.set_prefetch(prefetch)

    def _answer(self, pull: _Pull) -> None:
        """Lease to a pull what it got."""
        now, now_ms = self._loop.time(), self._now_ms()
        pull.leases = [Lease(delivery, now, now_ms, pull.wish) for delivery in pull.got]
        for lease in pull.leases:
            self._leases[lease.id] = lease
            self._deadlines.set(lease.id, now + lease.visibility)
            first = lease.job.attempt == 1
            self.tally.started(now_ms - lease.job.enqueued_at if first else None)
        if not pull.answer.done():
            pull.answer.set_result(pull.leases)
        self._ask()

    def _withdraw(self, pull: _Pull) -> None:
        """Take back what a pull got, or was about to get, whose worker is gone."""
        if self._pulls.leave(pull):
            self._hand_back(pull.got)
        for lease in pull.leases:
            if lease.id in self._leases and lease.settled is None:
                self._let_go(lease)
        self._ask()

    # Ends

    def _find(self, lease_id: str) -> Lease:
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseEndedError(self._ended.get(lease_id))
        return lease

    def _time_is_up(self, lease_id: str) -> None:
        lease = self._leases[lease_id]
        timeout = classify(Failure.TIMEOUT, self._spec.errors, now=self._now_ms())
        message = f"{lease.worker} neither finished nor extended its lease in time"
        self._remember(lease, End.EXPIRED)
        self._conclude(lease, replace(timeout, message=message))

    def _conclude(self, lease: Lease, outcome: Outcome) -> None:
        seconds = self._loop.time() - lease.began
        self.tally.answered(outcome, seconds)
        if lease.delivery is None:
            self._conclude_void(lease, outcome)
            return
        decision = self._decide(lease, outcome)
        if isinstance(decision, retry.Retry | retry.DeadLetter):
            self._move_on(lease, outcome, decision)
        else:
            self.tally.ended(lease.job.attempt, dead=False)
            self._ack(lease.delivery)
            self._end(lease, decision)

    def _conclude_void(self, lease: Lease, outcome: Outcome) -> None:
        """End a lease whose delivery is void: what was processed must not run again."""
        self._copies.take_stray(lease.job)
        if outcome.kind is Kind.PROCESSED:
            self._copies.done(lease.job)
            self._end(lease, retry.ACK)
        else:
            self._end(lease, End.LOST)

    def _refuse(self, delivery: Delivery, outcome: Outcome) -> None:
        """End a job that no worker may see."""
        attempt = Attempt(delivery, self._loop.time(), self._now_ms())
        self.tally.started(None)
        self.tally.answered(outcome, 0)
        decision = self._decide(attempt, outcome)
        if isinstance(decision, retry.Retry | retry.DeadLetter):
            self._move_on(attempt, outcome, decision)

    def _decide(self, attempt: Attempt, outcome: Outcome) -> retry.Decision:
        policy, job = self._spec.retry, attempt.job
        draw = self._random()
        return retry.decide(policy, job.attempt, outcome, throttles=job.throttles, random=draw)

    def _move_on(
        self, attempt: Attempt, outcome: Outcome, decision: retry.Retry | retry.DeadLetter
    ) -> None:
        """Publish to the next stage; the job stays in our hands until it is safe there."""
        if isinstance(decision, retry.DeadLetter):
            self.tally.ended(attempt.job.attempt, dead=True)
        attempt.moving = True
        self._moving.add(attempt)

        def arrived() -> None:
            self._moving.discard(attempt)
            if attempt.delivery is None:
                self._copies.done(attempt.job)
            else:
                self._ack(attempt.delivery)
            if isinstance(attempt, Lease):
                self._end(attempt, decision)

        record = attempt.record(outcome, self._loop.time() - attempt.began)
        publication = next_stage(self.key, attempt.job, decision, record, self._now_ms())
        self._outbox.send(publication, arrived, still_ours=lambda: attempt.delivery is not None)

    def _end(self, lease: Lease, settled: retry.Decision | End) -> None:
        """Forget a lease and tell whoever waits for its end."""
        if self._leases.get(lease.id) is lease:
            self._remember(lease, settled if isinstance(settled, End) else End.FINISHED)
        if lease.settled is not None and not lease.settled.done():
            lease.settled.set_result(settled)

    def _let_go(self, attempt: Attempt) -> None:
        """Hand a job back; what was under way with it comes to nothing."""
        delivery, attempt.delivery = attempt.delivery, None
        if delivery is not None:
            self._hand_back([delivery])
        self._moving.discard(attempt)
        if isinstance(attempt, Lease):
            self._copies.take_stray(attempt.job)
            if not attempt.moving:
                self.tally.let_go()
            self._end(attempt, End.HANDED_BACK)

    def _remember(self, lease: Lease, end: End) -> None:
        del self._leases[lease.id]
        self._deadlines.drop(lease.id)
        self._ended[lease.id] = end
        while len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

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

    # Deliveries in our hands

    def _ack(self, delivery: Delivery) -> None:
        self._copies.acked(delivery.job)
        self._subscription.ack((delivery,))
        self._released(1)

    def _hand_back(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self.tally.handed_back(len(deliveries))
            self._subscription.hand_back(deliveries)
            self._released(len(deliveries))

    def _released(self, jobs: int) -> None:
        self._in_hand -= jobs
        if not self._in_hand:
            self._empty_handed.set()
        self._ask()
