"""The file: SQLite in WAL mode with a sync at every commit, so that it survives kill -9.

One thread writes; the event loop reads through a connection of its own, which WAL never blocks.
There is no index besides the row number: jobs are appended and removed by number, and everything
that is searched is in memory. See docs/decisions/0004-builtin-storage.md.

Messages that were just stored are kept in memory until they are first read, up to a bound, because
most jobs are worked off while they are fresh.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from namedqueue_sidecar.brokers.builtin.lock import FolderLock
from namedqueue_sidecar.brokers.builtin.storage import (
    Batch,
    Committed,
    Contents,
    Message,
    Place,
    Placed,
    QueueRow,
    Retention,
    Settings,
    StorageError,
    StreamContents,
)

FILE_NAME: Final = "jobs.sqlite"
APPLICATION_ID: Final = 0x4E51_4A42  # NQJB
SCHEMA_VERSION: Final = 2
MOST_FRESH_BYTES: Final = 64 * 1024 * 1024

_MESSAGE_OVERHEAD: Final = 1024
_MOST_VARIABLES: Final = 500

_JOBS: Final = """
CREATE TABLE queues (
    id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, settings TEXT NOT NULL
);
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY, queue INTEGER NOT NULL, dead INTEGER NOT NULL, at INTEGER NOT NULL,
    priority INTEGER NOT NULL, job_id TEXT NOT NULL, tables BLOB NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE delivered (seq INTEGER PRIMARY KEY);
"""
_STREAMS: Final = """
CREATE TABLE entries (
    stream INTEGER NOT NULL, offset INTEGER NOT NULL, at INTEGER NOT NULL, dated INTEGER NOT NULL,
    size INTEGER NOT NULL, tables BLOB NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (stream, offset)
) WITHOUT ROWID;
CREATE TABLE trimmed (stream INTEGER PRIMARY KEY, first INTEGER NOT NULL);
CREATE TABLE cursors (
    stream INTEGER NOT NULL, name TEXT NOT NULL, cursor INTEGER NOT NULL, PRIMARY KEY (stream, name)
) WITHOUT ROWID;
"""
_CHANGES: Final = (_JOBS, _STREAMS)
"""What leads from each version of the schema to the next."""

_LOAD: Final = """
SELECT jobs.seq, queue, dead, at, priority, job_id, delivered.seq IS NOT NULL
FROM jobs LEFT JOIN delivered USING (seq) ORDER BY jobs.seq
"""

_ENTRIES: Final = """
SELECT offset, tables, payload FROM entries
WHERE stream = ? AND offset BETWEEN ? AND ? ORDER BY offset
"""
_PLACES: Final = "offset, at, dated, size FROM entries WHERE stream = ? ORDER BY offset"


class SqliteStorage:
    """Messages in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._lock: FolderLock | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._fresh: dict[int, Message] = {}
        self._fresh_bytes = 0

    async def open(self) -> Contents:
        """Take the folder, make the file if there is none, and read what is in it."""
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="builtin-storage")
        try:
            contents = await self._loop.run_in_executor(self._thread, self._open_file)
            self._reader = _connect(self._path)
            self._reader.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            await self.close()
            raise StorageError(f"{self._path} cannot be used: {error}") from error
        except (OSError, StorageError) as error:
            await self.close()
            raise StorageError(str(error)) from error
        return contents

    async def close(self) -> None:
        """Close both connections; the last one folds the log into the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._thread is not None and self._loop is not None:
            await self._loop.run_in_executor(self._thread, self._close_file)
            self._thread.shutdown()
            self._thread = None

    def commit(self, batch: Batch, committed: Committed) -> None:
        """Apply a batch in one transaction."""
        if self._thread is None:
            raise RuntimeError(f"{self._path} is not open")
        job = self._thread.submit(self._apply, batch)
        job.add_done_callback(partial(self._applied, batch, committed))

    def read(self, seqs: Sequence[int]) -> list[Message]:
        """Return messages, from memory if they are fresh."""
        found = {seq: message for seq in seqs if (message := self._take_fresh(seq))}
        missing = [seq for seq in seqs if seq not in found]
        for start in range(0, len(missing), _MOST_VARIABLES):
            found.update(self._select(missing[start : start + _MOST_VARIABLES]))
        return [found[seq] for seq in seqs]

    def entries(self, stream: int, offsets: range) -> list[tuple[int, Message]]:
        """Return messages of a stream, which are read as often as there are readers."""
        if self._reader is None:
            raise RuntimeError(f"{self._path} is not open")
        rows = self._reader.execute(_ENTRIES, (stream, offsets[0], offsets[-1])).fetchall()
        return [(offset, _message(tables, payload)) for offset, tables, payload in rows]

    def _select(self, seqs: Sequence[int]) -> dict[int, Message]:
        if self._reader is None:
            raise RuntimeError(f"{self._path} is not open")
        marks = ",".join("?" * len(seqs))
        rows = self._reader.execute(
            f"SELECT seq, tables, payload FROM jobs WHERE seq IN ({marks})",  # noqa: S608 - only ?
            seqs,
        ).fetchall()
        return {seq: _message(tables, payload) for seq, tables, payload in rows}

    def _take_fresh(self, seq: int) -> Message | None:
        message = self._fresh.pop(seq, None)
        if message is not None:
            self._fresh_bytes -= len(message.payload) + _MESSAGE_OVERHEAD
        return message

    def _keep_fresh(self, batch: Batch) -> None:
        for placed, message in batch.added:
            size = len(message.payload) + _MESSAGE_OVERHEAD
            if not placed.dead and self._fresh_bytes + size <= MOST_FRESH_BYTES:
                self._fresh[placed.seq] = message
                self._fresh_bytes += size
        for seq in batch.removed:
            self._take_fresh(seq)
        if batch.dropped:
            self._fresh.clear()
            self._fresh_bytes = 0

    def _applied(self, batch: Batch, committed: Committed, job: "Future[None]") -> None:
        """Pass on the end of a commit from the thread to the loop."""
        if self._loop is not None:
            fault = job.exception()
            error = None if fault is None else StorageError(f"{self._path}: {fault}")
            self._loop.call_soon_threadsafe(self._tell, batch, committed, error)

    def _tell(self, batch: Batch, committed: Committed, error: Exception | None) -> None:
        if error is None:
            self._keep_fresh(batch)
        committed(error)

    # In the thread

    def _open_file(self) -> Contents:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = FolderLock(self._folder)
        self._writer = _connect(self._path)
        self._check_version(self._writer)
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute("PRAGMA synchronous = FULL")
        self._writer.execute("PRAGMA secure_delete = OFF")
        queues = [
            QueueRow(row, namespace, name, _settings(text))
            for row, namespace, name, text in self._writer.execute(
                "SELECT id, namespace, name, settings FROM queues"
            )
        ]
        jobs = [
            Placed(seq, queue, bool(dead), at, priority, job_id, bool(delivered))
            for seq, queue, dead, at, priority, job_id, delivered in self._writer.execute(_LOAD)
        ]
        ids = [row.id for row in queues if row.settings.stream is not None]
        return Contents(queues, jobs, {each: _stream(self._writer, each) for each in ids})

    def _check_version(self, writer: sqlite3.Connection) -> None:
        """Bring the schema of an empty or older file up; refuse one not ours, or too new."""
        (version,) = writer.execute("PRAGMA user_version").fetchone()
        (application,) = writer.execute("PRAGMA application_id").fetchone()
        (tables,) = writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
        is_empty = not (version or application or tables)
        if application != APPLICATION_ID and not is_empty:
            raise StorageError(
                f"{self._path} is not a NamedQueue file; choose another folder or move it away"
            )
        if version > SCHEMA_VERSION:
            raise StorageError(
                f"{self._path} was written by a newer NamedQueue (schema {version}, and this one "
                f"reads {SCHEMA_VERSION}); upgrade, or choose another folder"
            )
        if version < SCHEMA_VERSION:
            writer.executescript(
                f"BEGIN IMMEDIATE; {''.join(_CHANGES[version:])}"
                f"PRAGMA application_id = {APPLICATION_ID};"
                f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )

    def _apply(self, batch: Batch) -> None:
        writer = self._writer
        if writer is None:
            raise RuntimeError(f"{self._path} is not open")
        writer.execute("BEGIN IMMEDIATE")
        try:
            _write(writer, batch)
            writer.execute("COMMIT")
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise

    def _close_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _connect(path: Path) -> sqlite3.Connection:
    """Connect with transactions in our hands; the module's own begin where they like."""
    return sqlite3.connect(path, isolation_level=None)


def _write(writer: sqlite3.Connection, batch: Batch) -> None:
    """Add before removing: what is dropped with its queue may have been added in this batch."""
    writer.executemany(
        "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?)",
        [(row.id, row.namespace, row.name, _dump(row.settings)) for row in batch.queues],
    )
    writer.executemany(
        "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (*placed[:6], _dump((message.properties, message.headers)), message.payload)
            for placed, message in batch.added
        ],
    )
    removed = set(batch.removed)
    marks = [(seq,) for seq in batch.delivered if seq not in removed]
    writer.executemany("INSERT OR IGNORE INTO delivered VALUES (?)", marks)
    gone = [(seq,) for seq in batch.removed]
    writer.executemany("DELETE FROM jobs WHERE seq = ?", gone)
    writer.executemany("DELETE FROM delivered WHERE seq = ?", gone)
    _write_streams(writer, batch)
    for queue in batch.dropped:
        writer.execute(
            "DELETE FROM delivered WHERE seq IN (SELECT seq FROM jobs WHERE queue = ?)", (queue,)
        )
        writer.execute("DELETE FROM jobs WHERE queue = ?", (queue,))
        writer.execute("DELETE FROM queues WHERE id = ?", (queue,))
        for table in ("entries", "trimmed", "cursors"):
            writer.execute(f"DELETE FROM {table} WHERE stream = ?", (queue,))  # noqa: S608 - ours


def _write_streams(writer: sqlite3.Connection, batch: Batch) -> None:
    writer.executemany(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (stream, *place, _dump((message.properties, message.headers)), message.payload)
            for stream, place, message in batch.appended
        ],
    )
    writer.executemany("DELETE FROM entries WHERE stream = ? AND offset < ?", batch.trimmed)
    writer.executemany("INSERT OR REPLACE INTO trimmed VALUES (?, ?)", batch.trimmed)
    writer.executemany("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)", batch.cursors)


def _stream(connection: sqlite3.Connection, stream: int) -> StreamContents:
    def select(what: str) -> list[Any]:
        return connection.execute(f"SELECT {what}", (stream,)).fetchall()

    trimmed = select("first FROM trimmed WHERE stream = ?")
    return StreamContents(
        first=trimmed[0][0] if trimmed else 0,
        places=[Place(*row) for row in select(_PLACES)],
        cursors=dict(select("name, cursor FROM cursors WHERE stream = ?")),
    )


def _dump(value: tuple[object, ...]) -> bytes:
    try:
        return orjson.dumps(tuple(value))
    except TypeError:  # half a surrogate pair, which no encoding can hold
        return orjson.dumps(_encodable(value))


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_encodable(name): _encodable(below) for name, below in value.items()}
        case tuple() | list():
            return [_encodable(below) for below in value]
        case _:
            return value


def _settings(text: bytes) -> Settings:
    settings = Settings(*orjson.loads(text))
    return settings._replace(
        subscriptions=tuple(settings.subscriptions),
        stream=None if settings.stream is None else Retention(*settings.stream),
    )


def _message(tables: bytes, payload: bytes) -> Message:
    properties, headers = orjson.loads(tables)
    return Message(properties, headers, payload)
