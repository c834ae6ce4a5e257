"""What the operator measures about itself and its queues."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

RECONCILE_SECONDS: Final = Histogram(
    "namedqueue_reconcile_duration_seconds",
    "How long bringing one queue about took.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
RECONCILE_ERRORS: Final = Counter(
    "namedqueue_reconcile_errors_total", "Attempts that ended in trouble.", ["reason"]
)
REPAIRS: Final = Counter("namedqueue_repairs_total", "Objects put back that had been changed.")
LAST_POLL: Final = Gauge(
    "namedqueue_last_successful_poll_timestamp_seconds",
    "When a broker last answered how long its queues are.",
    ["broker"],
)
JOBS: Final = Gauge("namedqueue_jobs", "Jobs by stage of a queue.", ["namespace", "queue", "stage"])
TICK: Final = Gauge(
    "namedqueue_operator_last_tick_timestamp_seconds", "When the drift loop last went round."
)

STAGES: Final = ("ready", "inFlight", "waiting", "dead")


def forget(namespace: str, queue: str) -> None:
    """Stop reporting about a queue that is gone."""
    for stage in STAGES:
        JOBS.remove(namespace, queue, stage)
