"""How long the envelope takes for one job, in microseconds.

    hack/python hack/bench/envelope.py

Decoding, encoding and the handler's headers are paid for every job, so they are to stay below 5 µs
each for a plain one.
"""

import time
import timeit
from collections.abc import Callable
from functools import partial

from namedqueue.api.namedqueue import Retry
from namedqueue.envelope import Job, decode, encode
from namedqueue.handler import handler_headers

ROUNDS = 50
CALLS = 2_000
NOW = 1_772_107_200_123
POLICY = Retry()

PLAIN = Job(
    id="0190c2a4-7d3e-7a53-9f0b-3c1d2e4f5a6b",
    queue="orders",
    payload=b"x" * 1024,
    enqueued_at=NOW,
    time=NOW,
    type="order.created",
    content_type="application/json",
)
FULL = PLAIN._replace(
    source="/shop/eu",
    attempt=3,
    throttles=1,
    group="customer-7",
    topic="order/eu/created",
    idempotency_key="courier-x:evt_123",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    headers=(("tenant", "acme"), ("x-request-id", "req_a1b2c3")),
)


def microseconds(call: Callable[[], object]) -> float:
    """Return the CPU time of one call, in the best of many rounds: the rest is noise."""
    rounds = timeit.repeat(call, timer=time.process_time, number=CALLS, repeat=ROUNDS)
    return min(rounds) / CALLS * 1e6


def measure(name: str, job: Job) -> None:
    properties, headers = encode(job)
    calls: dict[str, Callable[[], object]] = {
        "decode": partial(
            decode, properties, headers, job.payload, queue="orders", fresh_id="fresh", now=NOW
        ),
        "encode": partial(encode, job),
        "handler headers": partial(handler_headers, job, POLICY),
    }
    for what, call in calls.items():
        print(f"{name:6} {what:16} {microseconds(call):6.2f} µs")


if __name__ == "__main__":
    measure("plain", PLAIN)
    measure("full", FULL)
