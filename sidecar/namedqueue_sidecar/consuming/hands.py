"""Deliveries in our hands: how they go back to the broker, and which of them came before."""

from collections.abc import Sequence
from typing import Protocol

from namedqueue_sidecar.brokers.port import Delivery
from namedqueue_sidecar.consuming.copies import Copies
from namedqueue_sidecar.consuming.tally import Tally


class Source(Protocol):
    """Where deliveries come from: a subscription, or what counts its deliveries."""

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Remove jobs for good."""

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return jobs to the queue, uncounted."""


class Hands:
    """Returns deliveries of one connection after another, and keeps the books on that."""

    def __init__(self, source: Source, copies: Copies, tally: Tally) -> None:
        self._source = source
        self._copies = copies
        self._tally = tally

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge a job; should the broker not hear of it, its copy is recognised."""
        self._copies.acked(delivery.job)
        self._source.ack((delivery,))

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return jobs to the queue, uncounted."""
        if deliveries:
            self._tally.handed_back(len(deliveries))
            self._source.hand_back(deliveries)

    def recognised(self, delivery: Delivery) -> bool:
        """Tell whether a redelivered job needs no attempt: it is under way, or it is done."""
        if self._copies.joined(delivery):
            return True
        if not self._copies.take_done(delivery.job):
            return False
        self._tally.copy_dropped()
        self.ack(delivery)
        return True
