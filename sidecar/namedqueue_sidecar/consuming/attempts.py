"""An attempt at a job, whoever makes it: what is known while it lasts, and where it leads."""

from typing import NamedTuple

from namedqueue import ladder, retry
from namedqueue.api.namedqueue import Retry
from namedqueue.deadletters import bury
from namedqueue.envelope import Job
from namedqueue.history import AttemptRecord
from namedqueue.idempotency import Claim
from namedqueue.outcomes import Outcome
from namedqueue_sidecar.brokers.port import Dead, Delivery, Main, QueueKey


class Attempt:
    """A job that is being worked on, or that is moving on to its next stage.

    `delivery` is None when its connection was lost meanwhile; `began` is by the event loop's
    clock, `began_at` in milliseconds since the epoch. `claim` is on the job's key, if it has one.
    """

    __slots__ = ("began", "began_at", "claim", "delivery", "job", "moving")

    def __init__(self, delivery: Delivery, began: float, began_at: int) -> None:
        self.delivery: Delivery | None = delivery
        self.job = delivery.job
        self.began = began
        self.began_at = began_at
        self.moving = False
        self.claim: Claim | None = None

    @property
    def waited_ms(self) -> int | None:
        """How long the job waited for its first attempt, if this is that."""
        job = self.job
        return None if job.attempt > 1 or job.throttles else self.began_at - job.enqueued_at

    def record(self, outcome: Outcome, seconds: float) -> AttemptRecord:
        """Return the attempt as the job's history tells it."""
        return AttemptRecord(
            attempt=self.job.attempt,
            outcome=outcome.kind,
            error_code=outcome.code,
            at=self.began_at,
            duration_ms=round(seconds * 1000),
            message=outcome.message,
        )


class InFlight(NamedTuple):
    """What can be told of an attempt: who makes it, since when, and until when at the most."""

    job: Job
    worker: str
    since: int
    until: int


def put_off(queue: QueueKey, job: Job, policy: Retry, random: float) -> Main:
    """Return what is published for a job whose key is in progress: the same one, later.

    It used no attempt, and it is no copy of the one that came.
    """
    waits = job.throttles + 1
    return Main(queue, job._replace(throttles=waits), ladder.wait_ms(policy, waits, random))


def next_stage(
    queue: QueueKey,
    job: Job,
    decision: retry.Retry | retry.DeadLetter,
    record: AttemptRecord,
    now: int,
) -> Main | Dead:
    """Return what is published when an attempt has failed: the job again, or a dead letter."""
    if isinstance(decision, retry.Retry):
        return Main(queue, job.retried(decision, record), decision.delay_ms)
    return Dead(queue, bury(job, decision, record, now))
