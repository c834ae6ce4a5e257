"""Sizes as Kubernetes quantities: `512Ki`, `10Gi`, `1.5G`, or a plain number of bytes."""

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Self

from pydantic.json_schema import JsonSchemaValue

from namedqueue.api.written import Written

PATTERN = r"^([0-9]{1,19}(?:\.[0-9]{1,9})?)(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
MAX_LENGTH = 31

_TEXT = re.compile(PATTERN[1:-1])
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18} | {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}


@dataclass(frozen=True, order=True)
class Quantity(Written):
    """A size in whole bytes, rounded up as Kubernetes does, that remembers how it was written."""

    hint: ClassVar = "is not a size; write bytes or a Kubernetes quantity, as in 10Gi"
    json_schema: ClassVar[JsonSchemaValue] = {
        "x-kubernetes-int-or-string": True,
        "pattern": PATTERN,
        "maxLength": MAX_LENGTH,
    }

    bytes: int
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a quantity; anything else is a ValueError."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a size; write bytes or a quantity, as in 10Gi")
        number, unit = match.groups(default="")
        return cls(math.ceil(Fraction(number) * _UNITS[unit]), text)
