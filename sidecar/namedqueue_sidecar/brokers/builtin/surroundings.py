"""What all queues and streams of a builtin broker share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeAlias

from namedqueue_sidecar.brokers.builtin.journal import Journal
from namedqueue_sidecar.brokers.builtin.storage import Storage


class Timer(Protocol):
    """A call that can still be taken back."""

    def cancel(self) -> None:
        """Do not call."""


CallLater: TypeAlias = Callable[[float, Callable[[], None]], Timer]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where messages are kept, and the time and the numbers that go by."""

    loop: asyncio.AbstractEventLoop
    storage: Storage
    journal: Journal
    now_ms: Callable[[], int]
    call_later: CallLater
    seqs: "count[int]"
    tags: "count[int]"
