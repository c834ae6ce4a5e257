"""Points in time: whole milliseconds since the epoch inside, RFC 3339 in UTC outside.

A number is compared, stored in a header and checked for sense without parsing anything; text is
made of it only where a person or an app reads it.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

LATEST: Final = 253_402_300_799_999
"""The end of the year 9999, the last moment that RFC 3339 can write."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LATEST_SECOND: Final = LATEST // 1000


def rfc3339(moment: int) -> str:
    """Write a moment between 1970 and `LATEST` as `2026-02-26T12:05:00.000Z`."""
    second, millisecond = divmod(moment, 1000)
    return f"{_whole(second)}.{millisecond:03d}Z"


@lru_cache(maxsize=64)
def _whole(second: int) -> str:
    """Write a second; jobs that follow one another share it."""
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:-6]


def from_datetime(at: datetime) -> int:
    """Return the moment of a datetime; one without a time zone is taken as UTC."""
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def read_rfc3339(text: str) -> int | None:
    """Read a moment in UTC as a person writes it, `2026-02-26T12:05:00Z`; None if it is none."""
    if not text.endswith("Z"):
        return None
    with suppress(ValueError, OverflowError):
        return read_milliseconds(from_datetime(datetime.fromisoformat(text)))
    return None


def read_milliseconds(value: object) -> int | None:
    """Read a moment that we wrote; None if it is none."""
    return value if type(value) is int and 0 <= value <= LATEST else None


def read_timestamp(value: object) -> int | None:
    """Read an AMQP timestamp: seconds, or milliseconds from clients that got it wrong."""
    if isinstance(value, datetime):
        return read_milliseconds(from_datetime(value))
    if type(value) is int and 0 <= value <= _LATEST_SECOND:
        return value * 1000
    return read_milliseconds(value)
