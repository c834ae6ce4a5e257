"""The frames of a publish, written straight to bytes.

pamqp makes an object of every part of every frame first, which is most of what a publish costs. The
parts that jobs are made of are few and never change, so they are written here; a value of another
kind in a table is still pamqp's to write. Everything that is read stays pamqp's.
"""

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from pamqp.encode import encode_table_value

_BASIC: Final = 60
_PUBLISH: Final = 40
_METHOD, _HEADER, _BODY = 1, 2, 3
_MANDATORY: Final = b"\x01"
_END: Final = b"\xce"
_LONGEST_SHORT: Final = 255

_frame = struct.Struct(">BHI").pack
_method = struct.Struct(">HHH").pack
_content = struct.Struct(">HHQH").pack
_count = struct.Struct(">I").pack
_number = struct.Struct(">q").pack
_moment = struct.Struct(">Q").pack


@lru_cache(1024)
def publish(channel: int, exchange: str, key: str) -> bytes:
    """Return the method frame of a publish that comes back if no queue takes it."""
    payload = _method(_BASIC, _PUBLISH, 0) + _short(exchange) + _short(key) + _MANDATORY
    return _framed(_METHOD, channel, payload)


def header(properties: Mapping[str, Any], headers: Mapping[str, Any], size: int) -> bytes:
    """Return what a header frame holds: the body's size, the properties that are set, the headers.

    What AMQP cannot carry is a ValueError, a TypeError or a struct.error.
    """
    flags, parts = 0, []
    for name, flag, write in _PROPERTIES:
        value = properties.get(name) if name != "headers" else headers or None
        if value is not None:
            flags |= flag
            parts.append(write(value))
    return _content(_BASIC, 0, size, flags) + b"".join(parts)


def content(channel: int, header: bytes, body: bytes, largest: int) -> bytes:
    """Return the frames of a message after its method: the header's, and the body's in parts."""
    frames = [_frame(_HEADER, channel, len(header)), header, _END]
    if len(body) <= largest:
        if body:
            frames += (_frame(_BODY, channel, len(body)), body, _END)
        return b"".join(frames)
    for start in range(0, len(body), largest):
        frames.append(_framed(_BODY, channel, body[start : start + largest]))
    return b"".join(frames)


def _framed(kind: int, channel: int, payload: bytes) -> bytes:
    return _frame(kind, channel, len(payload)) + payload + _END


def _short(text: str) -> bytes:
    written = text.encode()
    if len(written) > _LONGEST_SHORT:
        raise ValueError(f"{text[:50]!r}… has more than {_LONGEST_SHORT} bytes")
    return b"%c%b" % (len(written), written)


_word = lru_cache(1024)(_short)
"""For texts that come again and again: names of headers, types."""


def _table(table: Mapping[str, Any]) -> bytes:
    written = b"".join([_word(name) + _value(value) for name, value in table.items()])
    return _count(len(written)) + written


def _value(value: Any) -> bytes:
    kind = type(value)
    if kind is str:
        text: bytes = value.encode()
        return b"S" + _count(len(text)) + text
    if kind is int:
        return b"l" + _number(value)
    return encode_table_value(value)


def _octet(value: int) -> bytes:
    return b"%c" % value


_PROPERTIES: Final[tuple[tuple[str, int, Callable[[Any], bytes]], ...]] = (
    ("content_type", 1 << 15, _word),
    ("content_encoding", 1 << 14, _short),
    ("headers", 1 << 13, _table),
    ("delivery_mode", 1 << 12, _octet),
    ("priority", 1 << 11, _octet),
    ("correlation_id", 1 << 10, _short),
    ("message_id", 1 << 7, _short),
    ("timestamp", 1 << 6, _moment),
    ("type", 1 << 5, _word),
)
"""In the order in which AMQP wants them."""
