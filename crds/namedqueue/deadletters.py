"""Dead letters: jobs that failed for good, with the whole story of why.

The job itself lies in the queue's dead-letter queue, and its headers tell the story, so a queue
can be browsed and redriven without a store. Where there is one, it holds the same record.

Some jobs are brought there by the broker and not by us, because they expired or because no
delivery was ever acknowledged. Those have no reason of ours. The broker's newest note on the job
(`x-death`) then says which of the two it was. This is the one place that looks at it, for a name
to show and never to count: nothing is decided by it, and encoding strips it like everywhere else.
"""

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from namedqueue import codes
from namedqueue import headers as h
from namedqueue.envelope import Job, Table, decode, encode
from namedqueue.history import AttemptRecord
from namedqueue.moments import read_milliseconds, read_timestamp, rfc3339
from namedqueue.retry import DeadLetter

_BY_BROKER: Final = {
    "expired": DeadLetter(codes.EXPIRED, "the job waited longer than the queue's messageTTL"),
    "delivery_limit": DeadLetter(
        codes.DELIVERY_LIMIT,
        "the job was delivered again and again and never finished; it may crash the app",
    ),
}
_BY_NOBODY: Final = DeadLetter(codes.UNNAMED, "the broker dead-lettered the job without a reason")
_LONGEST_MESSAGE_BYTES: Final = 4 * codes.LONGEST_MESSAGE


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A dead-lettered job, and why and when it became one."""

    job: Job
    reason: DeadLetter
    dead_lettered_at: int

    def document(self) -> dict[str, object]:
        """Return the record as people and stores see it."""
        job = self.job
        made_from = {"editedFrom": job.edited_from} if job.edited_from else {}
        return {
            "eventId": job.id,
            "queue": job.queue,
            "idempotencyKey": job.idempotency_key,
            "traceId": job.trace_id,
            "attemptCount": job.attempt,
            "terminalReasonCode": self.reason.code,
            "terminalReasonMessage": self.reason.message,
            "attemptHistory": [record.document() for record in job.history.records],
            "payloadSnapshot": _snapshot(job),
            "headers": dict(job.headers),
            "deadLetteredAt": rfc3339(self.dead_lettered_at),
            "redrives": job.redrives,
            **made_from,
        }


def bury(job: Job, reason: DeadLetter, record: AttemptRecord | None, at: int) -> DeadLetterRecord:
    """Return the record of a job that failed for good; without an attempt if it never had one."""
    story = job.history if record is None else job.history.with_record(record)
    message = codes.readable(reason.message) or reason.code
    return DeadLetterRecord(job._replace(history=story), DeadLetter(reason.code, message), at)


def redriven(job: Job, redrive: str | None = None) -> Job:
    """Return the job as it is sent back: attempts begin anew, payload and history stay.

    It keeps the name of its redrive, so one that fails again is known to have been sent by it.
    """
    return job._replace(
        attempt=1,
        throttles=0,
        redrives=h.count(job.redrives + 1, least=0),
        redrive=redrive or job.redrive,
    )


def encode_dead_letter(record: DeadLetterRecord) -> tuple[Table, Table]:
    """Write a dead letter as AMQP properties and headers."""
    properties, headers = encode(record.job)
    headers[h.REASON] = record.reason.code
    headers[h.REASON_MESSAGE] = record.reason.message
    headers[h.DEAD_LETTERED_AT] = record.dead_lettered_at
    return properties, headers


def decode_dead_letter(
    properties: Mapping[str, Any],
    headers: Mapping[str, Any] | None,
    payload: bytes,
    *,
    queue: str,
    fresh_id: str,
    now: int,
) -> DeadLetterRecord:
    """Read a dead letter, whether we put it there or the broker did."""
    job = decode(properties, headers, payload, queue=queue, fresh_id=fresh_id, now=now)
    found = headers or {}
    code = codes.error_code(h.text(found.get(h.REASON)))
    if code is None:
        reason, at = _brought_by_the_broker(found.get("x-death"))
    else:
        message = codes.readable(h.text(found.get(h.REASON_MESSAGE), _LONGEST_MESSAGE_BYTES))
        reason = DeadLetter(code, message or code)
        at = read_milliseconds(found.get(h.DEAD_LETTERED_AT))
    return DeadLetterRecord(job, reason, now if at is None else at)


def _brought_by_the_broker(deaths: object) -> tuple[DeadLetter, int | None]:
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    if not isinstance(newest, dict):
        return _BY_NOBODY, None
    why = h.text(newest.get("reason"))
    return _BY_BROKER.get(why or "", _BY_NOBODY), read_timestamp(newest.get("time"))


def _snapshot(job: Job) -> object:
    """Show a payload as JSON if it is JSON, else as text, else in base64.

    It is for reading. What is redriven is the payload itself, byte for byte.
    """
    if not job.content_encoding:
        with suppress(ValueError):
            return _json(job.payload)
        with suppress(UnicodeDecodeError):
            return job.payload.decode()
    return {"base64": base64.b64encode(job.payload).decode()}


def _json(payload: bytes) -> object:
    """Read JSON that can be written again; a number beyond floats, as 1e999, could not be."""
    document: object = from_json(payload, allow_inf_nan=False)
    json.dumps(document, allow_nan=False)
    return document
