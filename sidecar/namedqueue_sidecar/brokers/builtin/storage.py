"""Where messages are kept.

A storage keeps and gives back; it decides nothing. What is ready, due or in flight is the index's
business, which is made anew from the storage at every open: the storage is the truth.

A batch is applied whole or not at all. A job that moves between stages is removed and added in
the same batch, so no crash can find it in neither place.

The messages of streams are apart from jobs: they are known by their offset, and go oldest first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, Protocol, TypeAlias

from namedqueue.envelope import Table


class StorageError(Exception):
    """A storage that cannot be used, and what to do about it."""


class Message(NamedTuple):
    """A job or dead letter as `namedqueue.envelope` writes it."""

    properties: Table
    headers: Table
    payload: bytes


class Placed(NamedTuple):
    """Where a job is: all that the index needs to know of it.

    `at` is when the job is or becomes ready, and for a dead letter when it arrived.
    """

    seq: int
    queue: int
    dead: bool
    at: int
    priority: int
    job_id: str
    delivered: bool = False


class Place(NamedTuple):
    """Where a message of a stream stands: all that the index needs to know of it.

    `at` is when it arrived, `dated` when its job was enqueued, and `size` what it counts for.
    """

    offset: int
    at: int
    dated: int
    size: int


class Appended(NamedTuple):
    """A message for a stream."""

    stream: int
    place: Place
    message: Message


class Retention(NamedTuple):
    """How much a stream keeps; None for no bound."""

    max_age_ms: int | None
    max_bytes: int | None
    max_messages: int | None


class Settings(NamedTuple):
    """What a queue's spec means for keeping its jobs."""

    max_length: int | None
    message_ttl_ms: int | None
    max_priority: int
    longest_delay_ms: int
    retention_ms: int
    subscriptions: tuple[str, ...]
    fifo: bool = False
    idle_expiry_ms: int | None = None
    stream: Retention | None = None
    """What makes it a stream."""

    @property
    def ephemeral(self) -> bool:
        """Whether jobs are kept in memory, and the queue goes when nobody uses it."""
        return self.idle_expiry_ms is not None

    @property
    def kind(self) -> tuple[bool, bool]:
        """What a changed spec cannot change."""
        return self.ephemeral, self.stream is not None


class QueueRow(NamedTuple):
    """A queue; one that is undeclared and declared again gets another id."""

    id: int
    namespace: str
    name: str
    settings: Settings


@dataclass(slots=True)
class Batch:
    """Changes that are applied together."""

    queues: list[QueueRow] = field(default_factory=list)
    added: list[tuple[Placed, Message]] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    appended: list[Appended] = field(default_factory=list)
    trimmed: list[tuple[int, int]] = field(default_factory=list)
    """Streams, and the offset below which everything goes."""

    cursors: list[tuple[int, str, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def extend(self, other: "Batch") -> None:
        """Apply the other's changes too."""
        self.queues += other.queues
        self.added += other.added
        self.removed += other.removed
        self.delivered += other.delivered
        self.dropped += other.dropped
        self.appended += other.appended
        self.trimmed += other.trimmed
        self.cursors += other.cursors


class StreamContents(NamedTuple):
    """What a storage holds of a stream; messages in order of their offsets.

    `first` is the offset below which everything is gone, also when nothing is left.
    """

    first: int
    places: Sequence[Place]
    cursors: Mapping[str, int]


class Contents(NamedTuple):
    """What a storage holds when it is opened; jobs in order of their `seq`."""

    queues: Sequence[QueueRow]
    jobs: Iterable[Placed]
    streams: Mapping[int, StreamContents]


Committed: TypeAlias = Callable[[Exception | None], None]


class Storage(Protocol):
    """A place for messages."""

    async def open(self) -> Contents:
        """Make ready, and return what is there; StorageError if it cannot be used."""

    async def close(self) -> None:
        """Let go."""

    def commit(self, batch: Batch, committed: Committed) -> None:
        """Apply a batch, and say from the event loop when it is safe, or why it was not applied.

        One batch at a time: the next one may come when `committed` was called.
        """

    def read(self, seqs: Sequence[int]) -> list[Message]:
        """Return messages that were committed and not removed."""

    def entries(self, stream: int, offsets: range) -> list[tuple[int, Message]]:
        """Return the messages of a stream that have these offsets, in order."""


class MemoryStorage:
    """Messages that live as long as the process."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[int, Message]] = {}
        self._streams: dict[int, dict[int, Message]] = {}

    async def open(self) -> Contents:
        """Begin empty."""
        return Contents((), (), {})

    async def close(self) -> None:
        """Forget everything."""
        self._messages.clear()
        self._streams.clear()

    def commit(self, batch: Batch, committed: Committed) -> None:
        """Apply a batch at once."""
        for placed, message in batch.added:
            self._messages[placed.seq] = (placed.queue, message)
        for seq in batch.removed:
            self._messages.pop(seq, None)
        if batch.dropped:
            gone = set(batch.dropped)
            self._messages = {
                seq: kept for seq, kept in self._messages.items() if kept[0] not in gone
            }
        self._commit_streams(batch)
        committed(None)

    def _commit_streams(self, batch: Batch) -> None:
        for entry in batch.appended:
            self._streams.setdefault(entry.stream, {})[entry.place.offset] = entry.message
        for stream, first in batch.trimmed:
            kept = self._streams.get(stream, {})
            for offset in tuple(takewhile(first.__gt__, kept)):
                del kept[offset]
        for stream in batch.dropped:
            self._streams.pop(stream, None)

    def read(self, seqs: Sequence[int]) -> list[Message]:
        """Return messages by reference."""
        return [self._messages[seq][1] for seq in seqs]

    def entries(self, stream: int, offsets: range) -> list[tuple[int, Message]]:
        """Return messages by reference."""
        kept = self._streams[stream]
        return [(offset, kept[offset]) for offset in offsets if offset in kept]
