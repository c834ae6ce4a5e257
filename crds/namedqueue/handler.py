"""What the app is told about a job: the headers of the POST to its handler.

Names and ids come from whoever published the job, and here they enter an HTTP request. So every
value leaves as printable ASCII in one line. CloudEvents attributes are percent-encoded as the
CloudEvents HTTP binding demands; the others go as they are and are percent-encoded only where
HTTP could not carry them, or where a `%` of their own would be ambiguous then.
"""

from urllib.parse import quote

from namedqueue.api.namedqueue import Retry as Policy
from namedqueue.envelope import Job
from namedqueue.moments import rfc3339

USER_HEADER_PREFIX = "NQ-Header-"
"""A user's header never meets the names of HTTP itself: `tenant` is `NQ-Header-tenant`."""

_KEPT_IN_CLOUDEVENTS = "!#$&'()*+,/:;<=>?@[\\]^`{|}"
_KEPT_ELSEWHERE = f'{_KEPT_IN_CLOUDEVENTS} "'


def handler_headers(job: Job, policy: Policy) -> dict[str, str]:
    """Return the headers with which a job is handed to the app."""
    headers = {
        "Content-Type": job.content_type,
        "ce-specversion": "1.0",
        "ce-id": _cloudevent(job.id),
        "ce-source": _cloudevent(job.source or f"/queues/{job.queue}"),
        "ce-type": _cloudevent(job.type),
        "ce-time": rfc3339(job.time),
        "NQ-Queue": job.queue,
        "NQ-Attempt": str(job.attempt),
        "NQ-Max-Attempts": str(policy.max_attempts),
        "NQ-Retry-Count": str(job.attempt - 1),
        "NQ-Redrives": str(job.redrives),
    }
    if job.content_encoding:
        headers["Content-Encoding"] = job.content_encoding
    if job.group:
        headers["NQ-Group"] = _plain(job.group)
    if job.topic:
        headers["NQ-Topic"] = _plain(job.topic)
    if job.idempotency_key:
        headers["Idempotency-Key"] = _plain(job.idempotency_key)
    if job.traceparent:
        headers["traceparent"] = job.traceparent
        if job.tracestate:
            headers["tracestate"] = job.tracestate
    for name, value in job.headers:
        headers[USER_HEADER_PREFIX + name] = value
    return headers


def stream_headers(group: str, offset: int) -> dict[str, str]:
    """Return what the app is told besides about a message of a stream: for whom, and where.

    `NQ-Group` is the message's own group, as on any queue; this is the group that reads.
    """
    return {"NQ-Stream-Group": group, "NQ-Offset": str(offset)}


def _cloudevent(value: str) -> str:
    if (
        value.isascii()
        and value.isprintable()
        and not (" " in value or "%" in value or '"' in value)
    ):
        return value
    return quote(value, safe=_KEPT_IN_CLOUDEVENTS, errors="replace")


def _plain(value: str) -> str:
    trimmed = value == value.strip()
    if trimmed and value.isascii() and value.isprintable() and "%" not in value:
        return value
    kept = _KEPT_ELSEWHERE if trimmed else _KEPT_IN_CLOUDEVENTS
    return quote(value, safe=kept, errors="replace")
