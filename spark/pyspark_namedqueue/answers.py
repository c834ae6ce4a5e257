"""What the API's answer to a batch means for each of its entries."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark_namedqueue.api import document_of
from pyspark_namedqueue.entries import Entry

_ACCEPTED: Final = 202
_PARTLY: Final = 207
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_LATER_CODES: Final = frozenset({"QUEUE_FULL", "BROKER_UNAVAILABLE"})
_NOWHERE_CODES: Final = frozenset({"UNROUTABLE", "UNKNOWN_QUEUE", "NO_SUBSCRIBER"})
_LONGEST_PAUSE: Final = 30.0


class Rejected(NamedTuple):
    """An entry that will never be taken as it is."""

    entry: Entry
    code: str
    detail: str


class Reading(NamedTuple):
    """How a batch fared: confirmed, refused for good, or to be sent again after a pause."""

    accepted: int
    rejected: Sequence[Rejected] = ()
    again: Sequence[Entry] = ()
    pause: float = 0.0
    why: str = ""


class Refused(Exception):  # noqa: N818  # it reads as what it is
    """No batch like this will ever be taken: the queue or the address is wrong."""


def read(
    batch: Sequence[Entry], status: int, headers: Mapping[str, str], body: bytes, target: str
) -> Reading:
    """Return how each entry fared, or raise Refused when it makes no sense to go on."""
    document = document_of(body)
    pause = _pause(headers)
    if status == _ACCEPTED and document.get("accepted") == len(batch):
        return Reading(len(batch))
    if status == _PARTLY:
        return _partly(batch, document, pause, target)
    detail = f"{status} {document.get('code', '')}: {document.get('detail', '')}".strip(": ")
    if status in _LATER:
        return Reading(0, again=batch, pause=pause, why=detail)
    raise Refused(f"{target} takes nothing: the API answered {detail}")


def _partly(
    batch: Sequence[Entry], document: Mapping[str, Any], pause: float, target: str
) -> Reading:
    rejected, again, why = [], [], ""
    for failure in document["failed"]:
        entry, code, detail = batch[failure["index"]], failure["code"], failure["detail"]
        if code in _NOWHERE_CODES:
            raise Refused(f"{target} takes nothing: {code}: {detail}")
        if code in _LATER_CODES:
            again.append(entry)
            why = f"{code}: {detail}"
        else:
            rejected.append(Rejected(entry, code, detail))
    return Reading(len(batch) - len(rejected) - len(again), rejected, again, pause, why)


def _pause(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    return min(float(text), _LONGEST_PAUSE) if text.isascii() and text.isdigit() else 0.0
