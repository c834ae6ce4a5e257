"""Rows that can never become jobs: they fail the task, or are set aside under `onInvalid`.

Each run of a task writes its own file below `_unfinished`, and the driver keeps only those of the
runs that counted, so a retried or speculative task sets nothing aside twice.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Final, Self

from pyspark import TaskContext

from pyspark_namedqueue.entries import Entry, InvalidRow
from pyspark_namedqueue.options import Writing
from pyspark_namedqueue.places import place

_UNFINISHED: Final = "_unfinished"
_LONGEST_SHOWN: Final = 500


class Rejects:
    """What one run of a task refuses."""

    def __init__(self, options: Writing, write: str, context: TaskContext) -> None:
        self._options = options
        run = f"{context.partitionId():05d}-{context.taskAttemptId()}"
        self._name = f"{write.replace('/', '-')}-{run}.ndjson"
        self._file: IO[bytes] | None = None
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def path(self) -> str | None:
        """The name of the file with what was set aside; None if nothing was."""
        return self._name if self.count else None

    def without(self, entries: Iterable[Entry | InvalidRow]) -> Iterator[Entry]:
        """Yield the good ones, and set the others aside."""
        for each in entries:
            if isinstance(each, InvalidRow):
                self.add(each.row, "INVALID_ROW", str(each))
            else:
                yield each

    def add(self, row: bytes, code: str, detail: str) -> None:
        """Set a row aside, or fail the task with the row and the reason."""
        if self._options.rejects is None:
            shown = row[:_LONGEST_SHOWN].decode(errors="replace")
            raise ValueError(
                f"{self._options.target} refuses a row: {code}: {detail}; the row is {shown}. "
                "Set option onInvalid to a path to set such rows aside and go on."
            )
        if self._file is None:
            files, root = place(self._options.rejects)
            files.create_dir(f"{root}/{_UNFINISHED}", recursive=True)
            self._file = files.open_output_stream(f"{root}/{_UNFINISHED}/{self._name}")
        line = {"code": code, "detail": detail, "row": row.decode(errors="replace")}
        self._file.write(json.dumps(line).encode() + b"\n")
        self.count += 1

    @staticmethod
    def keep(options: Writing, names: Sequence[str]) -> None:
        """Move the files of the runs that counted to where the user looks, on the driver."""
        if options.rejects is None or not names:
            return
        files, root = place(options.rejects)
        for name in names:
            files.move(f"{root}/{_UNFINISHED}/{name}", f"{root}/{name}")
