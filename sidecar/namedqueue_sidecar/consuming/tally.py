"""What happened to the jobs of one queue, as Prometheus metrics with bounded labels.

The children are looked up once for each queue, so that counting costs the hot path one addition.
"""

from prometheus_client import Counter, Gauge, Histogram

from namedqueue.outcomes import Kind, Outcome

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
_ATTEMPTS = (1, 2, 3, 5, 10, 20, 50)
_LABELS = ("namespace", "queue")
_FAILED = (Kind.TRANSIENT, Kind.PERMANENT, Kind.UNKNOWN)

_deliveries = Counter(
    "namedqueue_deliveries", "Attempts by what became of them.", (*_LABELS, "outcome")
)
_dead = Counter("namedqueue_dead_lettered", "Jobs that failed for good.", _LABELS)
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

    def __init__(self, namespace: str, queue: str) -> None:
        self.processed = self.failed = self.dead = 0
        self.last_error = ""
        self._outcomes = {kind: _deliveries.labels(namespace, queue, kind.value) for kind in Kind}
        self._dead = _dead.labels(namespace, queue)
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

    def handed_back(self, jobs: int) -> None:
        """Count jobs returned unstarted or unfinished."""
        self._handed_back.inc(jobs)

    def copy_dropped(self) -> None:
        """Count a recognised copy."""
        self._copies.inc()
