"""An alarm rings once, at the earliest moment it was set to, and can then be set anew."""

import asyncio

from namedqueue_sidecar.consuming.alarm import Alarm

LONG = 3600.0


class Bell:
    """Counts its rings."""

    def __init__(self) -> None:
        self.rings = 0
        self.rang = asyncio.Event()
        self.alarm = Alarm(self._ring)

    def _ring(self) -> None:
        self.rings += 1
        self.rang.set()


async def test_it_rings_at_the_earliest_moment_whichever_was_set_first() -> None:
    for moments in ((LONG, 0.0), (0.0, LONG)):
        bell = Bell()
        for seconds in moments:
            bell.alarm.set(seconds)
        await asyncio.wait_for(bell.rang.wait(), 30)
        assert bell.rings == 1


async def test_it_can_be_set_anew_when_it_has_rung() -> None:
    bell = Bell()
    for rings in (1, 2):
        bell.rang.clear()
        bell.alarm.set(0)
        await asyncio.wait_for(bell.rang.wait(), 30)
        assert bell.rings == rings


async def test_it_does_not_ring_once_cancelled_but_can_be_set_again() -> None:
    bell, later = Bell(), Bell()
    bell.alarm.set(0)
    bell.alarm.cancel()
    later.alarm.set(0.01)
    await asyncio.wait_for(later.rang.wait(), 30)
    assert bell.rings == 0
    bell.alarm.set(0)
    await asyncio.wait_for(bell.rang.wait(), 30)
    assert bell.rings == 1
