"""The port's view of the streams of a builtin broker."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from namedqueue.positions import Position
from namedqueue_sidecar.brokers.builtin.followers import Followers
from namedqueue_sidecar.brokers.builtin.storage import QueueRow, StreamContents
from namedqueue_sidecar.brokers.builtin.streams import Stream
from namedqueue_sidecar.brokers.builtin.surroundings import Surroundings
from namedqueue_sidecar.brokers.port import Entry, Hold, Holder, QueueKey, Reading

_NOTHING: Final = StreamContents(0, (), {})


class BuiltinLog:
    """Looks the stream up at every call, because it may come and go."""

    def __init__(
        self, key: QueueKey, followers: Followers, stream: Callable[[], Stream | None]
    ) -> None:
        self._key = key
        self._followers = followers
        self._find = stream

    def read(
        self, start: Position, receive: Callable[[Sequence[Entry]], None], ahead: int
    ) -> Reading:
        """Give out entries from a position on."""
        return self._followers.read(start, receive, ahead)

    async def cursor(self, group: str) -> int | None:
        """Return where a group reads on."""
        return self._stream.cursors.get(group)

    async def groups(self) -> Mapping[str, int]:
        """Return the cursor of each group that has one."""
        return dict(self._stream.cursors)

    async def commit(self, group: str, cursor: int) -> None:
        """Keep how far a group has read."""
        await self._stream.commit(group, cursor)

    async def seek(self, group: str, to: Position) -> int:
        """Move a group and tell its holder."""
        return await self._stream.seek(group, to)

    async def locate(self, position: Position) -> int:
        """Return the offset that a position means now."""
        return self._stream.locate(position)

    async def span(self) -> tuple[int, int]:
        """Return the oldest offset there is, and the one that comes next."""
        return self._stream.span()

    def hold(self, group: str, holder: Holder) -> Hold:
        """Wish to be the group's one reader."""
        return self._followers.hold(group, holder)

    @property
    def _stream(self) -> Stream:
        stream = self._find()
        if stream is None:
            raise ConnectionError(f"there is no stream {self._key}, or not any more")
        return stream


class Streams:
    """All streams of a broker, and who follows them."""

    def __init__(self) -> None:
        self._live: dict[QueueKey, Stream] = {}
        self._followers: dict[QueueKey, Followers] = {}

    def __iter__(self) -> Iterator[Stream]:
        return iter(tuple(self._live.values()))

    def find(self, key: QueueKey) -> Stream | None:
        """Return a stream; None if there is none."""
        return self._live.get(key)

    def add(
        self, row: QueueRow, surroundings: Surroundings, contents: StreamContents = _NOTHING
    ) -> None:
        """Bring a stream to life, with what was left of it."""
        key = QueueKey(row.namespace, row.name)
        followers = self._followers.setdefault(key, Followers())
        stream = Stream(row, surroundings, followers, contents.first)
        stream.cursors.update(contents.cursors)
        for place in contents.places:
            stream.arrived(place)
        self._live[key] = stream
        followers.attach(stream)

    def remove(self, key: QueueKey) -> Stream | None:
        """Take a stream out, if there is one; its followers wait until it is declared again."""
        return self._live.pop(key, None)

    def close(self) -> None:
        """End all streams for good."""
        for stream in self:
            stream.close()
        self._live.clear()
        self._followers.clear()

    def log(self, key: QueueKey) -> BuiltinLog:
        """Return the port's view of a stream, whether it exists yet or not."""
        followers = self._followers.setdefault(key, Followers())
        return BuiltinLog(key, followers, partial(self._live.get, key))
