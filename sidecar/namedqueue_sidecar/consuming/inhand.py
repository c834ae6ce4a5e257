"""Jobs in our hands for those who fetch them, and how many more the broker may give us.

They follow demand. While nobody waits the prefetch is 0, so no job lies idle here while another pod
could run it; while somebody does it is what they lack plus what is in our hands already.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from namedqueue_sidecar.brokers.port import Delivery, Subscription


class InHand:
    """Counts what a subscription gave us until it is acknowledged, handed back or void."""

    def __init__(self, subscription: Subscription, fewer: Callable[[], None]) -> None:
        """Call `fewer` when there are fewer, for then more may come."""
        self._subscription = subscription
        self._fewer = fewer
        self._jobs = 0
        self._prefetch = 0
        self._emptied = asyncio.Event()
        self._emptied.set()

    def __len__(self) -> int:
        return self._jobs

    def want(self, lacking: int) -> None:
        """Have the broker deliver so many more, and nothing if that is none."""
        prefetch = self._jobs + lacking if lacking else 0
        if prefetch != self._prefetch:
            self._prefetch = prefetch
            self._subscription.set_prefetch(prefetch)

    def took(self, jobs: int) -> None:
        """Know of jobs that were delivered."""
        self._jobs += jobs
        self._emptied.clear()

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge jobs."""
        self._subscription.ack(deliveries)
        self._gone(len(deliveries))

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return jobs to the queue, uncounted."""
        self._subscription.hand_back(deliveries)
        self._gone(len(deliveries))

    def void(self) -> None:
        """Know that the broker gives everything out again."""
        self._gone(self._jobs)

    async def stop(self, patience: float) -> None:
        """Take no more, and return when nothing is left, or when patience is over."""
        await self._subscription.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._emptied.wait(), patience)

    async def close(self) -> None:
        """Let go of the queue."""
        await self._subscription.close()

    def _gone(self, jobs: int) -> None:
        self._jobs -= jobs
        if not self._jobs:
            self._emptied.set()
        self._fewer()
