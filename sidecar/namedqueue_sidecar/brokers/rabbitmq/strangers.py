"""What strangers write and AMQP forbids, read so that it harms nobody.

RabbitMQ passes on texts that are not UTF-8, times beyond the year 9999 and tables of any depth, and
pamqp raises for them. That ends the connection with all that is held on it, and the broker gives
the message out again: one such job would keep whole pods from their work. So a text that cannot be
read is percent-encoded, as `namedqueue.headers` does it, a time is its bare number, and headers
that are nested too deeply are none.
"""

import struct
from typing import Any
from urllib.parse import quote

from pamqp import decode

_length = struct.Struct(">I").unpack_from
_number = struct.Struct(">Q").unpack_from


def read_everything() -> None:
    """Have pamqp, in the whole process, read whatever a broker passes on."""
    decode.METHODS.update(shortstr=_short, timestamp=_timestamp, table=_headers)
    decode.TABLE_MAPPING.update({b"T": _timestamp, b"F": _table})


def _short(value: bytes) -> tuple[int, str]:
    end = value[0] + 1
    return end, _text(value[1:end])


def _timestamp(value: bytes) -> tuple[int, Any]:
    try:
        return decode.timestamp(value)
    except (ValueError, OverflowError, OSError):
        return 8, _number(value)[0]


def _headers(value: bytes) -> tuple[int, dict[str, Any]]:
    try:
        return _table(value)
    except RecursionError:
        return 4 + _length(value)[0], {}


def _table(value: bytes) -> tuple[int, dict[str, Any]]:
    at, end = 4, 4 + _length(value)[0]
    table: dict[str, Any] = {}
    while at < end:
        start = at + 1
        at = start + value[at]
        name = _text(value[start:at])
        used, table[name] = decode.embedded_value(value[at:end])
        at += used
    return end, table


def _text(written: bytes) -> str:
    try:
        return written.decode()
    except UnicodeDecodeError:
        return quote(written)
