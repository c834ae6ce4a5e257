"""The shapes of text that recur in manifests: names, topics, error codes, paths into a job."""

from typing import Annotated, Any, TypeAlias

from pydantic import Field, WithJsonSchema

from namedqueue.api.rules import Text
from namedqueue.topics import LEVEL, LONGEST_TOPIC

_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"

DnsLabel: TypeAlias = Annotated[
    str,
    Text(
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        max_length=63,
        hint="is not a DNS label; use up to 63 lower-case letters, digits and inner dashes",
    ),
]
ObjectName: TypeAlias = Annotated[
    str,
    Text(
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        max_length=253,
        hint="is not a Kubernetes object name; use lower-case letters, digits, dashes and dots",
    ),
]
TopicPattern: TypeAlias = Annotated[
    str,
    Text(
        pattern=rf"^(#|({LEVEL}|\+)(/({LEVEL}|\+))*(/#)?)$",
        max_length=LONGEST_TOPIC,
        hint=(
            "is not a topic pattern; separate levels by /, write + for one level "
            "and # only at the end for the rest, as in order/+/created"
        ),
    ),
]
ErrorCode: TypeAlias = Annotated[
    str,
    Text(
        pattern=r"^[A-Z][A-Z0-9_]{0,63}$",
        max_length=64,
        hint="is not an error code; use capitals, digits and underscores, as in HTTP_422",
    ),
]
KeyPath: TypeAlias = Annotated[
    str,
    Text(
        pattern=r"^(body(\.[A-Za-z0-9_-]+)+|header\.[a-z0-9-]{1,64}|messageId)$",
        max_length=200,
        hint=(
            "does not say where the key is; write body.<field>, header.<name> or messageId, "
            "as in body.idempotencyKey"
        ),
    ),
]
HttpPath: TypeAlias = Annotated[
    str,
    Text(
        pattern=r"^/([A-Za-z0-9._~!$&'()*+,;=:@%/?-]|\{type\})*$",
        max_length=1024,
        hint="is not a path; begin with / and use {type} where the message's type goes",
    ),
]
HealthPath: TypeAlias = Annotated[
    str,
    Text(
        pattern=r"^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$",
        max_length=1024,
        hint="is not a path; begin with /, as in /healthz",
    ),
]
Opaque: TypeAlias = Annotated[
    dict[str, Any],
    Field(strict=False),
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
JobId: TypeAlias = Annotated[
    str,
    Text(
        pattern=r"^[!-~]{1,255}$",
        max_length=255,
        hint="is not a job id; use up to 255 printable ASCII characters without spaces",
    ),
]
StartPosition: TypeAlias = Annotated[
    int | str,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "minimum": 0, "maximum": 10**15 - 1}),
    Text(
        pattern=rf"^(first|last|next|[0-9]{{1,15}}|{_DATE}T{_TIME}Z)$",
        max_length=40,
        hint="is no position in a stream; write first, last, next, an offset, "
        "or a time as in 2026-02-26T12:00:00Z",
    ),
]
StepSize: TypeAlias = Annotated[
    int | str,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "minimum": 1, "maximum": 9999}),
    Text(
        pattern=r"^([1-9][0-9]{0,3}|([1-9][0-9]?|100)%)$",
        max_length=5,
        hint="is no step; write a count as in 2, or a percentage as in 50%",
    ),
]
