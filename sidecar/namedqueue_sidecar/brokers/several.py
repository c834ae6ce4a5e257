"""The broker port over several brokers: each queue has its own way, and so its own account.

A pod that works off one queue and sends to two others holds three accounts, none of which may do
more than its queue needs. Topics go out by the way of an account that may send.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar.brokers.port import (
    Broker,
    DeadLetters,
    Depth,
    Log,
    Publication,
    QueueKey,
    Receiver,
    Settled,
    Subscription,
    Topic,
    Verdict,
)


class SeveralBrokers:
    """Sends each call on to the broker of its queue."""

    def __init__(self, ways: Mapping[QueueKey, Broker], topics: Broker | None) -> None:
        """Without a way for `topics` nobody takes what is published there."""
        self._ways = dict(ways)
        self._topics = topics
        everyone = [*self._ways.values(), *([topics] if topics is not None else [])]
        self._brokers = tuple(dict.fromkeys(everyone))

    async def open(self) -> None:
        """Connect; returns when every one of them stands."""
        await asyncio.gather(*(broker.open() for broker in self._brokers))

    async def close(self) -> None:
        """Flush what is on its way and let go."""
        await asyncio.gather(*(broker.close() for broker in self._brokers))

    async def declare(self, queue: NamedQueue) -> None:
        """Make the queue exist as specified."""
        key = QueueKey.of(queue)
        await self._ways[key].declare(queue)

    async def undeclare(self, queue: QueueKey) -> None:
        """Forget a queue and all that is in it."""
        await self._ways[queue].undeclare(queue)

    @property
    def unavailable(self) -> str | None:
        """Why publishing cannot work everywhere right now; None if it can."""
        reasons = (broker.unavailable for broker in self._brokers)
        return next((reason for reason in reasons if reason is not None), None)

    def unavailable_for(self, queue: QueueKey | None) -> str | None:
        """Why nothing can be sent on one way; the others have nothing to do with it."""
        way = self._topics if queue is None else self._ways.get(queue)
        return None if way is None else way.unavailable

    @property
    def interrupted(self) -> str | None:
        """Why no job comes from somewhere; None if they come from everywhere."""
        reasons = (broker.interrupted for broker in self._brokers)
        return next((reason for reason in reasons if reason is not None), None)

    def publish(self, batch: Sequence[Publication], settled: Settled) -> None:
        """Send a batch, in parts where it goes different ways; settle it as one."""
        parts: dict[Broker | None, list[int]] = {}
        for position, publication in enumerate(batch):
            parts.setdefault(self._way(publication), []).append(position)
        verdicts = [Verdict.UNROUTABLE] * len(batch)
        missing = len(parts)

        def settle(positions: Sequence[int], part: Sequence[Verdict]) -> None:
            nonlocal missing
            for position, verdict in zip(positions, part, strict=True):
                verdicts[position] = verdict
            missing -= 1
            if not missing:
                settled(verdicts)

        for way, positions in parts.items():
            of_part = partial(settle, positions)
            if way is None:
                of_part([Verdict.UNROUTABLE] * len(positions))
            else:
                way.publish([batch[position] for position in positions], of_part)

    def subscribe(
        self, queue: QueueKey, receiver: Receiver, prefetch: int, *, partitions: int = 0
    ) -> Subscription:
        """Begin deliveries, and begin them again by itself after each reconnect."""
        return self._ways[queue].subscribe(queue, receiver, prefetch, partitions=partitions)

    async def consumers(self, queue: QueueKey) -> int:
        """Return how many want jobs of a queue."""
        way = self._ways.get(queue)
        return 0 if way is None else await way.consumers(queue)

    async def depth(self, queue: QueueKey) -> Depth | None:
        """Return how many jobs are where; None for a queue that does not exist."""
        way = self._ways.get(queue)
        return None if way is None else await way.depth(queue)

    def dead_letters(self, queue: QueueKey) -> DeadLetters:
        """Return the queue's dead letters."""
        return self._ways[queue].dead_letters(queue)

    def log(self, queue: QueueKey) -> Log:
        """Return a stream's messages and cursors."""
        return self._ways[queue].log(queue)

    def _way(self, publication: Publication) -> Broker | None:
        if isinstance(publication, Topic):
            return self._topics
        return self._ways.get(publication.queue)
