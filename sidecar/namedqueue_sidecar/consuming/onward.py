"""How a job leaves an attempt: published, confirmed, recorded, and only then acknowledged.

The one place that keeps this order, for whoever makes attempts. What was published and not recorded
when a pod dies is published again as a copy, which is recognised; what was recorded and not
published would be lost.
"""

from collections.abc import Callable
from functools import partial

from namedqueue.idempotency import State
from namedqueue_sidecar.brokers.port import Dead, Main
from namedqueue_sidecar.consuming.attempts import Attempt
from namedqueue_sidecar.consuming.guarding import Guard
from namedqueue_sidecar.consuming.interims import Interims
from namedqueue_sidecar.consuming.outbox import Outbox


class Onward:
    """Sees attempts through to their end."""

    def __init__(self, outbox: Outbox | Interims, guard: Guard | None) -> None:
        self._outbox = outbox
        self._guard = guard

    def publish(self, attempt: Attempt, to: Main | Dead, then: Callable[[], None]) -> None:
        """Publish to the next stage for as long as the delivery is ours, and record that."""
        attempt.moving = True
        state = State.DEAD_LETTERED if isinstance(to, Dead) else State.FAILED
        self._outbox.send(
            to,
            partial(self.record, attempt, state, then),
            still_ours=lambda: attempt.delivery is not None,
        )

    def record(self, attempt: Attempt, state: State, then: Callable[[], None]) -> None:
        """Call `then` when the store knows how an attempt ended; at once if it holds no claim."""
        attempt.moving = True
        claim, attempt.claim = attempt.claim, None
        if self._guard is None or claim is None:
            then()
        else:
            self._guard.end(claim, state, then)

    def end(self, attempt: Attempt, state: State) -> None:
        """Record how an attempt ended that nothing waits for; `RECEIVED` if it came to nothing."""
        claim, attempt.claim = attempt.claim, None
        if self._guard is not None and claim is not None:
            self._guard.end(claim, state)
