"""Error codes: the short words by which failures are matched, counted and grouped.

A code is `[A-Z][A-Z0-9_]{0,63}`, whatever the app called it, so that `payment-declined` and
`paymentDeclined` are one group of dead letters and one word in `spec.errors`. The texts beside a
code are made printable and short here too, because they end up in headers, logs and terminals.
"""

import re

TIMEOUT = "TIMEOUT"
"""The app did not answer in time, or a lease ran out."""

CONNECTION_RESET = "ECONNRESET"
"""The connection to the app broke before the answer was complete."""

CONNECTION_REFUSED = "ECONNREFUSED"
"""Nothing listens on the app's port."""

VALIDATION_ERROR = "VALIDATION_ERROR"
"""The job cannot be read, or its payload violates the queue's schema."""

NACKED = "NACKED"
"""A worker that leased the job put it off without saying why."""

REJECTED = "REJECTED"
"""A worker that leased the job gave it up without saying why."""

NO_RESULT = "NO_RESULT"
"""The app answered a batch and said nothing of this job."""

NO_ROOM = "NO_ROOM"
"""Too many jobs of an ephemeral queue wait for their next attempt in one process."""

INTERRUPTED = "INTERRUPTED"
"""The process ended while a job of an ephemeral queue waited in it for its next attempt."""

EXPIRED = "EXPIRED"
"""The job waited longer than the queue's `messageTTL`."""

DELIVERY_LIMIT = "DELIVERY_LIMIT"
"""The broker gave up on a job that nobody ever acknowledged: it kills the app or its pod."""

UNNAMED = "UNKNOWN"
"""A failure that nobody gave a name."""

LONGEST_CODE = 64
LONGEST_MESSAGE = 512

_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OTHER = re.compile(r"[^A-Z0-9]+")


def http_code(status: int) -> str:
    """Return the code of an answer that gives no better one."""
    return f"HTTP_{status}"


def error_code(name: object) -> str | None:
    """Return the code for what an app calls its error; None if there is no word in it.

    Numbers are common as error codes and become `E_20404`.
    """
    if isinstance(name, int) and not isinstance(name, bool):
        return error_code(f"{name:d}"[:LONGEST_CODE]) if abs(name) < 1 << 63 else None
    if not isinstance(name, str):
        return None
    if _CODE.fullmatch(name):
        return name
    words = _HUMP.sub("_", name[: 2 * LONGEST_CODE]).upper()
    code = _OTHER.sub("_", words).strip("_")
    if code[:1].isdigit():
        code = f"E_{code}"
    return code[:LONGEST_CODE] or None


def readable(text: object, longest: int = LONGEST_MESSAGE) -> str | None:
    """Return a text as one printable line; None if nothing of it can be read."""
    if not isinstance(text, str):
        return None
    head = text[: 4 * longest]
    line = " ".join("".join(c if c.isprintable() else " " for c in head).split())
    if len(line) > longest:
        line = f"{line[: longest - 1]}…"
    return line or None
