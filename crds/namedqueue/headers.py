"""The headers of a job on the wire: which are ours, which are the user's, and which never pass.

A job is one AMQP message. Its properties:

    message_id         the job's id; a foreign one is percent-encoded where it is not visible ASCII
    type               the job's type, `ce-type` for the app
    timestamp          when it happened, in seconds; `nq-time` has the milliseconds
    content_type, content_encoding, correlation_id, priority      as the producer set them
    delivery_mode      2, or 1 on ephemeral queues

`user_id` and `reply_to` are never copied, because the broker closes the channel of a publisher for
whom they do not hold; nor is `expiration`, which would let a job leave the ladder early.

    nq-attempt           int    deliveries so far, this one included; counted only by us
    nq-throttles         int    retries that used no attempt (`Retry-After` on 429 and 503)
    nq-redrives          int    how often it was sent back from the dead letters
    nq-redrive           text   the redrive that sent it back last
    nq-edited-from       text   the id of the job that it was sent in place of, edited
    nq-enqueued-at       int    when it was first enqueued, milliseconds since the epoch
    nq-time              int    when it happened, where that differs
    nq-source            text   where it comes from, `ce-source` for the app
    nq-group             text   the group within which a FIFO queue keeps order
    nq-topic             text   the topic it was published to, with slashes
    nq-idempotency-key   text
    nq-history           JSON   its failed attempts, see `namedqueue.history`
    traceparent, tracestate     W3C trace context
    nq-reason, nq-reason-message, nq-dead-lettered-at      in the dead-letter queue only

Any other header is the user's and is held to the limits of `user_headers`. `x-death` and its kin
steer the broker (a copied one loses the job), and `CC` and `BCC` send copies elsewhere, so no
header that begins with `x-` passes unless it is listed here.

Whoever may publish may also forge what is ours. So every reader below returns a safe value for
whatever it is given and raises for nothing. A forged count can only bring a job to the dead
letters sooner; a forged text is only a text.
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import quote

ATTEMPT: Final = "nq-attempt"
THROTTLES: Final = "nq-throttles"
REDRIVES: Final = "nq-redrives"
REDRIVE: Final = "nq-redrive"
EDITED_FROM: Final = "nq-edited-from"
ENQUEUED_AT: Final = "nq-enqueued-at"
TIME: Final = "nq-time"
SOURCE: Final = "nq-source"
GROUP: Final = "nq-group"
TOPIC: Final = "nq-topic"
IDEMPOTENCY_KEY: Final = "nq-idempotency-key"
HISTORY: Final = "nq-history"
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
REASON: Final = "nq-reason"
REASON_MESSAGE: Final = "nq-reason-message"
DEAD_LETTERED_AT: Final = "nq-dead-lettered-at"

X_HEADERS_THAT_PASS: Final = frozenset(
    {
        *("x-request-id", "x-correlation-id", "x-amzn-trace-id", "x-cloud-trace-context"),
        *("x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags"),
    }
)
LARGEST_COUNT: Final = 1_000
LONGEST_TEXT: Final = 255
MOST_USER_HEADER_BYTES: Final = 8 * 1024

UserHeaders: TypeAlias = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[a-z0-9-]{1,64}")
_NOT_VISIBLE = re.compile(r"[^!-~]")
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_RESERVED = frozenset({"cc", "bcc", TRACEPARENT, TRACESTATE})
_WIDEST_INTEGER = 1 << 64


def count(value: object, least: int) -> int:
    """Read a count: within sane bounds, and the least for whatever is none."""
    if type(value) is not int or value < least:
        return least
    return value if value < LARGEST_COUNT else LARGEST_COUNT  # noqa: FURB136 - a call to min costs


def text(value: object, longest: int = LONGEST_TEXT) -> str | None:
    """Read a text of ours: printable, not empty, and at most so many bytes; else None.

    What cannot be printed is percent-encoded rather than dropped, so that two groups or two keys
    that differ stay different.
    """
    if type(value) is not str:
        value = _decoded(value)
        if value is None:
            return None
    if len(value) > longest:
        return None
    if not value.isprintable():
        value = "".join(c if c.isprintable() else _percent(c) for c in value)
    size = len(value) if value.isascii() else len(value.encode())
    return value if 0 < size <= longest else None


def job_id(value: object) -> str | None:
    """Read a message id as a job's id: 1 to 255 characters of visible ASCII, or None."""
    found = text(value)
    if found is None or (found.isascii() and " " not in found):
        return found
    visible = _NOT_VISIBLE.sub(lambda match: _percent(match[0]), found)
    return visible if len(visible) <= LONGEST_TEXT else None


def ascii_text(value: object, longest: int = LONGEST_TEXT) -> str | None:
    """Read a text that goes into an HTTP header as it is: printable ASCII, or None."""
    found = text(value, longest)
    return found if found is not None and found.isascii() else None


def traceparent(value: object) -> str | None:
    """Read a W3C trace parent; None if it is malformed or names no trace."""
    found = ascii_text(value)
    return found if found is not None and _TRACEPARENT.fullmatch(found) else None


def user_headers(raw: Mapping[str, object]) -> UserHeaders:
    """Keep what the user may send: plain names, printable ASCII values, 8 KiB in all.

    Names are folded to lower case before anything is compared, so `X-Death` is `x-death`.
    """
    kept: dict[str, str] = {}
    room = MOST_USER_HEADER_BYTES
    for name, value in raw.items():
        folded = name.lower()
        if folded in kept or not _passes(folded):
            continue
        written = _written(value)
        if written is not None and len(folded) + len(written) <= room:
            room -= len(folded) + len(written)
            kept[folded] = written
    return tuple(kept.items())


@lru_cache(maxsize=256)
def _passes(name: str) -> bool:
    if not _NAME.fullmatch(name) or name.startswith("nq-") or name in _RESERVED:
        return False
    return not name.startswith("x-") or name in X_HEADERS_THAT_PASS


def _written(value: object) -> str | None:
    """Write the value of a user's header as text, or None for what has no plain form."""
    match value:
        case str():
            written = value
        case bytes():
            written = value.decode("ascii", errors="replace")
        case bool():
            written = str(value).lower()
        case int() if abs(value) < _WIDEST_INTEGER:
            written = str(value)
        case float() if math.isfinite(value):
            written = repr(value)
        case _:
            return None
    return written if written.isascii() and written.isprintable() else None


def _decoded(value: object) -> str | None:
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, bytes):
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return quote(value)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))
