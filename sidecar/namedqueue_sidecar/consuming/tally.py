"""What happened to the jobs of one queue, as Prometheus metrics with bounded labels.

The children are looked up once for each queue, so that counting costs the hot path one addition.
"""

from prometheus_client import Counter, Gauge, Histogram

from namedqueue.idempotency import Refused
from namedqueue.outcomes import Kind, Outcome
from namedqueue_sidecar.consuming.complaints import Complaints
from namedqueue_sidecar.rates import Rate

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
_ATTEMPTS = (1, 2, 3, 5, 10, 20, 50)
_LABELS = ("namespace", "queue")
_GROUP_LABELS = (*_LABELS, "group")
_FAILED = (Kind.TRANSIENT, Kind.PERMANENT, Kind.UNKNOWN)

_deliveries = Counter(
    "namedqueue_deliveries", "Attempts by what became of them.", (*_LABELS, "outcome")
)
_dead = Counter("namedqueue_dead_lettered", "Jobs that failed for good.", _LABELS)
_dropped = Counter(
    "namedqueue_dropped", "Jobs of ephemeral queues that were given up and are gone.", _LABELS
)
_handed_back = Counter(
    "namedqueue_handed_back", "Jobs returned to the queue without an attempt.", _LABELS
)
_copies = Counter("namedqueue_copies_dropped", "Copies recognised and not run again.", _LABELS)
_attempt = Histogram(
    "namedqueue_attempts", "The attempt that ended a job.", _LABELS, buckets=_ATTEMPTS
)
_handler = Histogram(
    "namedqueue_handler_seconds", "How long the app took.", _LABELS, buckets=_SECONDS
)
_waited = Histogram(
    "namedqueue_queue_seconds",
    "From enqueueing to the first attempt.",
    _LABELS,
    buckets=_SECONDS,
)
_in_flight = Gauge("namedqueue_in_flight", "Jobs that the app is working on.", _LABELS)


class Tally:
    """The metrics of one queue, and the same in plain numbers for a person who watches."""

    def __init__(self, namespace: str, queue: str, *, ephemeral: bool = False) -> None:
        """Count what failed for good as dead letters, or as dropped where there are none."""
        self.processed = self.failed = self.dead = 0
        self.rate = Rate()
        self.last_error = ""
        self._complaints = Complaints(namespace, queue)
        self._outcomes = {kind: _deliveries.labels(namespace, queue, kind.value) for kind in Kind}
        self._dead = (_dropped if ephemeral else _dead).labels(namespace, queue)
        self._handed_back = _handed_back.labels(namespace, queue)
        self._copies = _copies.labels(namespace, queue)
        self._attempt = _attempt.labels(namespace, queue)
        self._handler = _handler.labels(namespace, queue)
        self._waited = _waited.labels(namespace, queue)
        self._in_flight = _in_flight.labels(namespace, queue)

    def started(self, waited_ms: int | None) -> None:
        """Count a job that the app was given; `waited_ms` only for its first attempt."""
        self._in_flight.inc()
        if waited_ms is not None:
            self._waited.observe(max(0, waited_ms) / 1000)

    def answered(self, outcome: Outcome, seconds: float) -> None:
        """Count what became of an attempt."""
        self._in_flight.dec()
        self._outcomes[outcome.kind].inc()
        self._handler.observe(seconds)
        if outcome.kind in _FAILED:
            self.failed += 1
            self.last_error = f"{outcome.code}: {outcome.message}"
            self._complaints.add(outcome.code)

    def let_go(self) -> None:
        """Count an attempt out that came to nothing and was not one."""
        self._in_flight.dec()

    def ended(self, attempt: int, *, dead: bool) -> None:
        """Count a job that will not come back."""
        self._attempt.observe(attempt)
        if dead:
            self._dead.inc()
            self.dead += 1
        else:
            self.processed += 1
            self.rate.add()

    def handed_back(self, jobs: int) -> None:
        """Count jobs returned unstarted or unfinished."""
        self._handed_back.inc(jobs)

    def copy_dropped(self) -> None:
        """Count a recognised copy."""
        self._copies.inc()


_skipped = Counter(
    "namedqueue_stream_skipped", "Messages of a stream that a group gave up.", _GROUP_LABELS
)
_halted = Gauge(
    "namedqueue_stream_halted", "1 while a group waits at a message that failed.", _GROUP_LABELS
)
_committed = Gauge(
    "namedqueue_stream_cursor", "The offset that a group reads next, as committed.", _GROUP_LABELS
)


class GroupTally(Tally):
    """The part that one group of a stream has in the stream's metrics, and its own."""

    def __init__(self, namespace: str, queue: str, group: str) -> None:
        super().__init__(namespace, queue)
        self._skipped = _skipped.labels(namespace, queue, group)
        self._halted = _halted.labels(namespace, queue, group)
        self._cursor = _committed.labels(namespace, queue, group)

    def skipped(self) -> None:
        """Count a message that the group goes past though it failed."""
        self._skipped.inc()
        self.dead += 1

    def halted(self, *, halted: bool) -> None:
        """Say whether the group waits for a person."""
        self._halted.set(halted)

    def committed(self, cursor: int) -> None:
        """Say how far the group has come."""
        self._cursor.set(cursor)


_refused = Counter(
    "namedqueue_duplicates",
    "Jobs whose key was processed, and which were acknowledged, or in progress, and put off.",
    (*_LABELS, "key"),
)
_lost = Counter(
    "namedqueue_claims_lost",
    "Jobs processed under a claim that another had taken over meanwhile.",
    _LABELS,
)


class GuardTally:
    """What idempotency kept from the app, and where it could not."""

    def __init__(self, namespace: str, queue: str) -> None:
        self._refused = {why: _refused.labels(namespace, queue, why.value) for why in Refused}
        self._lost = _lost.labels(namespace, queue)

    def refused(self, why: Refused | None) -> None:
        """Count a job that did not reach the app; None if it was for want of a store."""
        if why is not None:
            self._refused[why].inc()

    def lost(self) -> None:
        """Count a job that may have run twice."""
        self._lost.inc()
