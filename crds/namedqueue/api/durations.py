"""Durations as people write them in a manifest: `250ms`, `1s`, `30m`, `90d`.

One number and one unit, so that there is nothing to add up and the same text can be compared in
Python and in the API server's CEL.
"""

import re
from dataclasses import dataclass, field
from typing import ClassVar, Self

from pydantic.json_schema import JsonSchemaValue

from namedqueue.api.written import Written

PATTERN = r"^(0|[1-9][0-9]{0,8})(ms|s|m|h|d)$"
MAX_LENGTH = 11

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(PATTERN[1:-1])


@dataclass(frozen=True, order=True)
class Duration(Written):
    """A span of time in whole milliseconds that remembers how it was written."""

    hint: ClassVar = (
        "is not a duration; write one whole number and one of ms, s, m, h, d, as in 90s"
    )
    json_schema: ClassVar[JsonSchemaValue] = {
        "type": "string",
        "pattern": PATTERN,
        "maxLength": MAX_LENGTH,
    }

    milliseconds: int
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `250ms`, `1s`, `30m`, `12h` or `90d`; anything else is a ValueError."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not a duration; write one number and one unit, as in 90s"
            )
        number, unit = match.groups()
        return cls(int(number) * _UNITS[unit], text)

    @classmethod
    def of_milliseconds(cls, milliseconds: int) -> Self:
        """Write a span in the largest unit that holds it exactly."""
        for unit, size in reversed(_UNITS.items()):
            if milliseconds % size == 0 and milliseconds >= size:
                return cls(milliseconds, f"{milliseconds // size}{unit}")
        return cls(milliseconds, f"{milliseconds}ms")

    @property
    def seconds(self) -> float:
        return self.milliseconds / 1000
