"""From a DataFrame to jobs: what each task does, and what the driver does when all are done.

A task succeeds only when every row of it was confirmed by the broker, or was set aside under
`onInvalid`. Spark may run a task twice; both runs send the same ids.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from pyspark_namedqueue.entries import Entries, Entry
from pyspark_namedqueue.options import Writing
from pyspark_namedqueue.rejects import Rejects
from pyspark_namedqueue.sending import Sender

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has done."""

    accepted: int
    rejected: int
    rejects: str | None


def write_rows(rows: Iterable[Mapping[str, Any]], options: Writing, write: str) -> Written:
    """Send the rows of this task's partition; return when all are confirmed or set aside."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs in a Spark task only")
    entries = Entries(options, write, context.partitionId()).of(rows)
    with Rejects(options, write, context) as rejects, Sender(options) as sender:
        for batch in batched(rejects.without(entries), options.batch_rows, options.batch_bytes):
            sender.send(batch)
        tally = sender.finish()
        for rejected in tally.rejected:
            rejects.add(rejected.entry.line, rejected.code, rejected.detail)
        return Written(tally.accepted, rejects.count, rejects.path)


def batched(entries: Iterable[Entry], most_rows: int, most_bytes: int) -> Iterator[Sequence[Entry]]:
    """Yield entries in batches within both limits; one that is larger goes alone."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == most_rows or size + len(entry.line) + 1 > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += len(entry.line) + 1
    if batch:
        yield batch


def from_rows(rows: Iterable[Row]) -> Iterator[Mapping[str, Any]]:
    """Read Spark's rows, nested ones included."""
    return (row.asDict(recursive=True) for row in rows)


def from_arrow(batches: Iterable["RecordBatch"]) -> Iterator[Mapping[str, Any]]:
    """Read Arrow's batches."""
    for batch in batches:
        yield from batch.to_pylist(maps_as_pydicts="strict")


def settle(messages: Sequence[WriterCommitMessage | None], options: Writing) -> None:
    """Keep what the tasks that count have set aside, and say how it went."""
    written = [message for message in messages if isinstance(message, Written)]
    Rejects.keep(options, [each.rejects for each in written if each.rejects is not None])
    accepted = sum(each.accepted for each in written)
    rejected = sum(each.rejected for each in written)
    _log.info("%s: %d rows confirmed, %d set aside", options.target, accepted, rejected)


class _Batch:
    """A write whose id was drawn when it was planned."""

    def __init__(self, options: Writing, write: str) -> None:
        self._options, self._write = options, write

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        settle(messages, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave what was confirmed: a job that is published cannot be taken back."""


class RowWriter(_Batch, DataSourceWriter):
    """Writes rows."""

    def write(self, iterator: Iterator[Row]) -> Written:
        return write_rows(from_rows(iterator), self._options, self._write)


class ArrowWriter(_Batch, DataSourceArrowWriter):
    """Writes Arrow's batches, which cost less to hand over."""

    def write(self, iterator: Iterator["RecordBatch"]) -> Written:
        return write_rows(from_arrow(iterator), self._options, self._write)


class _Stream:
    """A query's writes: each batch of it has its own id, the same after a restart."""

    def __init__(self, options: Writing) -> None:
        self._options = options

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  # Spark's
        settle(messages, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's
        """Leave what was confirmed: the batch comes again under the same ids."""


class StreamRowWriter(_Stream, DataSourceStreamWriter):
    """Writes the rows of a query."""

    def write(self, iterator: Iterator[Row]) -> Written:
        return write_rows(from_rows(iterator), self._options, _microbatch())


class StreamArrowWriter(_Stream, DataSourceStreamArrowWriter):
    """Writes the batches of a query."""

    def write(self, iterator: Iterator["RecordBatch"]) -> Written:
        return write_rows(from_arrow(iterator), self._options, _microbatch())


def _microbatch() -> str:
    """Name the query's batch that this task belongs to."""
    context = TaskContext.get()
    query = context and context.getLocalProperty(_QUERY)
    batch = context and context.getLocalProperty(_BATCH)
    if not query or not batch:
        raise RuntimeError("Spark does not say which batch this is; is this a streaming query?")
    return f"{query}/{batch}"
