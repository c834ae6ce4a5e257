"""Dead letters as a table: what failed for good in one queue, in several, or in all.

The columns are those of `nq dlq export`, so a table that either of them wrote can be replayed.

A partition is a queue, or a reason in a queue where the filter names some, since the API gives out
letters page by page. Filters on queue, reason and time are asked of the API; Spark applies them all
once more, because without a store the API knows no time. Pages are stable: a letter that goes while
we read neither hides nor repeats another.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from pyspark_namedqueue.api import Api, Refusal, path
from pyspark_namedqueue.options import Letters

SCHEMA: Final = (
    "eventId string, queue string, idempotencyKey string, traceId string, "
    "attemptCount bigint, redrives bigint, terminalReasonCode string, "
    "terminalReasonMessage string, deadLetteredAt timestamp, state string, `group` string, "
    "payloadSnapshot string, headers string, attemptHistory string"
)
"""What has no fixed shape is JSON."""

_QUEUE, _REASON, _TIME = ("queue",), ("terminalReasonCode",), ("deadLetteredAt",)
_PAGE: Final = 1000
_MOST_REASONS: Final = 20
_INSTANT: Final = timedelta(milliseconds=1)
"""What the API's moments are exact to; `until` is given one more, for rather too much is asked."""


@dataclass(frozen=True)
class Wanted:
    """What of all letters is wanted; None where everything is."""

    queues: frozenset[str] | None = None
    reasons: frozenset[str] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def also(self, condition: Filter) -> "Wanted":
        """Return what is wanted if this holds as well; a wider set where we cannot say it."""
        match condition:
            case EqualTo(attribute=attribute, value=str(value)):
                return self._among(attribute, frozenset({value}))
            case In(attribute=attribute, value=values):
                return self._among(attribute, frozenset(map(str, values)))
            case EqualTo(attribute=attribute, value=datetime() as at) if attribute == _TIME:
                return self.after(at).before(at)
            case GreaterThan() | GreaterThanOrEqual() if condition.attribute == _TIME:
                return self.after(condition.value)
            case LessThan() | LessThanOrEqual() if condition.attribute == _TIME:
                return self.before(condition.value)
            case _:
                return self

    def _among(self, attribute: tuple[str, ...], values: frozenset[str]) -> "Wanted":
        if attribute == _QUEUE:
            queues = values if self.queues is None else self.queues & values
            return Wanted(queues, self.reasons, self.since, self.until)
        if attribute == _REASON:
            reasons = values if self.reasons is None else self.reasons & values
            return Wanted(self.queues, reasons, self.since, self.until)
        return self

    def after(self, at: datetime) -> "Wanted":
        since = at if self.since is None else max(self.since, at)
        return Wanted(self.queues, self.reasons, since, self.until)

    def before(self, at: datetime) -> "Wanted":
        until = at if self.until is None else min(self.until, at)
        return Wanted(self.queues, self.reasons, self.since, until)


@dataclass
class Part(InputPartition):
    """The letters of a queue, all or those of one reason."""

    queue: str
    reason: str | None


@dataclass
class DeadLetterReader(DataSourceReader):
    """Reads dead letters."""

    options: Letters
    wanted: Wanted = field(default_factory=Wanted)

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  # Spark's name
        """Keep what the API can be asked for; return all, for Spark to apply them exactly."""
        for each in filters:
            self.wanted = self.wanted.also(each)
        return filters

    def partitions(self) -> Sequence[Part]:
        only, reasons = self.wanted.queues, self.wanted.reasons
        queues = [each for each in self._queues() if only is None or each in only]
        if reasons is None or len(reasons) > _MOST_REASONS:
            return [Part(queue, None) for queue in queues]
        return [Part(queue, reason) for queue, reason in product(queues, sorted(reasons))]

    def _queues(self) -> Sequence[str]:
        """Return the queues that were named, or else all that can have dead letters."""
        if self.options.queues:
            return self.options.queues
        with Api(self.options.endpoint, self.options.patience) as api:
            found = api.get(path("queues"))["items"]
        return [each["name"] for each in found if each["type"] == "durable"]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if isinstance(partition, Part):  # where there are none Spark makes one up
            yield from map(row, self._letters(partition))

    def _letters(self, part: Part) -> Iterator[dict[str, Any]]:
        since, until = self.wanted.since, self.wanted.until
        asked = {
            "reason": part.reason,
            "state": self.options.state,
            "since": None if since is None else moment(since),
            "until": None if until is None else moment(until + _INSTANT),
        }
        after = None
        with Api(self.options.endpoint, self.options.patience) as api:
            target = path("queues", part.queue, "dead-letters")
            while True:
                try:
                    page = api.get(target, **asked, after=after, limit=_PAGE)
                except Refusal as refusal:
                    if refusal.code != "NEEDS_STORE" or not (asked["since"] or asked["until"]):
                        raise
                    asked |= {"since": None, "until": None}  # Spark looks at the time itself
                    continue
                yield from page["items"]
                after = page["next"]
                if after is None:
                    return


def row(letter: dict[str, Any]) -> tuple[Any, ...]:
    """Return a letter in the order of the schema."""
    get = letter.get
    return (
        letter["eventId"],
        letter["queue"],
        get("idempotencyKey"),
        get("traceId"),
        letter["attemptCount"],
        letter["redrives"],
        letter["terminalReasonCode"],
        letter["terminalReasonMessage"],
        datetime.fromisoformat(letter["deadLetteredAt"]),
        get("state"),
        get("group"),
        *(json.dumps(letter[name]) for name in ("payloadSnapshot", "headers", "attemptHistory")),
    )


def moment(at: datetime) -> str:
    """Write a moment for the API, cut to its milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
