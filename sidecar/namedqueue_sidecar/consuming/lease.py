"""A job in the hands of a worker that fetched it: how it gets there, and how that ends."""

import asyncio
import secrets
from enum import Enum

from namedqueue import retry
from namedqueue_sidecar.brokers.port import Delivery
from namedqueue_sidecar.consuming.attempts import Attempt
from namedqueue_sidecar.consuming.pulls import Pull, Wish


class End(Enum):
    """How a lease ended."""

    FINISHED = "finished"
    EXPIRED = "expired"
    LOST = "lost"
    HANDED_BACK = "handed-back"


class LeaseEndedError(Exception):
    """There is no such lease any more; `end` is None if nobody remembers one."""

    def __init__(self, end: End | None) -> None:
        super().__init__(end)
        self.end = end


class DrainingError(Exception):
    """No more jobs are leased here."""


class Lease(Attempt):
    """A job in a worker's hands; `until` is in milliseconds since the epoch."""

    __slots__ = ("id", "settled", "until", "visibility", "worker")

    def __init__(self, delivery: Delivery, began: float, began_at: int, wish: Wish) -> None:
        super().__init__(delivery, began, began_at)
        self.id = secrets.token_hex(16)
        self.worker = wish.worker
        self.visibility = wish.visibility
        self.until = began_at + round(wish.visibility * 1000)
        self.settled: asyncio.Future[retry.Decision | End] | None = None

    def settle(self, end: retry.Decision | End) -> None:
        """Tell whoever waits for it how the lease ended."""
        if self.settled is not None and not self.settled.done():
            self.settled.set_result(end)


class LeasePull(Pull):
    """A pull with its answer, which is None if there will be no jobs because we are draining."""

    __slots__ = ("answer", "leases")

    def __init__(self, wish: Wish) -> None:
        super().__init__(wish)
        self.leases: list[Lease] = []
        self.answer: asyncio.Future[list[Lease] | None] = asyncio.Future()
