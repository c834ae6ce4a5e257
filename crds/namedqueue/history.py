"""The story of a job: one record for each attempt that failed.

It travels in the header `nq-history` as a JSON list and is shown with the dead letter. A job that
succeeds never has it read, so it stays the text that came until somebody asks.

At most 20 records of 1 KiB are kept: the first, which tells how it began, and the most recent.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self, final

from namedqueue import codes
from namedqueue.headers import LARGEST_COUNT, count
from namedqueue.moments import LATEST, from_datetime, read_milliseconds, rfc3339
from namedqueue.outcomes import Kind

MOST_RECORDS: Final = 20
LARGEST_RECORD: Final = 1024
LARGEST_HISTORY: Final = MOST_RECORDS * (LARGEST_RECORD + 1) + 1

_KINDS = {kind.value: kind for kind in Kind}
_WIDEST_CHARACTER = 12  # a pair of \uXXXX escapes


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """A failed attempt: when it began (milliseconds since the epoch), how long it took, why."""

    attempt: int
    outcome: Kind
    error_code: str
    at: int
    duration_ms: int
    message: str | None = None

    def document(self) -> dict[str, object]:
        """Return the record as people and stores see it."""
        document: dict[str, object] = {
            "attempt": self.attempt,
            "outcome": self.outcome.value,
            "errorCode": self.error_code,
            "at": rfc3339(self.at),
            "durationMs": self.duration_ms,
        }
        if self.message is not None:
            document["message"] = self.message
        return document

    def fitted(self) -> Self:
        """Return the record within its limits; its message gives way."""
        record = replace(
            self,
            attempt=count(self.attempt, least=1),
            error_code=codes.error_code(self.error_code) or codes.UNNAMED,
            at=min(max(self.at, 0), LATEST),
            duration_ms=min(max(self.duration_ms, 0), LATEST),
            message=codes.readable(self.message),
        )
        while (excess := len(_written(record)) - LARGEST_RECORD) > 0:
            cut = 1 + excess // _WIDEST_CHARACTER
            message = (record.message or "")[:-cut]
            record = replace(record, message=message or None)
        return record


@final
class History:
    """The records of a job, read only when asked for.

    Whatever text it was made from, `records` and `encoded` are within the limits: a forged history
    can lie about the past, and do nothing else.
    """

    __slots__ = ("_source",)

    def __init__(self, source: str | tuple[AttemptRecord, ...] = ()) -> None:
        self._source = source

    @property
    def records(self) -> tuple[AttemptRecord, ...]:
        return _parsed(self._source) if isinstance(self._source, str) else self._source

    def with_record(self, record: AttemptRecord) -> "History":
        """Return the history with one more record, shortened in the middle if it is full."""
        return History(_capped((*self.records, record.fitted())))

    def encoded(self) -> str:
        """Return the text for the header `nq-history`; empty if there is nothing to tell."""
        written = ",".join(_written(record) for record in self.records)
        return f"[{written}]" if written else ""

    def __bool__(self) -> bool:
        return bool(self._source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.records == other.records

    def __hash__(self) -> int:
        return hash(self.records)

    def __repr__(self) -> str:
        return f"History({self.records!r})"


NO_HISTORY: Final = History()


def read_history(value: object) -> History:
    """Take a header's value for a history, unread; anything that cannot be one is an empty one."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if not isinstance(value, str) or not 0 < len(value) <= LARGEST_HISTORY:
        return NO_HISTORY
    return History(value)


def _written(record: AttemptRecord) -> str:
    return json.dumps(record.document(), separators=(",", ":"))


def _capped(records: tuple[AttemptRecord, ...]) -> tuple[AttemptRecord, ...]:
    if len(records) <= MOST_RECORDS:
        return records
    return (records[0], *records[1 - MOST_RECORDS :])


def _parsed(text: str) -> tuple[AttemptRecord, ...]:
    try:
        documents = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(documents, list):
        return ()
    records = tuple(_record(document) for document in documents if isinstance(document, dict))
    return _capped(tuple(record for record in records if record is not None))


def _record(document: Mapping[str, Any]) -> AttemptRecord | None:
    attempt, at = document.get("attempt"), _moment(document.get("at"))
    if type(attempt) is not int or not 1 <= attempt <= LARGEST_COUNT or at is None:
        return None
    outcome = document.get("outcome")
    return AttemptRecord(
        attempt=attempt,
        outcome=_KINDS.get(outcome, Kind.UNKNOWN) if isinstance(outcome, str) else Kind.UNKNOWN,
        error_code=codes.error_code(document.get("errorCode")) or codes.UNNAMED,
        at=at,
        duration_ms=read_milliseconds(document.get("durationMs")) or 0,
        message=codes.readable(document.get("message")),
    ).fitted()


def _moment(text: object) -> int | None:
    try:
        return read_milliseconds(from_datetime(datetime.fromisoformat(str(text))))
    except (ValueError, OverflowError):
        return None
