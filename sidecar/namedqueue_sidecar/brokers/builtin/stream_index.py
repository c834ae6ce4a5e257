"""Which messages a stream holds: their offsets, when they came, how large they are. Pure.

A position in time is that of the first message that is not older. Messages need not be in the order
of their dates, so each is kept with the latest date up to it, by which can be searched by halves:
nothing before the first one whose latest date reaches a moment is young enough. It is the one, or,
where that latest date is of a message that is gone, the one is a little behind it.

Offsets grow by one, except where a commit failed: its offsets are never used again.
"""

from array import array
from bisect import bisect_left
from typing import Final

from namedqueue.positions import End, Moment, Position
from namedqueue_sidecar.brokers.builtin.storage import Place, Retention

_SPARE: Final = 4096


class StreamIndex:
    """The messages from the oldest that is left to the newest."""

    def __init__(self, first: int = 0) -> None:
        """Begin where everything below an offset is gone."""
        self._offsets, self._arrivals = array("q"), array("q")
        self._dates, self._latest, self._sizes = array("q"), array("q"), array("q")
        self._columns = (self._offsets, self._arrivals, self._dates, self._latest, self._sizes)
        self._head = 0
        self._bytes = 0
        self._next = first

    def __len__(self) -> int:
        return len(self._offsets) - self._head

    @property
    def first(self) -> int:
        return self._offsets[self._head] if len(self) else self._next

    @property
    def next(self) -> int:
        return self._next

    @property
    def oldest(self) -> int | None:
        """When the oldest message came."""
        return self._arrivals[self._head] if len(self) else None

    def add(self, place: Place) -> None:
        """Take in a message behind all others."""
        latest = self._latest[-1] if len(self) else 0
        self._offsets.append(place.offset)
        self._arrivals.append(place.at)
        self._dates.append(place.dated)
        self._latest.append(max(place.dated, latest))
        self._sizes.append(place.size)
        self._bytes += place.size
        self._next = place.offset + 1

    def retain(self, retention: Retention, now: int) -> bool:
        """Let go of what may not be kept any longer, and tell whether there was any.

        The newest message outlives a size that it exceeds alone: what was confirmed is not
        thrown away on arrival.
        """
        before = self._head
        while len(self) and self._is_past(retention, now):
            self._bytes -= self._sizes[self._head]
            self._head += 1
        gone = self._head > before
        if self._head > _SPARE + len(self):
            for column in self._columns:
                del column[: self._head]
            self._head = 0
        return gone

    def _is_past(self, retention: Retention, now: int) -> bool:
        max_age, max_bytes, max_messages = retention
        return (
            (max_messages is not None and len(self) > max_messages)
            or (max_age is not None and self._arrivals[self._head] + max_age <= now)
            or (max_bytes is not None and self._bytes > max_bytes and len(self) > 1)
        )

    def locate(self, position: Position) -> int:
        """Return the offset that a position means now: of a message, or of the one to come."""
        match position:
            case End.FIRST:
                return self.first
            case End.LAST:
                return self._offsets[-1] if len(self) else self._next
            case End.NEXT:
                return self._next
            case Moment(at):
                begin = bisect_left(self._latest, at, lo=self._head)
                places = range(begin, len(self._offsets))
                young = (self._offsets[place] for place in places if self._dates[place] >= at)
                return next(young, self._next)
            case int():
                return min(max(position, self.first), self._next)

    def following(self, offset: int, most: int, most_bytes: int) -> range:
        """Return the offsets to read next: at most so many messages, and at least one if any is."""
        begin = bisect_left(self._offsets, offset, lo=self._head)
        end, size = begin, 0
        while end < min(begin + most, len(self._offsets)) and (size < most_bytes):
            size += self._sizes[end]
            end += 1
        return range(self._offsets[begin], self._offsets[end - 1] + 1) if end > begin else range(0)

    def arrival(self, offset: int) -> int:
        """Return when the message at this offset came."""
        return self._arrivals[bisect_left(self._offsets, offset, lo=self._head)]
