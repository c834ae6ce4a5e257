"""The way back: send dead letters to their queue again, and watch that go on."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import uuid4

from namedqueue.deadletters import DeadLetterRecord
from namedqueue_sidecar.api.dead_letters import letters_of
from namedqueue_sidecar.api.exchange import Request, Response, known_fields, read_json, reply
from namedqueue_sidecar.api.messages import queue_key
from namedqueue_sidecar.brokers.port import Busy
from namedqueue_sidecar.intake.problems import Problem, invalid, unavailable
from namedqueue_sidecar.plane import Plane
from namedqueue_sidecar.redriving.runs import Run, max_length_of
from namedqueue_sidecar.redriving.wishes import FASTEST, Wish


async def redrive(plane: Plane, request: Request) -> Response:
    """Send dead letters back: all, or by reason, by ids, up to a limit, at a rate.

    The answer comes when all are sent; ask with GET how far it is.
    """
    key, wish = queue_key(plane, request), _read(request)
    letters_of(plane, key)
    reason = plane.broker.unavailable_for(key)
    if reason is not None and not wish.dry_run:
        raise unavailable(reason)
    name = uuid4().hex
    marking = plane.records.marking(key, name) if plane.records else None
    moved = marking.add if marking else _unrecorded
    run = Run(name, wish, most_ready=max_length_of(plane.queues[key]), moved=moved)
    try:
        await plane.redrives.run(key, run)
    except Busy as busy:
        raise Problem(409, "REDRIVE_UNDER_WAY", f"{busy}; wait for its end") from None
    except LookupError as missing:
        raise unavailable(str(missing)) from None
    finally:
        if marking is not None:
            await marking.flush()
    answer: dict[str, object] = {"queue": key.name, "redriven": run.redriven}
    if wish.dry_run:
        answer["matched"] = run.matched
    if run.why:
        answer["ended"] = run.why
    return reply(answer)


async def show_redrive(plane: Plane, request: Request) -> Response:
    """Return how far this process's redrive of the queue is, or how its last one ended."""
    key = queue_key(plane, request)
    run = plane.redrives.latest(key)
    if run is None:
        raise Problem(404, "UNKNOWN_REDRIVE", f"nobody has begun a redrive of {key} here")
    return reply({"queue": key.name, **run.document()})


def _unrecorded(_: Sequence[DeadLetterRecord]) -> None:
    """Take no notice: there is no store."""


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is str for one in value)


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= FASTEST


_WISHES: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("limit", _is_count, "is not a whole number above 0"),
    ("reason", lambda value: isinstance(value, str), "is not text"),
    ("ids", _is_texts, "is not a list of text"),
    ("ratePerSecond", _is_rate, f"is not a number above 0, at most {FASTEST}"),
    ("abortAfterFailures", _is_count, "is not a whole number above 0"),
    ("dryRun", lambda value: isinstance(value, bool), "is neither true nor false"),
)
"""Each field, whether its value is sound, and what to say if not.

A null is not «any»: a program that lost its list of ids must not send everything back.
"""


def _read(request: Request) -> Wish:
    """Read what is wished for, or raise the problem with it."""
    given = read_json(request)
    known_fields(given, *(name for name, _, _ in _WISHES))
    for name, sound, sentence in _WISHES:
        if name in given and not sound(given[name]):
            raise invalid(f"{name} {sentence}")
    return Wish(
        limit=given.get("limit"),
        reason=given.get("reason"),
        ids=frozenset(given["ids"]) if "ids" in given else None,
        rate_per_second=given.get("ratePerSecond"),
        abort_after_failures=given.get("abortAfterFailures"),
        dry_run=given.get("dryRun", False),
    )
