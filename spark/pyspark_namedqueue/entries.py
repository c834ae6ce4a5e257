"""Rows as entries of a batch: one line of JSON each, under an id that any retry finds again.

Spark runs a task again when it fails, and beside itself when it is slow, and the rows may then come
in another order. So an id is made of what the row holds and not of where it stood: the write, the
partition, the content, and a number where a partition holds the same content several times. The
same partition yields the same ids in any order, and two rows never share one, unless they agree in
everything and in their `key`, which says that they are one job.

Telling equal rows apart takes some 100 bytes of memory for each row of a partition; rows with a
`key` need none, nor do rows whose `id` is a column of their own.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from pyspark_namedqueue.options import Writing

_ID_BYTES: Final = 16
_SECONDS: Final = timedelta(seconds=1)


class Entry(NamedTuple):
    """A row as the API takes it."""

    id: str
    line: bytes


class InvalidRow(ValueError):  # noqa: N818  # it reads as what it is
    """A row that cannot become a job."""

    row = b""


class Entries:
    """Makes the entries of one partition of one write."""

    def __init__(self, options: Writing, write: str, partition: int) -> None:
        self._columns = [each for each in options.columns if each[0] != "id"]
        self._own_id = dict(options.columns).get("id")
        self._payload = options.payload
        self._seed = f"{write}/{partition}/".encode()
        self._key = dict(options.columns).get("key")
        self._seen: dict[bytes, int] = {}

    def of(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Entry | InvalidRow]:
        """Yield an entry for each row, or what is wrong with it."""
        for row in rows:
            try:
                yield self._entry(row)
            except InvalidRow as problem:
                problem.row = repr(row).encode()
                yield problem

    def _entry(self, row: Mapping[str, Any]) -> Entry:
        fields = [
            f'"{field}":{_field(field, row[column], column)}'
            for field, column in self._columns
            if row[column] is not None
        ]
        content = ",".join([*fields, f'"payload":{self._written(row)}']).encode()
        if self._own_id is not None:
            name = self._given(row, self._own_id)
            return Entry(name, b'{"id":%b,%b}' % (json.dumps(name).encode(), content))
        name = self._id(content, keyed=self._key is not None and row[self._key] is not None)
        return Entry(name, b'{"id":"%b",%b}' % (name.encode(), content))

    def _given(self, row: Mapping[str, Any], column: str) -> str:
        if row[column] is None:
            raise InvalidRow(f"column {column} holds no id")
        return str(row[column])

    def _written(self, row: Mapping[str, Any]) -> str:
        if self._payload is None:
            return as_json(row)
        value = row[self._payload]
        if isinstance(value, bytes | bytearray | str):
            return _checked(value, self._payload)
        return as_json(value)

    def _id(self, content: bytes, *, keyed: bool) -> str:
        digest = blake2b(self._seed + content, digest_size=_ID_BYTES).digest()
        if keyed:
            return digest.hex()
        times = self._seen.get(digest, 0)
        self._seen[digest] = times + 1
        if times:
            digest = blake2b(digest + str(times).encode(), digest_size=_ID_BYTES).digest()
        return digest.hex()


def _field(field: str, value: object, column: str) -> str:
    """Write a field of an entry: text, but for headers, which are a map or JSON already."""
    if field != "headers":
        return json.dumps(str(value))
    return _checked(value, column) if isinstance(value, str) else as_json(value)


def as_json(value: object) -> str:
    """Write a value of a row as JSON: moments in UTC, bytes in base64, decimals as exact text."""
    try:
        return _encoder.encode(value)
    except ValueError as error:
        raise InvalidRow(f"the row cannot be written as JSON: {error}") from None


def _checked(text: bytes | bytearray | str, column: str) -> str:
    """Return JSON text on one line; a line end in it can only be white space between its parts."""
    try:
        written = text if isinstance(text, str) else bytes(text).decode()
        json.loads(written, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidRow(f"column {column} holds no JSON: {error}") from None
    return written.replace("\n", " ").replace("\r", " ")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _plain(value: object) -> object:
    """Return what JSON knows for a value that it does not."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case timedelta():
            return value / _SECONDS
        case Decimal():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case _:
            raise InvalidRow(f"a {type(value).__name__} cannot be written as JSON")


_encoder = json.JSONEncoder(default=_plain, ensure_ascii=False, allow_nan=False)
