"""Attempts that take up a slot: with the app, or on their way to the next stage."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from namedqueue_sidecar.consuming.attempts import Attempt, InFlight

A = TypeVar("A", bound=Attempt)


class Flights(set[A]):
    """The attempts under way, and a way to wait until all have landed.

    A set, for on the hot path it is asked only for what a set knows.
    """

    def __init__(self) -> None:
        super().__init__()
        self._all_landed = asyncio.Event()
        self._all_landed.set()

    def begin(self, flight: A) -> None:
        """Take up a slot."""
        if not self:
            self._all_landed.clear()
        self.add(flight)

    def land(self, flight: A) -> None:
        """Free the slot, if it is not free yet."""
        self.discard(flight)
        if not self:
            self._all_landed.set()

    async def landed(self, patience: float) -> None:
        """Return when all have landed, or when patience is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_landed.wait(), patience)


def pushed(attempts: Iterable[Attempt], timeout_ms: int) -> list[InFlight]:
    """Return what can be told of attempts that the app was called for."""
    return [
        InFlight(each.job, "push", each.began_at, each.began_at + timeout_ms) for each in attempts
    ]
