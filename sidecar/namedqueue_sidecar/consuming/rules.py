"""What a manifest says of attempts: when a job may be tried, and what follows from an outcome.

Values that a worker has as they are now, and gets anew when its manifest changes. An attempt that
began under the old ones is judged by the new.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from namedqueue import retry
from namedqueue.api.namedqueue import Errors, NamedQueue, Retry
from namedqueue.envelope import Job
from namedqueue.outcomes import Attempted, Outcome, classify
from namedqueue_sidecar.app.calls import Caller
from namedqueue_sidecar.app.port import Call
from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.consuming.pace import Pace
from namedqueue_sidecar.consuming.validation import ProblemWith, validator


@dataclass(frozen=True, slots=True)
class Rules:
    """How attempts are judged, whoever makes them."""

    policy: Retry
    errors: Errors
    problem_with: ProblemWith
    """Says what is wrong with a job that must not be tried, or None."""

    @classmethod
    def of(cls, queue: NamedQueue) -> Self:
        """Return a queue's rules; a ValueError says what is wrong with them."""
        spec = queue.spec
        return cls(spec.retry, spec.errors, validator(spec.payload_schema))

    def outcome(self, attempted: Attempted, now: int) -> Outcome:
        """Return what an answer, or the want of one, means."""
        return classify(attempted, self.errors, now=now)

    def decide(self, job: Job, outcome: Outcome, draw: float) -> retry.Decision:
        """Return what is to be done with a job after an attempt."""
        return retry.decide(self.policy, job.attempt, outcome, throttles=job.throttles, random=draw)


@dataclass(frozen=True, slots=True)
class Calling:
    """How the app is called: with what, how many times at once, how fast, for how long."""

    call: Callable[[Job], Call]
    slots: int
    timeout_ms: int
    pace: Pace

    @classmethod
    def of(cls, queue: NamedQueue, share: float, now: float) -> Self:
        """Return how a queue's app is called by a replica with this share of the rate limit."""
        worker = queue.spec.worker
        if worker is None:
            raise ValueError(f"{QueueKey.of(queue)} has no spec.worker, so there is no app to call")
        return cls(
            call=Caller(worker, queue.spec.retry).call,
            slots=worker.slots,
            timeout_ms=worker.timeout.milliseconds,
            pace=Pace.of(worker.rate_limit, share, now),
        )
