"""What the app's answer means for its job.

Three voices, the later one winning: the table of status codes below, the queue's own
`spec.errors`, and the header `NQ-Outcome` by which a handler decides for itself.

    2xx                                        processed
    408, 425, 429, 5xx, time-out, reset        transient
    400, 405, 406, 410, 413, 414, 415, 422     permanent
    anything else                              unknown, treated as transient
    connection refused                         the app is absent; not an attempt at all

`spec.errors` matches the attempt's error code, and after it `HTTP_<status>`: a rule for HTTP_409
holds for every 409, also when the body gives a finer code, unless a rule names that code itself.
It does not apply to a 2xx, which is no error, nor to a refused connection, which is no attempt.

An answer is written by the app, possibly from what a stranger sent it, so nothing in it can make
this module raise: a body too large, too deep or not what it claims is a body without a code.
"""

import json
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum, StrEnum
from http import HTTPStatus
from typing import Final, TypeAlias

from namedqueue import codes
from namedqueue.api.namedqueue import Errors
from namedqueue.moments import from_datetime

LARGEST_BODY = 64 * 1024
"""Bodies of failed attempts are read up to here; a sidecar need not keep more of them."""

LONGEST_RETRY_AFTER_MS = 366 * 86_400_000

_LONGEST_RETRY_AFTER_TEXT = 64
_PERMANENT = frozenset({400, 405, 406, 410, 413, 414, 415, 422})
_TRANSIENT = frozenset({408, 425, 429, *range(500, 600)})
_THROTTLING = frozenset({429, 503})


class Kind(StrEnum):
    """What became of an attempt."""

    PROCESSED = "processed"
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"
    APP_ABSENT = "app-absent"
    DROPPED = "dropped"


class Failure(Enum):
    """Why there was no answer: the error code and a sentence for people."""

    TIMEOUT = (codes.TIMEOUT, "the app did not answer in time")
    RESET = (codes.CONNECTION_RESET, "the connection to the app broke before its answer")
    REFUSED = (codes.CONNECTION_REFUSED, "the app does not accept connections")
    NO_RESULT = (codes.NO_RESULT, "the app answered the batch without a usable result for this job")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer of the app, as far as it matters.

    `code` and `message` are for answers that state them outright: an entry of a batch.
    """

    status: int
    content_type: str = ""
    body: bytes = b""
    retry_after: str | None = None
    nq_outcome: str | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to; `retry.decide` turns it into what is done.

    `throttled` marks a 429 or 503 with a `Retry-After`: the app asks for patience and the attempt
    does not count.
    """

    kind: Kind
    code: str = ""
    message: str | None = None
    retry_after_ms: int | None = None
    throttled: bool = False


@dataclass(frozen=True, slots=True)
class _Problem:
    """What a body says about the error."""

    code: str | None = None
    message: str | None = None


PROCESSED: Final = Outcome(Kind.PROCESSED)
DROPPED: Final = Outcome(Kind.DROPPED)
APP_ABSENT: Final = Outcome(Kind.APP_ABSENT, *Failure.REFUSED.value)

Attempted: TypeAlias = Answer | Failure

_NO_RULES = Errors()
_NO_PROBLEM = _Problem()
_ASKED = {
    "ack": Kind.PROCESSED,
    "retry": Kind.TRANSIENT,
    "dead-letter": Kind.PERMANENT,
    "drop": Kind.DROPPED,
}


def classify(attempted: Attempted, errors: Errors = _NO_RULES, *, now: int) -> Outcome:
    """Return what an attempt came to; `now` is in milliseconds since the epoch."""
    if isinstance(attempted, Failure):
        return _failed(attempted, errors)
    asked = _asked(attempted.nq_outcome)
    if asked is Kind.DROPPED:
        return DROPPED
    if asked is Kind.PROCESSED or (asked is None and succeeded(attempted.status)):
        return PROCESSED
    return _answered(attempted, asked, errors, now)


def invalid(message: str) -> Outcome:
    """Return the outcome of a job that is not fit to be shown to the app."""
    return Outcome(Kind.PERMANENT, codes.VALIDATION_ERROR, codes.readable(message))


def retry_after_ms(value: str | None, *, now: int) -> int | None:
    """Read a `Retry-After` of seconds or as an HTTP date; None if it is neither."""
    text = value.strip() if value else ""
    if not text or len(text) > _LONGEST_RETRY_AFTER_TEXT or not text.isascii():
        return None
    if text.isdigit():
        return min(int(text) * 1000, LONGEST_RETRY_AFTER_MS)
    try:
        moment = from_datetime(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(moment - now, 0), LONGEST_RETRY_AFTER_MS)


def succeeded(status: int) -> bool:
    """Tell whether a status is of the class of success."""
    return 200 <= status < 300  # noqa: PLR2004 - the class of success


def is_outcome(text: str | None) -> bool:
    """Tell whether this says, as `NQ-Outcome` does, what shall become of a job."""
    return _asked(text) is not None


def _asked(text: str | None) -> Kind | None:
    return _ASKED.get(text.strip().lower()) if text else None


def _failed(failure: Failure, errors: Errors) -> Outcome:
    if failure is Failure.REFUSED:
        return APP_ABSENT
    code, message = failure.value
    return Outcome(_ruled(errors, code) or Kind.TRANSIENT, code, message)


def _answered(answer: Answer, asked: Kind | None, errors: Errors, now: int) -> Outcome:
    problem = _read(answer)
    by_status = codes.http_code(answer.status)
    code = problem.code or by_status
    wait = retry_after_ms(answer.retry_after, now=now)
    return Outcome(
        kind=asked or _ruled(errors, code) or _ruled(errors, by_status) or _listed(answer.status),
        code=code,
        message=problem.message or _sentence(answer.status),
        retry_after_ms=wait,
        throttled=wait is not None and answer.status in _THROTTLING,
    )


def _ruled(errors: Errors, code: str) -> Kind | None:
    if code in errors.permanent:
        return Kind.PERMANENT
    if code in errors.transient:
        return Kind.TRANSIENT
    return None


def _listed(status: int) -> Kind:
    if status in _TRANSIENT:
        return Kind.TRANSIENT
    return Kind.PERMANENT if status in _PERMANENT else Kind.UNKNOWN


def _sentence(status: int) -> str:
    try:
        return f"the app answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the app answered {status}"


def _read(answer: Answer) -> _Problem:
    """Find the error's code and message in what the app wrote."""
    if answer.code is not None or answer.message is not None:
        return _Problem(codes.error_code(answer.code), codes.readable(answer.message))
    media_type = answer.content_type.partition(";")[0].strip().lower()
    if not answer.body or len(answer.body) > LARGEST_BODY:
        return _NO_PROBLEM
    if media_type == "text/plain":
        return _Problem(message=codes.readable(answer.body.decode(errors="replace")))
    if media_type == "application/json" or media_type.endswith("+json"):
        return _read_json(answer.body, is_problem=media_type == "application/problem+json")
    return _NO_PROBLEM


def _read_json(body: bytes, *, is_problem: bool) -> _Problem:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return _NO_PROBLEM
    if not isinstance(document, dict):
        return _NO_PROBLEM
    code = codes.error_code(document.get("code"))
    if code is None and is_problem:
        code = _code_of_type(document.get("type"))
    texts = (codes.readable(document.get(name)) for name in ("detail", "message", "title", "error"))
    return _Problem(code, next(filter(None, texts), None))


def _code_of_type(uri: object) -> str | None:
    """Take the last segment of a problem type; `about:blank` says «no more than the status»."""
    if not isinstance(uri, str) or uri == "about:blank":
        return None
    path = uri.partition("?")[0].rstrip("/#:")
    return codes.error_code(path.replace("#", "/").replace(":", "/").rpartition("/")[2])
