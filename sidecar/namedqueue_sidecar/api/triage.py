"""Triage with a store: search, groups by cause, and how far people are with each dead letter."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from namedqueue.moments import from_datetime, rfc3339
from namedqueue.triage import OPEN, Review
from namedqueue_sidecar.api.exchange import Request, Response, known_fields, read_json, reply
from namedqueue_sidecar.brokers.port import DeadLetters
from namedqueue_sidecar.intake.problems import Problem, invalid
from namedqueue_sidecar.store.away import Away, Slow
from namedqueue_sidecar.store.port import Kept, Letters, Search

GROUPED: Final = ("reason", "state", "group", "text", "since", "until")
SEARCHES: Final = (*GROUPED, "contains")
LONGEST_PIECE: Final = 1024
_STATES: Final = tuple(state.value for state in Review)
_CURSOR: Final = re.compile(r"[0-9]{1,18}")
_BY_PEOPLE: Final = (Review.PENDING, Review.REVIEWED, Review.CLOSED)


async def page(records: Letters, query: Mapping[str, str], limit: int) -> Response:
    """Return a page of records, oldest first; by default of those that can be redriven."""
    search, after = _search(query), query.get("after", "0")
    if not _CURSOR.fullmatch(after):
        raise invalid("after is not a cursor; take `next` of the page before")
    with asking():
        found, following = await records.page(search, int(after), limit)
    items = [_document(kept) for kept in found]
    return reply({"items": items, "next": None if following is None else str(following)})


async def groups(records: Letters, query: Mapping[str, str]) -> Response:
    """Count records by what probably is their cause, the most frequent first."""
    with asking():
        found = await records.groups(_search(query))
    items = [
        {
            "reason": each.reason,
            "count": each.letters,
            "message": each.message,
            "first": rfc3339(each.first),
            "last": rfc3339(each.last),
            "example": each.example,
            "group": each.cause,
        }
        for each in found
    ]
    return reply({"items": items, "next": None})


async def show(records: Letters, job_id: str) -> Response | None:
    """Return the newest record of a job."""
    with asking():
        kept = await records.find(job_id)
    return None if kept is None else reply(_document(kept))


async def review(
    records: Letters, letters: DeadLetters, job_id: str, request: Request
) -> Response | None:
    """Move a record on; one that is closed stays on record, and its job can be sent no more."""
    given = read_json(request)
    known_fields(given, "state")
    if given.get("state") not in _BY_PEOPLE:
        raise invalid(f"state is not one of {', '.join(_BY_PEOPLE)}; a redrive sets replayed")
    wanted = Review(given["state"])
    with asking():
        kept = await records.find(job_id)
    if kept is None:
        return None
    if wanted is kept.state:
        return reply(_document(kept))
    if wanted is Review.CLOSED and kept.state in OPEN:
        await letters.remove([job_id])  # first: what is closed must not be redriven
    with asking():
        if not await records.review(kept.number, wanted):
            raise Problem(
                409, "REVIEW_STATE", f"a dead letter that is {kept.state} cannot be {wanted} again"
            )
    return reply(_document(kept._replace(state=wanted)))


async def discard(records: Letters, letters: DeadLetters, job_id: str) -> bool:
    """Remove a dead letter and its record for good, the job first; False if there is neither."""
    removed = await letters.remove([job_id])
    with asking():
        kept = await records.find(job_id)
        if kept is not None:
            await records.remove(kept.number)
    return bool(removed) or kept is not None


@contextmanager
def asking() -> Iterator[None]:
    """Turn a store that is away, or has too much to read, into an answer."""
    try:
        yield
    except Slow as slow:
        detail = f"{slow}; ask for less, with reason, group, since or until"
        raise Problem(503, "STORE_SLOW", detail, {"Retry-After": "1"}) from None
    except Away as away:
        detail = f"{away}; ask again when it is back"
        raise Problem(503, "STORE_UNAVAILABLE", detail, {"Retry-After": "1"}) from None


def _search(query: Mapping[str, str]) -> Search:
    state = query.get("state")
    if state is not None and state not in _STATES:
        raise invalid(f"state is not one of {', '.join(Review)}")
    for name in ("reason", "group", "text"):
        if "\0" in query.get(name, ""):  # PostgreSQL has no text with it, and refuses to look
            raise invalid(f"{name} holds a zero byte, which no record does")
    return Search(
        states=OPEN if state is None else frozenset({Review(state)}),
        reason=query.get("reason"),
        cause=query.get("group"),
        text=query.get("text"),
        contains=_piece(query),
        since=_moment(query, "since"),
        until=_moment(query, "until"),
    )


def _piece(query: Mapping[str, str]) -> bytes | None:
    if "contains" not in query:
        return None
    piece = query["contains"].encode()
    if not 1 <= len(piece) <= LONGEST_PIECE:
        raise invalid(f"contains is not a text of 1 to {LONGEST_PIECE} bytes")
    return piece


def _moment(query: Mapping[str, str], name: str) -> int | None:
    if name not in query:
        return None
    try:
        moment = datetime.fromisoformat(query[name])
        return from_datetime(moment if moment.tzinfo else moment.astimezone())
    except (ValueError, OverflowError):
        raise invalid(f"{name} is not a moment such as 2026-11-18T01:04:44Z") from None


def _document(kept: Kept) -> dict[str, object]:
    document = {**kept.record.document(), "state": kept.state.value, "group": kept.cause}
    if kept.edited_to is None or kept.state in OPEN:
        return document
    return {**document, "editedTo": kept.edited_to}
