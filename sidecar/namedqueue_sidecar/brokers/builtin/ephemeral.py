"""An ephemeral queue: jobs in memory, whatever keeps the others, and gone when nobody uses it.

Using it means to want jobs of it. Sending jobs is no use, for otherwise a producer that nobody
listens to would fill the memory. RabbitMQ has the same rule for a queue that expires.
"""

import logging
from collections.abc import Callable
from typing import Final

from namedqueue_sidecar.brokers.builtin.consumers import Consumer
from namedqueue_sidecar.brokers.builtin.queues import Queue
from namedqueue_sidecar.brokers.builtin.storage import QueueRow, Settings
from namedqueue_sidecar.brokers.builtin.surroundings import Surroundings, Timer

_log = logging.getLogger(__name__)

_LONGEST_BETWEEN_LOOKS: Final = 1_000
_LOOKS: Final = 4
"""How often a queue is looked at in the time it may be idle."""


class EphemeralQueue(Queue):
    """A queue without dead letters that expires."""

    def __init__(
        self,
        row: QueueRow,
        surroundings: Surroundings,
        consumers: list[Consumer],
        expired: Callable[["EphemeralQueue"], None],
    ) -> None:
        """Call `expired` when nobody wanted jobs for as long as the settings say."""
        super().__init__(row, surroundings, consumers)
        self._expired = expired
        self._used_at = surroundings.now_ms()
        self._watch: Timer = surroundings.call_later(self._pause, self._look)

    def serve_soon(self) -> None:
        """Look for jobs to give out; whoever makes us do so and wants jobs uses the queue."""
        if any(consumer.wants_jobs for consumer in self._consumers):
            self._used_at = self._s.now_ms()
        super().serve_soon()

    def apply(self, settings: Settings) -> None:
        """Follow a changed spec; to declare a queue again is to use it."""
        super().apply(settings)
        self._used_at = self._s.now_ms()

    def close(self) -> None:
        """Void what was given out, and look no more."""
        self._watch.cancel()
        super().close()

    @property
    def _idle_expiry_ms(self) -> int:
        return self.settings.idle_expiry_ms or 0

    @property
    def _pause(self) -> float:
        return min(self._idle_expiry_ms / _LOOKS, _LONGEST_BETWEEN_LOOKS) / 1000

    def _look(self) -> None:
        now = self._s.now_ms()
        if any(consumer.wants_jobs for consumer in self._consumers):
            self._used_at = now
        if now - self._used_at < self._idle_expiry_ms:
            self._watch = self._s.call_later(self._pause, self._look)
            return
        depth = self.depth()
        _log.warning(
            "%s expired: nobody wanted its jobs for %g s; %d went with it",
            self.key,
            self._idle_expiry_ms / 1000,
            depth.ready + depth.in_flight,
            extra={"action": "expire", "queue": str(self.key)},
        )
        self._expired(self)
