"""How people work through dead letters: the states of a review, and what makes a group.

A group is what probably has one cause. Its fingerprint is made of the error's code, the shape of
its message and the path that was called. The shape is the message without what differs from job to
job: numbers, ids, addresses and whatever is quoted.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from namedqueue.deadletters import DeadLetterRecord

LONGEST_SHAPE: Final = 200


class Review(StrEnum):
    """How far a person is with a dead letter."""

    PENDING = "pending"
    REVIEWED = "reviewed"
    REPLAYED = "replayed"
    CLOSED = "closed"


NEXT: Final[Mapping[Review, frozenset[Review]]] = {
    Review.PENDING: frozenset({Review.REVIEWED, Review.REPLAYED, Review.CLOSED}),
    Review.REVIEWED: frozenset({Review.PENDING, Review.REPLAYED, Review.CLOSED}),
    Review.REPLAYED: frozenset({Review.CLOSED}),
    Review.CLOSED: frozenset(),
}
"""What may follow each state. A redrive leads to `replayed`, people lead to the others."""

OPEN: Final = frozenset({Review.PENDING, Review.REVIEWED})
"""The states of a letter whose job is still among the dead letters."""

_FOLDED: Final = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`|«[^»]*»|“[^”]*”"), "<text>"),
    (
        re.compile(
            r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE
        ),
        "<id>",
    ),
    (re.compile(r"\S+@\S+\.\S+"), "<address>"),
    (re.compile(r"\b(?=\w*\d)(?=\w*[a-z])\w{6,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"[-+]?\d+(?:[.:,/-]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def shape(message: str) -> str:
    """Return a message without what differs from job to job; a shape is its own shape."""
    for pattern, name in _FOLDED:
        message = pattern.sub(name, message)
    return message.strip()[:LONGEST_SHAPE]


def group(record: DeadLetterRecord, path: str | None = None) -> str:
    """Name the group of a dead letter by its code, the shape of its message, and its handler."""
    told = "\0".join((record.reason.code, shape(record.reason.message), path or ""))
    return blake2b(told.encode(), digest_size=8).hexdigest()


def letter_key(record: DeadLetterRecord) -> str:
    """Name a letter, the same each time it is met and by whomever.

    A job that fails again after a redrive is another letter. So are two jobs of one id, which
    strangers may send, unless they have the same payload.
    """
    job = record.job
    return f"{job.redrives}.{blake2b(job.payload, digest_size=8).hexdigest()}.{job.id}"
