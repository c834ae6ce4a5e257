"""Triage without a store: what the broker's dead-letter queue holds, and the way back."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, NamedTuple, Self

from namedqueue.deadletters import DeadLetterRecord
from namedqueue.moments import rfc3339
from namedqueue_sidecar.api.exchange import Request, Response, known_fields, read_json, reply
from namedqueue_sidecar.api.messages import queue_key
from namedqueue_sidecar.brokers.port import DeadLetters
from namedqueue_sidecar.intake.problems import Problem, invalid, unavailable
from namedqueue_sidecar.plane import Plane

_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000
_NUMBER: Final = re.compile(r"[0-9]{1,4}")


async def list_dead_letters(plane: Plane, request: Request) -> Response:
    """Return a page of dead letters, oldest first."""
    letters, query = plane.broker.dead_letters(queue_key(plane, request)), request.query
    known_fields(query, "reason", "after", "limit")
    reason, after, limit = query.get("reason"), query.get("after"), _page_size(query)
    found: list[DeadLetterRecord] = []
    while len(found) < limit:
        try:
            page, after = await letters.browse(after, limit - len(found))
        except ValueError:
            raise invalid("after is not a cursor; take `next` of the page before") from None
        found += [record for record in page if reason in (None, record.reason.code)]
        if after is None:
            break
    return reply({"items": [record.document() for record in found], "next": after})


async def group_dead_letters(plane: Plane, request: Request) -> Response:
    """Count dead letters by reason, the most frequent first."""
    counts: Counter[str] = Counter()
    span: dict[str, tuple[int, int]] = {}
    example: dict[str, DeadLetterRecord] = {}
    async for record in _all(plane.broker.dead_letters(queue_key(plane, request))):
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
    letters = plane.broker.dead_letters(queue_key(plane, request))
    record = await letters.find(request.parameters["id"])
    if record is None:
        raise _unknown(request)
    return reply(record.document())


async def discard_dead_letter(plane: Plane, request: Request) -> Response:
    """Remove one dead letter for good."""
    letters = plane.broker.dead_letters(queue_key(plane, request))
    if not await letters.remove([request.parameters["id"]]):
        raise _unknown(request)
    return Response(204)


async def redrive(plane: Plane, request: Request) -> Response:
    """Send dead letters back: all, or by reason, by ids, up to a limit."""
    key, wish = queue_key(plane, request), _Wish.read(request)
    letters = plane.broker.dead_letters(key)
    if wish.dry_run:
        matched = sum([1 async for record in _all(letters) if wish.chooses(record)])
        count = matched if wish.limit is None else min(wish.limit, matched)
        return reply({"queue": key.name, "matched": count, "redriven": 0})
    reason = plane.broker.unavailable
    if reason is not None:
        raise unavailable(reason)
    return reply({"queue": key.name, "redriven": await letters.redrive(wish.chooses, wish.limit)})


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is str for one in value)


_WISHES: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("limit", lambda value: type(value) is int and value > 0, "is not a whole number above 0"),
    ("reason", lambda value: isinstance(value, str), "is not text"),
    ("ids", _is_texts, "is not a list of text"),
    ("dryRun", lambda value: isinstance(value, bool), "is neither true nor false"),
)
"""Each field, whether its value is sound, and what to say if not.

A null is not «any»: a program that lost its list of ids must not send everything back.
"""


class _Wish(NamedTuple):
    """Which dead letters are to be sent back; None means any."""

    limit: int | None
    reason: str | None
    ids: frozenset[str] | None
    dry_run: bool

    @classmethod
    def read(cls, request: Request) -> Self:
        """Read it from a request, or raise the problem with it."""
        given = read_json(request)
        known_fields(given, *(name for name, _, _ in _WISHES))
        for name, sound, sentence in _WISHES:
            if name in given and not sound(given[name]):
                raise invalid(f"{name} {sentence}")
        ids = frozenset(given["ids"]) if "ids" in given else None
        return cls(given.get("limit"), given.get("reason"), ids, given.get("dryRun", False))

    def chooses(self, record: DeadLetterRecord) -> bool:
        by_reason = self.reason in (None, record.reason.code)
        return by_reason and (self.ids is None or record.job.id in self.ids)


async def _all(letters: DeadLetters) -> AsyncIterator[DeadLetterRecord]:
    after: str | None = None
    while True:
        page, after = await letters.browse(after, _LARGEST_PAGE)
        for record in page:
            yield record
        if after is None:
            return


def _page_size(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_PAGE))
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= _LARGEST_PAGE:
        raise invalid(f"limit is not a number from 1 to {_LARGEST_PAGE}")
    return int(text)


def _unknown(request: Request) -> Problem:
    return Problem(
        404, "UNKNOWN_DEAD_LETTER", f"there is no dead letter {request.parameters['id'][:255]}"
    )
