"""The documents that the API takes and gives, as JSON Schema, each with an example."""

from typing import Any, Final, TypeAlias

from namedqueue import headers as h
from namedqueue.api import durations
from namedqueue.outcomes import Kind
from namedqueue.triage import Review
from namedqueue_sidecar.intake.jobs import MOST_ENTRIES

Schema: TypeAlias = dict[str, Any]

_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
_LINE: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": h.LONGEST_TEXT,
    "pattern": "^[!-~]([ -~]*[!-~])?$",
}
TEXT: Final[Schema] = {"type": "string"}
ID: Final[Schema] = _LINE | {"pattern": "^[!-~]+$"}
DURATION: Final[Schema] = {
    "type": "string",
    "pattern": durations.PATTERN,
    "maxLength": durations.MAX_LENGTH,
    "examples": ["10s"],
}
PRIORITY: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 255}
LINE: Final = _LINE


def _object(example: Schema, /, *, optional: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Return the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        "properties": properties,
        "examples": [example],
    }


def _list_of(name: str) -> Schema:
    items = {"type": "array", "items": reference(name)}
    following = {"type": ["string", "null"], "description": "the `after` of the next page"}
    return _object({"items": [], "next": None}, items=items, next=following)


def reference(name: str) -> Schema:
    """Return a reference to one of the schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


REVIEW: Final[Schema] = {"enum": [state.value for state in Review]}
_PER_SECOND: Final[Schema] = {"type": "number", "minimum": 0}
_RATES = _object(
    {"enqueued": 12.5, "processed": 11.9},
    enqueued=_PER_SECOND | {"description": "jobs a second sent to the queue through this API"},
    processed=_PER_SECOND | {"description": "jobs a second finished by the app beside it"},
) | {"description": "over the last ten seconds, as seen here; other pods see their own"}
_DEPTH = _object(
    {"ready": 120, "inFlight": 40, "waiting": 3, "dead": 1},
    ready=_COUNT,
    inFlight=_COUNT,
    waiting=_COUNT,
    dead=_COUNT,
)
_HALT = _object(
    {"offset": 42, "id": "01932c8e9c50a1b2", "code": "HTTP_422", "message": "…"},
    offset=_COUNT,
    id=ID,
    code=TEXT,
    message=TEXT,
)
_WORKER = _object(
    {"inFlight": 4, "appIsThere": True},
    optional=("halted",),
    inFlight=_COUNT,
    appIsThere={"type": "boolean"},
    halted={
        "type": "object",
        "description": "of a stream: the groups that wait for a person, and at what",
        "additionalProperties": _HALT,
    },
)
SCHEMAS: Final[dict[str, Schema]] = {
    "Accepted": _object({"id": "01932c8e9c50a1b2", "queue": "orders"}, id=ID, queue=TEXT),
    "Published": _object(
        {"id": "01932c8e9c50a1b2", "topic": "order/eu/created"}, id=ID, topic=TEXT
    ),
    "Entry": _object(
        {"key": "order-17", "type": "order.created", "delay": "10s", "payload": {"order": 17}},
        optional=("id", "key", "type", "group", "priority", "delay", "headers"),
        id=ID,
        key=_LINE,
        type=_LINE,
        group=_LINE,
        priority=PRIORITY,
        delay=DURATION,
        headers={
            "type": "object",
            "description": "the job's own headers; the app gets each as `NQ-Header-<name>`",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        },
        payload={"description": "any JSON value"},
    ),
    "Batch": {"type": "array", "maxItems": MOST_ENTRIES, "items": reference("Entry")},
    "BatchAccepted": _object({"accepted": 3}, accepted=_COUNT),
    "BatchPartlyAccepted": _object(
        {"accepted": 2, "failed": [{"index": 1, "code": "INVALID_DELAY", "detail": "…"}]},
        accepted=_COUNT,
        failed={"type": "array", "minItems": 1, "items": reference("FailedEntry")},
    ),
    "FailedEntry": _object(
        {"index": 1, "code": "INVALID_REQUEST", "detail": "payload is missing"},
        index=_COUNT,
        code=TEXT,
        detail=TEXT,
    ),
    "Queue": _object(
        {
            "name": "orders",
            "namespace": "shop",
            "type": "durable",
            "depth": {"ready": 120, "inFlight": 40, "waiting": 3, "dead": 1},
            "rates": {"enqueued": 12.5, "processed": 11.9},
            "consumers": 3,
            "subscriptions": ["order/+/created"],
            "worker": {"inFlight": 4, "appIsThere": True},
        },
        name=TEXT,
        namespace=TEXT,
        type={"enum": ["durable", "ephemeral", "stream"]},
        depth={"oneOf": [_DEPTH, {"type": "null"}]},
        rates=_RATES,
        consumers=_COUNT | {"description": "how many want jobs, here and elsewhere"},
        subscriptions={"type": "array", "items": TEXT},
        worker={"oneOf": [_WORKER, {"type": "null"}]},
    ),
    "Queues": _list_of("Queue"),
    "DeadLetter": _object(
        {
            "eventId": "01932c8e9c50a1b2",
            "queue": "orders",
            "idempotencyKey": "order-17",
            "traceId": None,
            "attemptCount": 5,
            "terminalReasonCode": "HTTP_422",
            "terminalReasonMessage": "the app answered 422",
            "attemptHistory": [],
            "payloadSnapshot": {"order": 17},
            "headers": {"tenant": "acme"},
            "deadLetteredAt": "2026-11-18T01:04:44.000Z",
            "redrives": 0,
            "state": "pending",
            "group": "a1f4d8c07b3e9652",
        },
        optional=("state", "group", "editedFrom", "editedTo"),
        eventId=ID,
        queue=TEXT,
        idempotencyKey={"type": ["string", "null"]},
        traceId={"type": ["string", "null"]},
        attemptCount=_COUNT,
        terminalReasonCode=TEXT,
        terminalReasonMessage=TEXT,
        attemptHistory={"type": "array", "items": reference("Attempt")},
        payloadSnapshot={"description": "JSON as it is, text as text, the rest as {base64}"},
        headers={"type": "object", "additionalProperties": TEXT},
        deadLetteredAt=MOMENT,
        redrives=_COUNT,
        state=REVIEW | {"description": "with a store"},
        group=TEXT | {"description": "with a store: the name of its group"},
        editedFrom=ID | {"description": "the job that this one was sent in place of"},
        editedTo=ID | {"description": "with a store: the job that was sent in its place"},
    ),
    "ReviewState": _object({"state": "reviewed"}, state=REVIEW),
    "DeadLetters": _list_of("DeadLetter"),
    "Attempt": _object(
        {
            "attempt": 1,
            "outcome": "transient",
            "errorCode": "TIMEOUT",
            "at": "2026-11-18T01:04:44.000Z",
            "durationMs": 30000,
            "message": "the app did not answer in time",
        },
        optional=("message",),
        attempt=_COUNT,
        outcome={"enum": [kind.value for kind in Kind]},
        errorCode=TEXT,
        at=MOMENT,
        durationMs=_COUNT,
        message=TEXT,
    ),
    "ReasonGroup": _object(
        {
            "reason": "HTTP_422",
            "count": 12,
            "message": "the app answered 422",
            "first": "2026-11-18T01:04:44.000Z",
            "last": "2026-11-18T02:04:44.000Z",
            "example": "01932c8e9c50a1b2",
            "group": "a1f4d8c07b3e9652",
        },
        optional=("group",),
        reason=TEXT,
        count=_COUNT,
        message=TEXT,
        first=MOMENT,
        last=MOMENT,
        example=ID,
        group=TEXT | {"description": "with a store: code, shape of the message and handler"},
    ),
    "ReasonGroups": _list_of("ReasonGroup"),
    "Redrive": _object(
        {"reason": "HTTP_422", "limit": 100},
        optional=("limit", "reason", "ids", "ratePerSecond", "abortAfterFailures", "dryRun"),
        limit={"type": "integer", "minimum": 1},
        reason=TEXT,
        ids={"type": "array", "items": TEXT},
        ratePerSecond={"type": "number", "exclusiveMinimum": 0, "maximum": 100_000},
        abortAfterFailures={
            "type": "integer",
            "minimum": 1,
            "description": "stop when so many of the jobs that were sent came straight back",
        },
        dryRun={"type": "boolean", "default": False},
    ),
    "Redriven": _object(
        {"queue": "payment", "redriven": 12},
        optional=("matched", "ended"),
        queue=TEXT,
        redriven=_COUNT,
        matched=_COUNT | {"description": "with dryRun: how many would be sent back"},
        ended=TEXT | {"description": "why it ended before its end, if it did"},
    ),
    "Edited": _object(
        {
            "queue": "payment",
            "redriven": 1,
            "id": "5f1d7a84c3b92e60a1f4d8c07b3e9652",
            "editedFrom": "01932c8e9c50a1b2",
        },
        queue=TEXT,
        redriven={"const": 1},
        id=ID | {"description": "of the job that was sent"},
        editedFrom=ID | {"description": "of the dead letter, which is no more"},
    ),
    "RedriveProgress": _object(
        {
            "queue": "payment",
            "redrive": "5f1d7a84c3b92e60a1f4d8c07b3e9652",
            "phase": "Running",
            "matched": 50,
            "redriven": 12,
            "remaining": 38,
            "failed": 0,
            "message": "",
        },
        queue=TEXT,
        redrive=TEXT,
        phase={"enum": ["Waiting", "Running", "Succeeded", "Aborted", "Stopped", "Failed"]},
        matched={"type": ["integer", "null"], "description": "null until it is known"},
        redriven=_COUNT,
        remaining={"type": ["integer", "null"]},
        failed=_COUNT | {"description": "of those that were sent, how many were seen to come back"},
        message=TEXT | {"description": "why it ended before its end, if it did"},
    ),
    "Pull": _object(
        {"max": 10, "wait": "30s", "visibility": "5m", "worker": "gpu-3"},
        optional=("max", "wait", "visibility", "worker"),
        max={"type": "integer", "minimum": 1, "maximum": 1000, "default": 1},
        wait=DURATION
        | {
            "description": "for the first job; 250ms at the least, 60s at the most",
            "default": "0s",
        },
        visibility=DURATION
        | {
            "description": "how long each job is the worker's; from 100ms to 29m, or to the "
            "queue's worker.timeout if that is longer; by default worker.timeout, or 30s"
        },
        worker=_LINE | {"description": "shown in the in-flight list", "default": "pull"},
    ),
    "Leases": _object(
        {"items": []}, items={"type": "array", "maxItems": 1000, "items": reference("Lease")}
    ),
    "Lease": _object(
        {
            "lease": "5f1d7a84c3b92e60a1f4d8c07b3e9652",
            "until": "2026-11-18T01:09:44.000Z",
            "id": "01932c8e9c50a1b2",
            "type": "order.created",
            "attempt": 1,
            "maxAttempts": 5,
            "contentType": "application/json",
            "contentEncoding": None,
            "encoding": "json",
            "payload": {"order": 17},
            "time": "2026-11-18T01:04:44.000Z",
            "group": None,
            "topic": "order/eu/created",
            "idempotencyKey": "order-17",
            "traceparent": None,
            "tracestate": None,
            "headers": {"tenant": "acme"},
        },
        lease=TEXT,
        until=MOMENT | {"description": "finish or extend it before, or it counts as a TIMEOUT"},
        id=ID,
        type=TEXT,
        attempt=_COUNT,
        maxAttempts=_COUNT,
        contentType=TEXT,
        contentEncoding={"type": ["string", "null"]},
        encoding={"enum": ["json", "base64"]},
        payload={"description": "by `encoding`: the JSON value itself, or {base64}"},
        time=MOMENT,
        group={"type": ["string", "null"]},
        topic={"type": ["string", "null"]},
        idempotencyKey={"type": ["string", "null"]},
        traceparent={"type": ["string", "null"]},
        tracestate={"type": ["string", "null"]},
        headers={"type": "object", "additionalProperties": TEXT},
    ),
    "Finish": _object(
        {"outcome": "nack", "code": "GPU_BUSY", "retryAfter": "30s"},
        optional=("code", "retryAfter", "visibility"),
        outcome={"enum": ["ack", "nack", "reject", "extend"]},
        code={"type": ["string", "integer"], "description": "with nack and reject: what failed"},
        retryAfter=DURATION | {"description": "with nack: instead of the queue's own backoff"},
        visibility=DURATION | {"description": "with extend: from now on; as at first by default"},
    ),
    "Decision": {
        "oneOf": [
            _object({"decision": "ack"}, decision={"const": "ack"}),
            _object(
                {"decision": "retry", "attempt": 2, "delayMs": 1250},
                decision={"const": "retry"},
                attempt=_COUNT | {"description": "the number of the next attempt"},
                delayMs=_COUNT,
            ),
            _object(
                {"decision": "dead-letter", "code": "REJECTED"},
                decision={"enum": ["dead-letter", "drop"]},
                code=TEXT,
            ),
            _object(
                {"decision": "extend", "until": "2026-11-18T01:09:44.000Z"},
                decision={"const": "extend"},
                until=MOMENT,
            ),
        ]
    },
    "InFlight": _object(
        {
            "id": "01932c8e9c50a1b2",
            "type": "order.created",
            "attempt": 1,
            "worker": "push",
            "since": "2026-11-18T01:04:44.000Z",
            "until": "2026-11-18T01:05:14.000Z",
        },
        id=ID,
        type=TEXT,
        attempt=_COUNT,
        worker=TEXT | {"description": "`push`, or the name that the worker gave when it pulled"},
        since=MOMENT,
        until=MOMENT,
    ),
    "InFlights": _list_of("InFlight"),
    "Stream": _object(
        {"queue": "events", "first": 120, "next": 4711},
        queue=TEXT,
        first=_COUNT | {"description": "the offset of the oldest message there is"},
        next=_COUNT | {"description": "the offset of the message to come"},
    ),
    "StreamMessage": _object(
        {
            "offset": 42,
            "id": "01932c8e9c50a1b2",
            "type": "order.created",
            "contentType": "application/json",
            "contentEncoding": None,
            "encoding": "json",
            "payload": {"order": 17},
            "time": "2026-11-18T01:04:44.000Z",
            "group": None,
            "topic": "order/eu/created",
            "idempotencyKey": "order-17",
            "traceparent": None,
            "tracestate": None,
            "headers": {"tenant": "acme"},
        },
        offset=_COUNT,
        id=ID,
        type=TEXT,
        contentType=TEXT,
        contentEncoding={"type": ["string", "null"]},
        encoding={"enum": ["json", "base64"]},
        payload={"description": "by `encoding`: the JSON value itself, or {base64}"},
        time=MOMENT,
        group={"type": ["string", "null"], "description": "the message's own, as in NQ-Group"},
        topic={"type": ["string", "null"]},
        idempotencyKey={"type": ["string", "null"]},
        traceparent={"type": ["string", "null"]},
        tracestate={"type": ["string", "null"]},
        headers={"type": "object", "additionalProperties": TEXT},
    ),
    "StreamMessages": _object(
        {"items": [], "last": None, "next": 42},
        items={"type": "array", "maxItems": MOST_ENTRIES, "items": reference("StreamMessage")},
        last={
            "type": ["integer", "null"],
            "minimum": 0,
            "description": "the offset to commit when all of this is processed; null if nothing "
            "was looked at",
        },
        next=_COUNT | {"description": "the `from` of whoever reads on without a group"},
    ),
    "StreamGroup": _object(
        {"group": "audit", "cursor": 42, "lag": 3, "pushed": False, "halted": None},
        group=TEXT,
        cursor={"type": ["integer", "null"], "description": "the offset that it reads next"},
        lag={"type": ["integer", "null"], "description": "messages from there to the newest"},
        pushed={"type": "boolean", "description": "whether the worker is given its messages"},
        halted={"oneOf": [_HALT, {"type": "null"}]},
    ),
    "StreamGroups": _list_of("StreamGroup"),
    "Commit": _object(
        {"offset": 41},
        offset=_COUNT | {"description": "the last one that is processed: `last` of what was read"},
    ),
    "Seek": _object(
        {"to": "first"},
        to={
            "type": ["string", "integer"],
            "description": "first, last, next, an offset, or a time as in 2026-02-26T12:00:00Z",
        },
    ),
    "Cursor": _object({"group": "audit", "cursor": 42}, group=TEXT, cursor=_COUNT),
    "Status": _object({"status": "drained"}, status=TEXT),
    "Readiness": _object(
        {"status": "not ready", "missing": ["the app of shop/orders does not answer yet"]},
        status={"enum": ["ready", "not ready"]},
        missing={"type": "array", "items": TEXT},
    ),
    "Problem": _object(
        {
            "type": "urn:namedqueue:problem:unknown-queue",
            "status": 404,
            "code": "UNKNOWN_QUEUE",
            "detail": "there is no NamedQueue shop/order here",
        },
        type={"type": "string", "format": "uri"},
        status={"type": "integer"},
        code=TEXT | {"description": "stable; what a program looks at"},
        detail=TEXT | {"description": "for people: what is wrong, and what to do"},
    ),
}
