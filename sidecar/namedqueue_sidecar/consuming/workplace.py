"""What a worker is given: a queue to work off, and all that it stands between."""

import random as randomness
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar.app.port import App, Ready
from namedqueue_sidecar.brokers.port import Broker, QueueKey
from namedqueue_sidecar.consuming.copies import Memory
from namedqueue_sidecar.consuming.guarding import Guard


@dataclass(frozen=True, slots=True)
class Workplace:
    """A queue, the broker that keeps its jobs, and the app that they are for."""

    queue: NamedQueue
    broker: Broker
    app: App

    share: float = 1.0
    """This replica's part of the rate limit."""

    memory: Memory = field(default_factory=Memory)
    """What must not run again, for all who work on the queue here."""

    guard: Guard | None = None
    """Who claims the keys of a queue with `spec.idempotency`."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    random: Callable[[], float] = randomness.random

    @property
    def key(self) -> QueueKey:
        return QueueKey.of(self.queue)

    @property
    def ready(self) -> Ready:
        """What has to be there before a job is taken: the app, and the store if it is guarded."""
        return self.app if self.guard is None else self.guard.beside(self.app)
