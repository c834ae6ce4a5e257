"""A worker's hold on a queue.

The consumer outlives the queue it is of: when the queue is undeclared its deliveries are void and
`lost` is called; when it is declared again deliveries begin again.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from namedqueue_sidecar.brokers.builtin.storage import Placed
from namedqueue_sidecar.brokers.port import Delivery, Receiver


class Counter(Protocol):
    """What a consumer needs of its queue."""

    def done(self, jobs: Sequence[Placed]) -> None:
        """Remove jobs for good."""

    def returned(self, jobs: Sequence[Placed]) -> None:
        """Take jobs back."""

    def serve_soon(self) -> None:
        """Look for jobs to give out."""


class Consumer:
    """Jobs in one worker's hands, by the tag of their delivery."""

    def __init__(
        self, receiver: Receiver, prefetch: int, closed: Callable[["Consumer"], None]
    ) -> None:
        """Call `closed` when the worker lets go."""
        self.receiver = receiver
        self.queue: Counter | None = None
        self.held: dict[int, Placed] = {}
        self._handed_back = False
        self._prefetch = prefetch
        self._stopped = False
        self._closed = closed

    @property
    def wants_jobs(self) -> bool:
        """Whether it would take a job if it had no others."""
        return not self._stopped and self._prefetch > 0

    @property
    def room(self) -> int:
        return 0 if self._stopped else max(0, self._prefetch - len(self.held))

    @property
    def has_to_finish(self) -> bool:
        """Whether it handed something back and still holds what may come after it."""
        return self._handed_back and bool(self.held)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Remove these jobs."""
        taken = self._take(deliveries)
        if taken and self.queue is not None:
            self.queue.done(taken)

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return these jobs to their old place in the queue."""
        self._return(self._take(deliveries))
        self._handed_back = bool(self.held)

    def set_prefetch(self, jobs: int) -> None:
        """Bound how many jobs may be held; what is held above it stays held."""
        self._prefetch = jobs
        if self.queue is not None:
            self.queue.serve_soon()

    async def stop(self) -> None:
        """End deliveries for good."""
        self._stopped = True

    async def close(self) -> None:
        """Return what is held, and let go."""
        self._stopped = True
        held, self.held = list(self.held.values()), {}
        self._return(held)
        self._closed(self)

    def lose(self) -> None:
        """Void what is held: its queue is gone, or the broker closes."""
        self.queue = None
        self.held.clear()
        self.receiver.lost()

    def _return(self, jobs: Sequence[Placed]) -> None:
        if jobs and self.queue is not None:
            self.queue.returned(jobs)

    def _take(self, deliveries: Sequence[Delivery]) -> list[Placed]:
        """Let go of what is still held; a void delivery is not."""
        taken = (self.held.pop(delivery.tag, None) for delivery in deliveries)
        return [placed for placed in taken if placed is not None]
