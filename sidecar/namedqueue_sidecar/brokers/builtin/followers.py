"""Who reads a stream: readings that entries are given to, and groups with one holder each.

Both outlive the stream they are of. When it is undeclared readings stand still and holders are
revoked; when it is declared again readings begin again and the groups are granted again.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from namedqueue.positions import Position
from namedqueue_sidecar.brokers.port import Entry, Holder


class Source(Protocol):
    """What a follower needs of its stream."""

    @property
    def cursors(self) -> Mapping[str, int]:
        """Where each group reads on."""

    def serve_soon(self) -> None:
        """Look for entries to give out."""


class BuiltinReading:
    """One way through the stream; `at` is the next offset, None as long as there is no stream."""

    def __init__(
        self,
        start: Position,
        receive: Callable[[Sequence[Entry]], None],
        ahead: int,
        followers: "Followers",
    ) -> None:
        self.start = start
        self.receive = receive
        self.room = ahead
        self.at: int | None = None
        self._followers = followers

    def done(self, entries: int) -> None:
        """Make room for as many more to come."""
        self.room += entries
        if self._followers.source is not None:
            self._followers.source.serve_soon()

    async def close(self) -> None:
        """Read no further."""
        self._followers.forget(self)


class BuiltinHold:
    """A place in the line of those who wish to hold a group; the first one holds it."""

    def __init__(self, group: str, holder: Holder, followers: "Followers") -> None:
        self.group = group
        self.holder = holder
        self.granted = False
        self._followers = followers

    async def release(self) -> None:
        """Let the next in line have it."""
        self._followers.leave(self)


class Followers:
    """All readers of one stream, whether it exists or not."""

    def __init__(self) -> None:
        self.readings: list[BuiltinReading] = []
        self.source: Source | None = None
        self._lines: dict[str, list[BuiltinHold]] = {}

    def read(
        self, start: Position, receive: Callable[[Sequence[Entry]], None], ahead: int
    ) -> BuiltinReading:
        """Begin to read, now or as soon as the stream is declared."""
        reading = BuiltinReading(start, receive, ahead, self)
        self.readings.append(reading)
        if self.source is not None:
            self.source.serve_soon()
        return reading

    def forget(self, reading: BuiltinReading) -> None:
        """Give a reading nothing any more."""
        if reading in self.readings:
            self.readings.remove(reading)

    def hold(self, group: str, holder: Holder) -> BuiltinHold:
        """Stand in line for a group."""
        hold = BuiltinHold(group, holder, self)
        self._lines.setdefault(group, []).append(hold)
        self._grant_soon(group)
        return hold

    def leave(self, hold: BuiltinHold) -> None:
        """Leave the line, from wherever one stands in it."""
        line = self._lines.get(hold.group, [])
        if hold in line:
            line.remove(hold)
            hold.granted = False
            self._grant_soon(hold.group)

    def attach(self, source: Source) -> None:
        """Follow a stream that exists from now on."""
        self.source = source
        source.serve_soon()
        for group in self._lines:
            self._grant_soon(group)

    def detach(self) -> None:
        """Know that the stream is gone."""
        self.source = None
        for reading in self.readings:
            reading.at = None
        for line in self._lines.values():
            for hold in line:
                was_granted, hold.granted = hold.granted, False
                if was_granted:
                    hold.holder.revoked()

    def moved(self, group: str, cursor: int) -> None:
        """Tell a group's holder that somebody sought."""
        for hold in self._lines.get(group, []):
            if hold.granted:
                hold.holder.moved(cursor)

    def _grant_soon(self, group: str) -> None:
        """Call the holder from the loop, never from within its own call."""
        asyncio.get_running_loop().call_soon(self._grant, group)

    def _grant(self, group: str) -> None:
        line = self._lines.get(group)
        if self.source is not None and line and not line[0].granted:
            line[0].granted = True
            line[0].holder.granted(self.source.cursors.get(group))
