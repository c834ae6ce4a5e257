"""What the operator measures about itself and its queues."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_QUEUE: Final = ("namespace", "queue")

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
REACHABLE: Final = Gauge(
    "namedqueue_broker_reachable",
    "1 if the broker of a Secret answered when last asked; `operator` is the operator's own.",
    ["secret"],
)
MANAGEMENT_REQUESTS: Final = Counter(
    "namedqueue_management_requests_total", "Calls of brokers' management APIs.", ["method"]
)
JOBS: Final = Gauge("namedqueue_jobs", "Jobs by stage of a queue.", [*_QUEUE, "stage"])
OLDEST_JOB: Final = Gauge(
    "namedqueue_oldest_job_age_seconds",
    "The oldest ready job is at most this old: so long ago none was seen to be ready.",
    _QUEUE,
)
DESIRED_REPLICAS: Final = Gauge(
    "namedqueue_desired_replicas", "Worker replicas that the jobs call for.", _QUEUE
)
MAX_REPLICAS: Final = Gauge(
    "namedqueue_max_replicas", "Worker replicas that the queue's scaling allows.", _QUEUE
)
REPLICAS: Final = Gauge("namedqueue_replicas", "Worker replicas that exist.", _QUEUE)
LEADING: Final = Gauge(
    "namedqueue_operator_leading", "Whether this replica works (1) or stands by (0)."
)
TICK: Final = Gauge(
    "namedqueue_operator_last_tick_timestamp_seconds", "When the drift loop last went round."
)
WATCHED: Final = Gauge(
    "namedqueue_operator_watch_granted_timestamp_seconds",
    "When the API server last granted a watch.",
    ["resource"],
)
SILENT_WATCHES: Final = Counter(
    "namedqueue_operator_silent_watches_total",
    "Watches that fell silent with their connection open, and were asked for anew.",
    ["resource"],
)
REDRIVES: Final = Gauge(
    "namedqueue_redrives", "QueueRedrives that exist, by their phase.", [*_QUEUE, "phase"]
)

STAGES: Final = ("ready", "inFlight", "waiting", "dead")


def forget(namespace: str, queue: str) -> None:
    """Stop reporting about a queue that is gone."""
    for stage in STAGES:
        JOBS.remove(namespace, queue, stage)
    OLDEST_JOB.remove(namespace, queue)
    REPLICAS.remove(namespace, queue)
    forget_scaling(namespace, queue)


def forget_scaling(namespace: str, queue: str) -> None:
    """Stop reporting how a queue is scaled, for it is not any more."""
    DESIRED_REPLICAS.remove(namespace, queue)
    MAX_REPLICAS.remove(namespace, queue)
