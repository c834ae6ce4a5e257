"""One live stream: messages are appended, given to whoever reads, and go by policy.

A message is in the index only when its commit is done, so whatever is read is in the storage. What
is gone from the index is not read any more, and goes from the storage with the next commit.
"""

from typing import Final

from namedqueue.envelope import Job, decode, encode
from namedqueue.positions import Position
from namedqueue_sidecar.brokers.builtin.followers import BuiltinReading, Followers
from namedqueue_sidecar.brokers.builtin.journal import RETRY_PAUSE
from namedqueue_sidecar.brokers.builtin.storage import (
    Appended,
    Batch,
    Message,
    Place,
    QueueRow,
    Settings,
)
from namedqueue_sidecar.brokers.builtin.stream_index import StreamIndex
from namedqueue_sidecar.brokers.builtin.surroundings import Surroundings, Timer
from namedqueue_sidecar.brokers.port import Depth, Entry, QueueKey

_MOST_AT_ONCE: Final = 256
_MOST_BYTES_AT_ONCE: Final = 1024 * 1024
"""What one reading is given in one turn, so that a long log does not hold up the loop."""

_OVERHEAD: Final = 128
"""Bytes that a message is taken to need beside its payload, so that empty ones go, too."""


class Stream:
    """A log with the cursors of its groups."""

    def __init__(
        self, row: QueueRow, surroundings: Surroundings, followers: Followers, first: int = 0
    ) -> None:
        """Serve `followers`; everything below `first` is gone."""
        self.id = row.id
        self.key = QueueKey(row.namespace, row.name)
        self.cursors: dict[str, int] = {}
        self.settings = row.settings
        self._index = StreamIndex(first)
        self._upcoming = first
        self._s = surroundings
        self._followers = followers
        self._serving = False
        self._alarm: Timer | None = None
        self._gone = False

    # Arrivals

    def place(self, job: Job) -> Appended:
        """Return a message as it will be stored; `arrived` follows if it was."""
        properties, headers = encode(job)
        offset, self._upcoming = self._upcoming, self._upcoming + 1
        now = self._s.now_ms()
        place = Place(offset, now, min(job.enqueued_at, now), len(job.payload) + _OVERHEAD)
        return Appended(self.id, place, Message(properties, headers, job.payload))

    def arrived(self, place: Place) -> None:
        """Take in what is stored now."""
        self._index.add(place)
        self._upcoming = max(self._upcoming, self._index.next)
        self._retain()
        self.serve_soon()

    # Reading

    def serve_soon(self) -> None:
        """Look for entries to give out when this turn of the loop is over."""
        if not self._serving and self._followers.readings and not self._gone:
            self._serving = True
            self._s.loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._serving = False
        if self._gone:
            return
        self._retain()
        for reading in tuple(self._followers.readings):
            self._give(reading)

    def _give(self, reading: BuiltinReading) -> None:
        if reading.at is None:
            reading.at = self._index.locate(reading.start)
        offsets = self._index.following(
            reading.at, min(reading.room, _MOST_AT_ONCE), _MOST_BYTES_AT_ONCE
        )
        try:
            entries = self._entries(offsets)
        except Exception as fault:  # noqa: BLE001 - reported to the loop, and tried again
            self._report("entries could not be read from the storage", fault)
            self._s.loop.call_later(RETRY_PAUSE, self.serve_soon)
            return
        if not entries:
            return
        reading.at = offsets.stop
        reading.room -= len(entries)
        self.serve_soon()
        try:
            reading.receive(entries)
        except Exception as fault:  # noqa: BLE001 - reported to the loop, as for any callback
            self._report("a reader raised", fault)

    def _entries(self, offsets: range) -> list[Entry]:
        if not offsets:
            return []
        return [
            Entry(offset, self._job(offset, message))
            for offset, message in self._s.storage.entries(self.id, offsets)
        ]

    def _job(self, offset: int, message: Message) -> Job:
        return decode(
            message.properties,
            message.headers,
            message.payload,
            queue=self.key.name,
            fresh_id=f"builtin-{self.id}-{offset}",
            now=self._index.arrival(offset),
        )

    def _report(self, what: str, fault: Exception) -> None:
        self._s.loop.call_exception_handler({"message": f"{self.key}: {what}", "exception": fault})

    # Groups

    async def commit(self, group: str, cursor: int) -> None:
        """Keep how far a group has read; one that comes late moves nobody back."""
        if cursor >= self.cursors.get(group, 0):
            await self._keep(group, cursor)

    async def _keep(self, group: str, cursor: int) -> None:
        self.cursors[group] = cursor
        await self._s.journal.written(Batch(cursors=[(self.id, group, cursor)]))

    async def seek(self, group: str, to: Position) -> int:
        """Move a group and tell its holder at once, so that no later commit undoes it."""
        cursor = self.locate(to)
        self._followers.moved(group, cursor)
        await self._keep(group, cursor)
        return cursor

    def locate(self, position: Position) -> int:
        """Return the offset that a position means now."""
        self._retain()
        return self._index.locate(position)

    def span(self) -> tuple[int, int]:
        """Return the oldest offset there is, and the one that comes next."""
        self._retain()
        return self._index.first, self._index.next

    # Time

    def _retain(self) -> None:
        retention = self.settings.stream
        if retention is None:
            raise RuntimeError(f"{self.key} is not a stream")
        now = self._s.now_ms()
        if self._index.retain(retention, now):
            self._s.journal.trim(self.id, self._index.first)
        oldest = self._index.oldest
        if retention.max_age_ms is not None and oldest is not None and self._alarm is None:
            pause = max(0, oldest + retention.max_age_ms - now) / 1000
            self._alarm = self._s.call_later(pause, self._alarm_rang)

    def _alarm_rang(self) -> None:
        self._alarm = None
        if not self._gone:
            self._retain()

    # Life

    def apply(self, settings: Settings) -> None:
        """Follow a changed spec."""
        self.settings = settings
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._retain()

    def depth(self) -> Depth:
        """Return how many messages there are; none of them is ever anybody's."""
        self._retain()
        return Depth(len(self._index), 0, 0, 0)

    def close(self) -> None:
        """Give out nothing any more."""
        self._gone = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._followers.detach()
