"""What differs between RabbitMQ 3.10 and 4.3, all of it in this one place.

Differences show only in policies and in notes, never in the arguments of a queue or an exchange:
those can never change, and a broker must be upgradable under queues that exist. For the same reason
two things are not used on any version, though an older one would have them: `x-queue-mode` as an
argument (4.3 refuses it) and queues that are neither durable nor exclusive (deprecated in 4.0; an
ephemeral queue is a durable one that expires, with messages that are not persistent).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

_TEXT = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:[.+~-].*)?", re.ASCII)


@dataclass(frozen=True, order=True)
class Version:
    """A broker's feature series; its patch releases behave alike."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `4.1` or `3.10.8`; a broker older than the oldest supported is a ValueError.

        One newer than the newest is taken at its word and treated like the newest.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a RabbitMQ version; write one as in {NEWEST}")
        version = cls(int(match[1]), int(match[2]))
        if version < OLDEST:
            raise ValueError(f"RabbitMQ {text} is too old; the oldest supported is {OLDEST}")
        return version

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST: Final = Version(3, 10)
NEWEST: Final = Version(4, 3)

DEFAULT_CONSUMER_TIMEOUT_MS: Final = 30 * 60 * 1000

_LAZY_IS_BUILT_IN = Version(3, 12)
_CONSUMER_TIMEOUT_BY_POLICY = Version(3, 12)
_DELIVERIES_LIMITED_BY_DEFAULT = Version(4, 0)

Settings = Mapping[str, str | int]


def lazy_mode(version: Version) -> tuple[Settings, tuple[str, ...]]:
    """Return what makes a classic queue lazy, and what to say about it."""
    if version < _LAZY_IS_BUILT_IN:
        return {"queue-mode": "lazy"}, ()
    note = (
        f"spec.durable.mode lazy is built in: from RabbitMQ {_LAZY_IS_BUILT_IN} every classic "
        "queue keeps its jobs on disk, so nothing is sent"
    )
    return {}, (note,)


def unlimited_deliveries(version: Version) -> Settings:
    """Return what lets a message be read and handed back for ever.

    From 4.0 the broker drops a message that was handed back 20 times unless it is told not to. On
    a dead-letter queue that would lose a letter to people who only looked at it.
    """
    return {"delivery-limit": -1} if version >= _DELIVERIES_LIMITED_BY_DEFAULT else {}


def consumer_timeout(version: Version, longest_hold_ms: int) -> tuple[Settings, tuple[str, ...]]:
    """Return what gives a consumer time to ack, and what to say where a policy cannot.

    A broker takes a job back from a consumer that is silent for too long, and the job would run
    twice. A node may be set to less than the default, so the time is always stated.
    """
    needed = max(DEFAULT_CONSUMER_TIMEOUT_MS, longest_hold_ms)
    if version >= _CONSUMER_TIMEOUT_BY_POLICY:
        return {"consumer-timeout": needed}, ()
    if needed == DEFAULT_CONSUMER_TIMEOUT_MS:
        return {}, ()
    note = (
        f"a job may be held for {longest_hold_ms // 1000} s, longer than the broker's default of "
        f"{DEFAULT_CONSUMER_TIMEOUT_MS // 1000} s; RabbitMQ {version} knows no policy for that, "
        f"so set consumer_timeout = {needed} in its rabbitmq.conf"
    )
    return {}, (note,)
