"""How far the groups of a stream have read, as a log of records that anybody may append to.

A group's mark is how often it was sought and where it reads on, and the greater mark is the newer:
a seek beats all that was committed before it, else who read further is right. Marks can therefore
be put together in any order and any number of times, and nobody has to agree with anybody.

A record holds the marks that its writer changed. Now and then one holds all that its writer knows,
so that the groups who rest outlive the head of the log. Each record says from which offset on the
log has to be read in order to know everything.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_LEAST_BETWEEN: Final = 64
_MOST_BETWEEN: Final = 1000
_LARGEST: Final = 1 << 62


class Mark(NamedTuple):
    """How often a group was sought, and the offset of the message that it reads next."""

    seeks: int
    cursor: int


class Record(NamedTuple):
    """Marks of some groups, or of all; all of them are known to who reads from `since` on."""

    marks: Mapping[str, Mark]
    since: int
    whole: bool = False


def encode(record: Record) -> bytes:
    """Write a record."""
    written = {"since": record.since, "whole": record.whole, "marks": record.marks}
    return json.dumps(written, separators=(",", ":")).encode()


def decode(body: bytes) -> Record | None:
    """Read a record; None if it is none of ours."""
    try:
        found = json.loads(body)
        marks = {str(group): Mark(*map(_number, mark)) for group, mark in found["marks"].items()}
        return Record(marks, _number(found["since"]), found["whole"] is True)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class Book:
    """All marks that are known from the records read so far."""

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}
        self._since = 0
        self._singles = 0
        self.following = 0
        """The offset of the record that is read next."""

    @property
    def cursors(self) -> dict[str, int]:
        """Where each group reads on."""
        return {group: mark.cursor for group, mark in self._marks.items()}

    def begin(self, offset: int) -> None:
        """Read the log from an offset on; what is known stays known."""
        self.following = offset
        self._since = 0

    def read(self, offset: int, record: Record | None) -> dict[str, int]:
        """Learn from a record of the log; return the groups that were sought, and where to."""
        self.following = offset + 1
        if record is None:
            return {}
        self._since = max(self._since, record.since)
        self._singles = 0 if record.whole else self._singles + 1
        return self.learn(record)

    def learn(self, record: Record) -> dict[str, int]:
        """Keep the greater marks; return the groups that were sought, and where to."""
        sought = {}
        for group, mark in record.marks.items():
            known = self._marks.get(group)
            if known is None or mark > known:
                self._marks[group] = mark
                if mark.seeks > (known.seeks if known else 0):
                    sought[group] = mark.cursor
        return sought

    def commit(self, group: str, cursor: int) -> Record:
        """Return the record of a commit."""
        known = self._marks.get(group, _NO_MARK)
        return self._record(group, Mark(known.seeks, cursor))

    def seek(self, group: str, cursor: int) -> Record:
        """Return the record of a seek."""
        known = self._marks.get(group, _NO_MARK)
        return self._record(group, Mark(known.seeks + 1, cursor))

    def _record(self, group: str, mark: Mark) -> Record:
        if self._singles < min(max(_LEAST_BETWEEN, len(self._marks)), _MOST_BETWEEN):
            return Record({group: mark}, self._since)
        self._singles = 0
        everything = {**self._marks, group: max(mark, self._marks.get(group, mark))}
        return Record(everything, self.following, whole=True)


_NO_MARK: Final = Mark(0, 0)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise ValueError("not an offset")
    return value
