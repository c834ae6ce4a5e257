"""Streams as tables and as sources of queries: a range of offsets, in as many parts as it has room.

An offset is a place for ever, so a part is read the same however often its task runs, and a query
that goes on from its checkpoint reads exactly what follows. Reading needs no group and moves none.
A query may be given one all the same: its cursor then follows the query's commits, so that
`nq streams groups` shows how far the query is behind, and it keeps the place where a query without
a checkpoint begins.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_namedqueue.api import Api, Refusal, path
from pyspark_namedqueue.options import Stretch

SCHEMA: Final = (
    "offset bigint, id string, type string, time timestamp, `group` string, topic string, "
    "idempotencyKey string, traceparent string, headers map<string,string>, contentType string, "
    "encoding string, payload string"
)
"""`payload` is JSON where `encoding` is `json`, else the bytes in base64."""

_PAGE: Final = 1000
_ATTENTION: Final = "2s"


class DataLost(Exception):  # noqa: N818  # it reads as what it is
    """Messages that were to be read are no longer there."""


@dataclass
class Part(InputPartition):
    """The offsets from `start` up to, and without, `end`."""

    start: int
    end: int


def parts(start: int, end: int, rows: int) -> Sequence[Part]:
    """Cut a range of offsets into parts of about the same size, none with more than `rows`."""
    count = -(-max(end - start, 0) // rows)
    edges = (start + (end - start) * number // max(count, 1) for number in range(count + 1))
    return [Part(*edge) for edge in pairwise(edges)]


class Stream:
    """One stream of the API."""

    def __init__(self, api: Api, options: Stretch) -> None:
        self._api, self._options = api, options
        self._target = path("streams", options.stream)

    def span(self) -> tuple[int, int]:
        """Return the oldest offset that there is, and the one to come."""
        found = self._api.get(self._target)
        return found["first"], found["next"]

    def more(self, end: int) -> bool:
        """Wait a while for a message at the end of the stream; tell whether one came."""
        piece = self._api.get(f"{self._target}/messages", from_=end, max=1, wait=_ATTENTION)
        return bool(piece["next"] > end)

    def locate(self, position: str) -> int:
        """Return the offset that a position means: first, last, next, an offset or a time."""
        if position.isascii() and position.isdigit():
            return int(position)
        first, following = self.span()
        if position in {"first", "next"}:
            return first if position == "first" else following
        piece = self._api.get(f"{self._target}/messages", from_=position, max=1)
        return int(piece["items"][0]["offset"] if piece["items"] else piece["next"])

    def begin(self, group: str, position: str) -> int:
        """Return a group's cursor; one that never read gets its first."""
        piece = self._api.get(f"{self._target}/messages", group=group, from_=position, max=1)
        found = self._api.get(f"{self._target}/groups")["items"]
        cursors = [each["cursor"] for each in found if each["group"] == group]
        return int(cursors[0] if cursors else piece["next"])

    def commit(self, group: str, end: int) -> None:
        """Let a group show that everything before `end` is processed."""
        try:
            self._api.post(f"{self._target}/groups/{group}/commit", {"offset": end - 1})
        except Refusal as refusal:
            if refusal.code != "COMMIT_BACKWARDS":  # the query was sent back, and the group was not
                raise

    def read(self, part: Part) -> Iterator[dict[str, Any]]:
        """Yield the messages of a part, in order."""
        at = part.start
        while at < part.end:
            most = min(part.end - at, _PAGE)
            piece = self._api.get(
                f"{self._target}/messages",
                from_=at,
                max=most,
                wait="1s",
                filter=self._options.filter,
            )
            self._check(at, piece)
            yield from (each for each in piece["items"] if each["offset"] < part.end)
            at = piece["next"]

    def _check(self, at: int, piece: dict[str, Any]) -> None:
        """Raise where messages were removed before we came to them.

        Offsets may skip a number, so a gap alone says nothing; one below the oldest message does.
        """
        came = piece["items"][0]["offset"] if piece["items"] else piece["next"]
        if came != at:
            self.reaches(at)
        elif not piece["items"]:
            self.reaches(at + 1)

    def reaches(self, at: int) -> tuple[int, int]:
        """Return the span, which must hold this offset or end there."""
        name, (first, following) = self._options.stream, self.span()
        if following < at:
            raise DataLost(
                f"stream {name} ends before offset {following} and was read up to {at} before, so "
                "it is another one by now; begin with a new checkpoint"
            )
        if at < first and self._options.fail_on_data_loss:
            raise DataLost(
                f"stream {name} begins at offset {first} by now, and {at} was to be read; what lay "
                "between is gone by the stream's retention. Set option failOnDataLoss to false to "
                "go on without it."
            )
        return first, following


def row(message: dict[str, Any]) -> tuple[Any, ...]:
    """Return a message in the order of the schema."""
    payload, encoding = message["payload"], message["encoding"]
    return (
        message["offset"],
        message["id"],
        message["type"],
        datetime.fromisoformat(message["time"]),
        message["group"],
        message["topic"],
        message["idempotencyKey"],
        message["traceparent"],
        message["headers"],
        message["contentType"],
        encoding,
        json.dumps(payload, ensure_ascii=False) if encoding == "json" else payload["base64"],
    )


def read_part(options: Stretch, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
    """Read a part, in a task."""
    if not isinstance(partition, Part):
        return  # where there are no partitions Spark makes one up
    with Api(options.endpoint, options.patience) as api:
        yield from map(row, Stream(api, options).read(partition))


@dataclass
class StretchReader(DataSourceReader):
    """Reads a stream once, from one position up to another."""

    options: Stretch

    def partitions(self) -> Sequence[Part]:
        with Api(self.options.endpoint, self.options.patience) as api:
            stream = Stream(api, self.options)
            start, end = stream.locate(self.options.start), stream.locate(self.options.end)
            first, following = stream.span()
            if start < min(end, following):
                stream.reaches(start)
        end = min(end, following)
        return parts(max(start, first), end, self.options.partition_rows)

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return read_part(self.options, partition)


@dataclass
class Follower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream as the source of a query."""

    options: Stretch
    target: int | None = field(default=None)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Return where a query without a checkpoint begins."""
        with self._api() as api:
            stream, group = Stream(api, self.options), self.options.group
            if group is None:
                return {"offset": stream.locate(self.options.start)}
            return {"offset": stream.begin(group, self.options.start)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        rows = self.options.batch_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Remember where the stream ends now, for a query that goes no further."""
        self.target = self.reportLatestOffset()["offset"]

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return how far the next batch goes: not back, and not past its limit.

        Spark asks a hundred times a second. At the end of the stream the answer waits for a
        message, so that a query with nothing to do costs nobody anything.
        """
        with self._api() as api:
            stream = Stream(api, self.options)
            _, following = stream.reaches(start["offset"])
            if following == start["offset"] and self.target is None and stream.more(following):
                _, following = stream.span()
        end = following if self.target is None else self.target
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["offset"] + limit.max_rows)
        return {"offset": max(end, start["offset"])}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        with self._api() as api:
            _, following = Stream(api, self.options).span()
        return {"offset": following}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Part]:
        with self._api() as api:
            first, _ = Stream(api, self.options).reaches(start["offset"])
        return parts(max(start["offset"], first), end["offset"], self.options.partition_rows)

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return read_part(self.options, partition)

    def commit(self, end: dict[str, int]) -> None:
        if self.options.group is not None and end["offset"] > 0:
            with self._api() as api:
                Stream(api, self.options).commit(self.options.group, end["offset"])

    def _api(self) -> Api:
        return Api(self.options.endpoint, self.options.patience)
