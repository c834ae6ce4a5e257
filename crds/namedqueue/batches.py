"""Several jobs in one POST: what the app is sent, and what it says of each.

The body is a JSON array of entries, each a job with all that a single POST would say in headers:

    [{"id": "…", "type": "order.created", "attempt": 1, "maxAttempts": 5, …,
      "encoding": "json", "payload": {"order": 17}}]

A payload that is JSON stands there as it is, digit for digit. Any other is `{"base64": "…"}`, and
`encoding` says so; also one that a reader might choke on, for then it could not read the others.

The answer has a result for each entry, in any order:

    {"results": [{"id": "…", "status": 200}, {"id": "…", "status": 422, "code": "NO_STOCK"}]}

`status` means what it means for a single job. `code`, `message` and `retryAfter` (seconds) say
more, and `outcome` (`ack`, `retry`, `dead-letter`, `drop`) overrides the status, as `NQ-Outcome`
does. An entry without a result that can be understood is retried. So is one with two results that
differ: of two contradictory words neither counts.

An answer that is no success holds for every entry, and so does one with an `NQ-Outcome`.
"""

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from pydantic_core import from_json

from namedqueue.api.namedqueue import Retry as Policy
from namedqueue.envelope import Job
from namedqueue.moments import rfc3339
from namedqueue.outcomes import Answer, Attempted, Failure, is_outcome, succeeded

CONTENT_TYPE: Final = "application/json"
LARGEST_BODY: Final = 16 * 1024 * 1024
"""Bytes of a batch; an entry that has more by itself goes alone."""

LARGEST_RESULT: Final = 2 * 1024
"""Bytes that the answer may have for each entry."""

_MAYBE_HUGE: Final = re.compile(rb"[0-9][eE]\+?[0-9]{3}")
_TOO_LONG: Final = re.compile(rb"[0-9]{309}")
_LOWEST_STATUS, _HIGHEST_STATUS = 100, 599


def envelope(job: Job, policy: Policy) -> dict[str, object]:
    """Return all that is said of a job beside its payload."""
    return {
        **described(job),
        "attempt": job.attempt,
        "maxAttempts": policy.max_attempts,
    }


def described(job: Job) -> dict[str, object]:
    """Return what is said of a job apart from its attempts and its payload."""
    return {
        "id": job.id,
        "type": job.type,
        "contentType": job.content_type,
        "contentEncoding": job.content_encoding,
        "time": rfc3339(job.time),
        "group": job.group,
        "topic": job.topic,
        "idempotencyKey": job.idempotency_key,
        "traceparent": job.traceparent,
        "tracestate": job.tracestate,
        "headers": dict(job.headers),
    }


def entry(job: Job, policy: Policy) -> bytes:
    """Write a job as an entry of a batch, in UTF-8."""
    said = json.dumps(envelope(job, policy), separators=(",", ":")).encode()
    encoding, payload = shown(job)
    return b'%b,"encoding":"%b","payload":%b}' % (said[:-1], encoding.encode(), payload)


def shown(job: Job) -> tuple[str, bytes]:
    """Return how a payload is shown in JSON, as `json` or as `base64`, and the JSON for it."""
    if not job.content_encoding and _is_plain_json(job.payload):
        return "json", job.payload
    return "base64", b'{"base64":"%b"}' % base64.b64encode(job.payload)


def body(entries: Collection[bytes]) -> bytes:
    """Return the body of a POST."""
    return b"[%b]" % b",".join(entries)


def outcomes(answer: Attempted, ids: Collection[str]) -> dict[str, Attempted]:
    """Return what an answer means for each of these jobs; nothing in it can make this raise."""
    if isinstance(answer, Failure) or is_outcome(answer.nq_outcome) or not succeeded(answer.status):
        return dict.fromkeys(ids, answer)
    said: dict[str, Attempted] = {}
    for job_id, result in _results(answer.body):
        if job_id in ids:
            said[job_id] = result if said.get(job_id, result) == result else Failure.NO_RESULT
    return {job_id: said.get(job_id, Failure.NO_RESULT) for job_id in ids}


def _results(text: bytes) -> Iterator[tuple[str, Attempted]]:
    try:
        document = from_json(text, allow_inf_nan=False)
    except ValueError:
        return
    results = document.get("results") if isinstance(document, dict) else None
    for result in results if isinstance(results, list) else ():
        if isinstance(result, dict) and isinstance(result.get("id"), str):
            yield result["id"], _result(result)


def _result(result: Mapping[str, Any]) -> Attempted:
    status, outcome = result.get("status"), result.get("outcome")
    asked = outcome if isinstance(outcome, str) and is_outcome(outcome) else None
    if type(status) is not int or not _LOWEST_STATUS <= status <= _HIGHEST_STATUS:
        return Failure.NO_RESULT
    return Answer(
        status,
        retry_after=_seconds(result.get("retryAfter")),
        nq_outcome=asked,
        code=_text(result.get("code")),
        message=_text(result.get("message")),
    )


def _seconds(value: object) -> str | None:
    """Read a number of seconds, or what a `Retry-After` header may hold."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return str(round(value)) if 0 <= value < 1 << 53 else None


def _text(value: object) -> str | None:
    if type(value) is int:
        return str(value) if abs(value) < 1 << 63 else None
    return value if isinstance(value, str) else None


def _is_plain_json(payload: bytes) -> bool:
    """Tell whether any reader takes this for JSON.

    Ours is strict about nesting (200 levels), Unicode and numbers. A number that is too large for
    a float, as 1e999, is JSON and yet more than many readers can bear.
    """
    try:
        document = from_json(payload, allow_inf_nan=False)
        if _MAYBE_HUGE.search(payload):
            json.dumps(document, allow_nan=False)
    except ValueError:
        return False
    return not _TOO_LONG.search(payload)
