"""The documents that the API takes and gives, as JSON Schema, each with an example."""

from typing import Any, Final, TypeAlias

from namedqueue import headers as h
from namedqueue.api import durations
from namedqueue.outcomes import Kind
from namedqueue_sidecar.intake.jobs import MOST_ENTRIES

Schema: TypeAlias = dict[str, Any]

_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
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


_DEPTH = _object(
    {"ready": 120, "inFlight": 40, "waiting": 3, "dead": 1},
    ready=_COUNT,
    inFlight=_COUNT,
    waiting=_COUNT,
    dead=_COUNT,
)
_WORKER = _object(
    {"inFlight": 4, "appIsThere": True}, inFlight=_COUNT, appIsThere={"type": "boolean"}
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
            "subscriptions": ["order/+/created"],
            "worker": {"inFlight": 4, "appIsThere": True},
        },
        name=TEXT,
        namespace=TEXT,
        type={"enum": ["durable", "ephemeral", "stream"]},
        depth={"oneOf": [_DEPTH, {"type": "null"}]},
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
        },
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
        deadLetteredAt=_MOMENT,
        redrives=_COUNT,
    ),
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
        at=_MOMENT,
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
        },
        reason=TEXT,
        count=_COUNT,
        message=TEXT,
        first=_MOMENT,
        last=_MOMENT,
        example=ID,
    ),
    "ReasonGroups": _list_of("ReasonGroup"),
    "Redrive": _object(
        {"reason": "HTTP_422", "limit": 100},
        optional=("limit", "reason", "ids", "dryRun"),
        limit={"type": "integer", "minimum": 1},
        reason=TEXT,
        ids={"type": "array", "items": TEXT},
        dryRun={"type": "boolean", "default": False},
    ),
    "Redriven": _object(
        {"queue": "payment", "redriven": 12},
        optional=("matched",),
        queue=TEXT,
        redriven=_COUNT,
        matched=_COUNT | {"description": "with dryRun: how many would be sent back"},
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
        until=_MOMENT | {"description": "finish or extend it before, or it counts as a TIMEOUT"},
        id=ID,
        type=TEXT,
        attempt=_COUNT,
        maxAttempts=_COUNT,
        contentType=TEXT,
        contentEncoding={"type": ["string", "null"]},
        encoding={"enum": ["json", "base64"]},
        payload={"description": "by `encoding`: the JSON value itself, or {base64}"},
        time=_MOMENT,
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
                decision={"const": "dead-letter"},
                code=TEXT,
            ),
            _object(
                {"decision": "extend", "until": "2026-11-18T01:09:44.000Z"},
                decision={"const": "extend"},
                until=_MOMENT,
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
        since=_MOMENT,
        until=_MOMENT,
    ),
    "InFlights": _list_of("InFlight"),
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
