"""Where a group begins to read a stream."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from namedqueue.moments import read_rfc3339


class End(Enum):
    """A position that depends on what the stream holds."""

    FIRST = "first"  # the oldest message there is
    LAST = "last"  # the newest message there is
    NEXT = "next"  # what comes from now on


@dataclass(frozen=True, slots=True)
class Moment:
    """The first message that is not older than this, in milliseconds since the epoch."""

    at: int


Position: TypeAlias = End | Moment | int
"""A number is an offset; where that message is gone, the oldest one that is left."""

_OFFSET: Final = re.compile(r"[0-9]{1,15}")


def position(text: str | int) -> Position:
    """Read a position as a manifest or a caller writes it; raise ValueError with the reason."""
    written = str(text)
    if _OFFSET.fullmatch(written):
        return int(written)
    if written in {end.value for end in End}:
        return End(written)
    at = read_rfc3339(written)
    if at is None:
        raise ValueError(
            f"{written[:40]!r} is no position in a stream; write first, last, next, an offset, "
            "or a time as in 2026-02-26T12:00:00Z"
        )
    return Moment(at)
