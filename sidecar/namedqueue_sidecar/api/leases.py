"""Pulling: jobs on lease, what became of them, and who has which."""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from namedqueue import batches, codes, retry
from namedqueue.api.durations import Duration
from namedqueue.api.namedqueue import QueueType, Retry
from namedqueue.moments import rfc3339
from namedqueue.outcomes import PROCESSED, Kind, Outcome
from namedqueue_sidecar.api.exchange import Request, Response, known_fields, read_json, reply
from namedqueue_sidecar.api.messages import queue_key
from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.consuming.lease import DrainingError, End, Lease, LeaseEndedError
from namedqueue_sidecar.consuming.leasing import Leases
from namedqueue_sidecar.consuming.pulls import Wish
from namedqueue_sidecar.consuming.working import unsupported
from namedqueue_sidecar.intake.problems import Problem, invalid, unavailable
from namedqueue_sidecar.plane import Plane

MOST_LEASES: Final = 1000
LONGEST_WAIT: Final = 60.0
SHORTEST_VISIBILITY: Final = 0.1
OUTCOMES: Final = ("ack", "nack", "reject", "extend")
_NOBODY: Final = "pull"
_NAME: Final = re.compile(r"[!-~]([ -~]{0,253}[!-~])?")
_ENDS: Final = {
    End.FINISHED: ("LEASE_FINISHED", "this lease was finished before"),
    End.EXPIRED: ("LEASE_EXPIRED", "this lease ran out, which counted as a failed attempt"),
    End.LOST: (
        "LEASE_LOST",
        "the connection to the broker was lost, so the job will be delivered again",
    ),
    End.HANDED_BACK: (
        "LEASE_HANDED_BACK",
        "the job was handed back uncounted and will be delivered again",
    ),
}


async def lease_jobs(plane: Plane, request: Request) -> Response:
    """Lease up to `max` jobs; waits up to `wait` for the first, and gathers those that are there.

    Each is the worker's until `until`: finish or extend it before, or it counts as a TIMEOUT.
    """
    key = _leasable(plane, request)
    if plane.draining:
        raise _draining()
    leases = plane.leasing(key)
    wish = _wish(leases, read_json(request))
    await plane.restore(key)
    try:
        granted = await leases.pull(wish)
    except DrainingError:
        raise _draining() from None
    reason = plane.broker.unavailable_for(key)
    if not granted and reason is not None:
        raise unavailable(reason)
    policy = plane.queues[key].spec.retry
    return reply({"items": [_shown(each, policy) for each in granted]})


async def finish_lease(plane: Plane, request: Request) -> Response:
    """Say what became of a leased job: ack, nack, reject; or extend its lease.

    The answer comes when the job is safe, and says what was decided.
    """
    key, lease_id, given = (
        queue_key(plane, request),
        request.parameters["lease"],
        read_json(request),
    )
    known_fields(given, "outcome", "code", "retryAfter", "visibility")
    outcome, leases = given.get("outcome"), plane.leases.get(key)
    if outcome not in OUTCOMES:
        raise invalid(f"outcome is not one of {', '.join(OUTCOMES)}")
    _fitting(outcome, given)
    if leases is None:
        raise _ended(lease_id, None)
    try:
        if outcome == "extend":
            extended = leases.extend(lease_id, _visibility(leases, given))
            return reply({"decision": "extend", "until": rfc3339(extended.until)})
        decision = await leases.finish(lease_id, _outcome(outcome, given))
        return reply(_decided(decision, plane.queues[key].spec.type))
    except LeaseEndedError as ended:
        raise _ended(lease_id, ended.end) from None


async def list_in_flight(plane: Plane, request: Request) -> Response:
    """Return what is being worked on here, by whom, since when, and until when at the most."""
    items = [
        {
            "id": flight.job.id,
            "type": flight.job.type,
            "attempt": flight.job.attempt,
            "worker": flight.worker,
            "since": rfc3339(flight.since),
            "until": rfc3339(flight.until),
        }
        for flight in plane.in_flight(queue_key(plane, request))
    ]
    return reply({"items": items, "next": None})


def _leasable(plane: Plane, request: Request) -> QueueKey:
    key = queue_key(plane, request)
    spec = plane.queues[key].spec
    if spec.type == "stream":
        why = f"{key} is a stream and is read, not leased from; see /v1/streams"
        raise Problem(409, "NOT_LEASABLE", why)
    lacking = unsupported(plane.queues[key], plane.store)
    if lacking is not None:
        raise Problem(409, "NOT_LEASABLE", f"{key}: {lacking}")
    if spec.durable_or_default.fifo is not None:
        raise Problem(
            409, "NOT_LEASABLE", f"{key} keeps an order (spec.durable.fifo) that leases would break"
        )
    return key


def _wish(leases: Leases, given: Mapping[str, Any]) -> Wish:
    known_fields(given, "max", "wait", "visibility", "worker")
    most, worker = given.get("max", 1), given.get("worker", _NOBODY)
    if type(most) is not int or not 1 <= most <= MOST_LEASES:
        raise invalid(f"max is not a whole number from 1 to {MOST_LEASES}")
    if not isinstance(worker, str) or not _NAME.fullmatch(worker):
        raise invalid("worker is not 1 to 255 printable ASCII characters")
    wait = min(_seconds("wait", given.get("wait", "0s")), LONGEST_WAIT)
    return Wish(most, wait, _visibility(leases, given) or leases.default_visibility, worker)


def _visibility(leases: Leases, given: Mapping[str, Any]) -> float | None:
    if "visibility" not in given:
        return None
    seconds, longest = _seconds("visibility", given["visibility"]), leases.longest_visibility
    if not SHORTEST_VISIBILITY <= seconds <= longest:
        raise invalid(f"visibility is not from 100ms to {longest:g}s, the longest for this queue")
    return seconds


def _seconds(name: str, value: object) -> float:
    try:
        return Duration.parse(value if isinstance(value, str) else "").seconds
    except ValueError:
        raise invalid(f"{name} is not a duration; write it as in 90s") from None


def _fitting(outcome: str, given: Mapping[str, Any]) -> None:
    """Refuse what means nothing for this outcome: a worker that says it expects something of it."""
    for name, goes_with in (
        ("code", ("nack", "reject")),
        ("retryAfter", ("nack",)),
        ("visibility", ("extend",)),
    ):
        if name in given and outcome not in goes_with:
            raise invalid(f"{name} goes with {' and '.join(goes_with)}, not with {outcome}")


def _outcome(outcome: str, given: Mapping[str, Any]) -> Outcome:
    """Return what a worker says of an attempt; like `NQ-Outcome` it wins over `spec.errors`."""
    if outcome == "ack":
        return PROCESSED
    code = codes.error_code(given["code"]) if "code" in given else None
    if "code" in given and code is None:
        raise invalid("code is not a word by which a failure can be known")
    if outcome == "reject":
        return Outcome(Kind.PERMANENT, code or codes.REJECTED, "the worker rejected the job")
    wait = (
        round(_seconds("retryAfter", given["retryAfter"]) * 1000) if "retryAfter" in given else None
    )
    return Outcome(Kind.TRANSIENT, code or codes.NACKED, "the worker put the job off", wait)


def _decided(decision: retry.Decision, kind: QueueType) -> dict[str, object]:
    match decision:
        case retry.Retry(delay_ms, next_attempt):
            return {"decision": "retry", "attempt": next_attempt, "delayMs": delay_ms}
        case retry.DeadLetter(code):
            end = "dead-letter" if kind == "durable" else "drop"
            return {"decision": end, "code": code}
        case _:
            return {"decision": "ack"}


def _shown(granted: Lease, policy: Retry) -> dict[str, object]:
    encoding, payload = batches.shown(granted.job)
    return {
        "lease": granted.id,
        "until": rfc3339(granted.until),
        **batches.envelope(granted.job, policy),
        "encoding": encoding,
        "payload": orjson.Fragment(payload),
    }


def _ended(lease_id: str, end: End | None) -> Problem:
    if end is None:
        return Problem(404, "UNKNOWN_LEASE", f"there is no lease {lease_id[:64]}, or not any more")
    return Problem(410, *_ENDS[end])


def _draining() -> Problem:
    return Problem(
        503, "DRAINING", "this sidecar is draining; pull elsewhere", {"Retry-After": "1"}
    )
