"""What failed for good: from the store's records, or else by browsing the broker's queue."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from namedqueue.deadletters import DeadLetterRecord
from namedqueue.moments import rfc3339
from namedqueue_sidecar.api import triage
from namedqueue_sidecar.api.exchange import Request, Response, known_fields, reply
from namedqueue_sidecar.api.messages import queue_key
from namedqueue_sidecar.brokers.port import DeadLetters, QueueKey
from namedqueue_sidecar.intake.problems import Problem, invalid
from namedqueue_sidecar.plane import Plane

_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000
_NUMBER: Final = re.compile(r"[0-9]{1,4}")


async def list_dead_letters(plane: Plane, request: Request) -> Response:
    """Return a page of dead letters, oldest first."""
    key, query = queue_key(plane, request), request.query
    letters = letters_of(plane, key)
    known_fields(query, *triage.SEARCHES, "after", "limit")
    reason, after, limit = query.get("reason"), query.get("after"), _page_size(query)
    if plane.records is not None:
        return await triage.page(plane.records.of(key), query, limit)
    _refuse_searches(query, "reason")
    try:
        found, following = await letters.browse(after, limit, reason)
    except ValueError:
        raise invalid("after is not a cursor; take `next` of the page before") from None
    return reply({"items": [record.document() for record in found], "next": following})


async def group_dead_letters(plane: Plane, request: Request) -> Response:
    """Count dead letters by reason, with a store by cause; the most frequent first."""
    key = queue_key(plane, request)
    letters = letters_of(plane, key)
    known_fields(request.query, *triage.GROUPED)
    if plane.records is not None:
        return await triage.groups(plane.records.of(key), request.query)
    _refuse_searches(request.query)
    counts: Counter[str] = Counter()
    span: dict[str, tuple[int, int]] = {}
    example: dict[str, DeadLetterRecord] = {}
    async for record in letters.read():
        code, at = record.reason.code, record.dead_lettered_at
        counts[code] += 1
        first, last = span.get(code, (at, at))
        span[code] = min(first, at), max(last, at)
        example.setdefault(code, record)
    items = [
        {
            "reason": code,
            "count": count,
            "message": example[code].reason.message,
            "first": rfc3339(span[code][0]),
            "last": rfc3339(span[code][1]),
            "example": example[code].job.id,
        }
        for code, count in counts.most_common()
    ]
    return reply({"items": items, "next": None})


async def show_dead_letter(plane: Plane, request: Request) -> Response:
    """Return one dead letter with its whole story."""
    key, job_id = queue_key(plane, request), request.parameters["id"]
    letters = letters_of(plane, key)
    if plane.records is not None:
        shown = await triage.show(plane.records.of(key), job_id)
        if shown is not None:
            return shown
    record = await letters.find(job_id)
    if record is None:
        raise unknown_letter(request.parameters["id"])
    return reply(record.document())


async def discard_dead_letter(plane: Plane, request: Request) -> Response:
    """Remove one dead letter for good, with its record."""
    key, job_id = queue_key(plane, request), request.parameters["id"]
    letters = letters_of(plane, key)
    if plane.records is not None:
        removed = await triage.discard(plane.records.of(key), letters, job_id)
    else:
        removed = bool(await letters.remove([job_id]))
    if not removed:
        raise unknown_letter(request.parameters["id"])
    return Response(204)


async def review_dead_letter(plane: Plane, request: Request) -> Response:
    """Say how far you are with a dead letter; closing one takes its job out of the queue."""
    key = queue_key(plane, request)
    letters = letters_of(plane, key)
    if plane.records is None:
        raise needs_store("a review")
    reviewed = await triage.review(
        plane.records.of(key), letters, request.parameters["id"], request
    )
    if reviewed is None:
        raise unknown_letter(request.parameters["id"])
    return reviewed


def letters_of(plane: Plane, key: QueueKey) -> DeadLetters:
    """Return a queue's dead letters, or raise the problem that it has none."""
    kind = plane.queues[key].spec.type
    if kind != "durable":
        raise Problem(
            409,
            "NO_DEAD_LETTERS",
            f"{key} is of type {kind} and has no dead letters; what must not get lost belongs "
            "into a queue of type durable",
        )
    return plane.broker.dead_letters(key)


def needs_store(what: str) -> Problem:
    """Return the problem that something can only be had with a store."""
    return Problem(409, "NEEDS_STORE", f"{what} needs a store; give the sidecar one with --store")


def _refuse_searches(query: Mapping[str, str], *possible: str) -> None:
    for name in triage.SEARCHES:
        if name in query and name not in possible:
            raise needs_store(f"a search by {name}")


def _page_size(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_PAGE))
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= _LARGEST_PAGE:
        raise invalid(f"limit is not a number from 1 to {_LARGEST_PAGE}")
    return int(text)


def unknown_letter(job_id: str) -> Problem:
    """Return the problem that a job is not among the dead letters."""
    return Problem(404, "UNKNOWN_DEAD_LETTER", f"there is no dead letter {job_id[:255]}")
