"""Which acknowledgements can be said in one.

A broker numbers the deliveries of a channel 1, 2, 3, … and takes «everything up to n». That may be
said only if everything up to n is done: the low-water mark is the last number below which nothing
is still in our hands, and a single unfinished job holds it back.
"""

from typing import NamedTuple


class Ack(NamedTuple):
    """An acknowledgement of one delivery, or of all up to it that are not settled yet."""

    tag: int
    multiple: bool


class LowWater:
    """The deliveries of one channel: which are in our hands, which are done but not yet said."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._done: list[int] = []
        self._mark = 0
        self._last = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, tag: int) -> bool:
        return tag in self._held

    def delivered(self, tag: int) -> None:
        """Take a delivery into our hands; tags come in order."""
        self._held.add(tag)
        self._last = tag

    def done(self, tag: int) -> bool:
        """Note that a delivery is to be acknowledged; False if it is not in our hands."""
        if tag not in self._held:
            return False
        self._held.remove(tag)
        self._done.append(tag)
        return True

    def returned(self, tag: int) -> bool:
        """Note that a delivery goes back to the queue; False if it is not in our hands."""
        if tag not in self._held:
            return False
        self._held.remove(tag)
        return True

    def take(self) -> list[Ack]:
        """Return what to say now, so that just the deliveries that are done are acknowledged.

        Returns have to reach the broker first: a mark may pass over a delivery that went back.
        """
        if not self._done:
            return []
        while self._mark < self._last and self._mark + 1 not in self._held:
            self._mark += 1
        covered = [tag for tag in self._done if tag <= self._mark]
        single = [Ack(tag, multiple=False) for tag in self._done if tag > self._mark]
        self._done.clear()
        if not covered:
            return single
        return [Ack(max(covered), multiple=len(covered) > 1), *single]
