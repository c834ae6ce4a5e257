"""Which job is next, which is due, which has waited too long. Pure: time is an argument.

Jobs are delivered in the order in which they became ready, higher priorities first. Each priority
has a heap of its own, so the head of a heap is the job that has waited longest: the next to be
delivered and also the next to expire. A job that is handed back returns to its old place.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import takewhile
from typing import TypeAlias

from namedqueue_sidecar.brokers.builtin.storage import Placed

_Heap: TypeAlias = list[tuple[int, int, Placed]]


class MainIndex:
    """The jobs of a main stage that are ready or wait for their time; not those in flight."""

    def __init__(self, max_priority: int) -> None:
        self._max_priority = max_priority
        self._waiting: _Heap = []
        self._heaps: dict[int, _Heap] = {0: []}
        self._priorities = [0]
        self.ready = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, placed: Placed, now: int) -> None:
        """Take a job in: one that arrived, or one that was handed back."""
        if placed.at > now:
            heappush(self._waiting, (placed.at, placed.seq, placed))
            return
        priority = min(placed.priority, self._max_priority)
        heap = self._heaps.get(priority)
        if heap is None:
            heap = self._heaps[priority] = []
            insort(self._priorities, priority, key=int.__neg__)
        heappush(heap, (placed.at, placed.seq, placed))
        self.ready += 1

    def promote(self, now: int) -> None:
        """Make ready what is due."""
        while self._waiting and self._waiting[0][0] <= now:
            self.add(heappop(self._waiting)[2], now)

    def take(self, most: int) -> list[Placed]:
        """Remove and return the next jobs."""
        taken: list[Placed] = []
        for priority in self._priorities:
            heap = self._heaps[priority]
            while heap and len(taken) < most:
                taken.append(heappop(heap)[2])
        self.ready -= len(taken)
        return taken

    def take_older(self, moment: int) -> list[Placed]:
        """Remove and return the jobs that became ready at that moment or before, oldest first."""
        taken: _Heap = []
        for heap in self._heaps.values():
            while heap and heap[0][0] <= moment:
                taken.append(heappop(heap))
        self.ready -= len(taken)
        return [placed for _, _, placed in sorted(taken)]

    @property
    def next_due(self) -> int | None:
        return self._waiting[0][0] if self._waiting else None

    @property
    def oldest_ready(self) -> int | None:
        return min((heap[0][0] for heap in self._heaps.values() if heap), default=None)

    def __iter__(self) -> Iterator[Placed]:
        yield from (placed for _, _, placed in self._waiting)
        for heap in self._heaps.values():
            yield from (placed for _, _, placed in heap)


class DeadIndex:
    """Dead letters in order of arrival."""

    def __init__(self) -> None:
        self._order: list[int] = []
        self._placed: dict[int, Placed] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, placed: Placed) -> None:
        """Take a dead letter in."""
        insort(self._order, placed.seq)
        self._placed[placed.seq] = placed

    def page(self, after: int, limit: int) -> list[Placed]:
        """Return the letters that follow `after`, which need not exist any more."""
        start = bisect_right(self._order, after)
        return [self._placed[seq] for seq in self._order[start : start + limit]]

    def with_ids(self, job_ids: Iterable[str]) -> list[Placed]:
        """Return the letters of these jobs."""
        wanted = frozenset(job_ids)
        return [placed for placed in self._placed.values() if placed.job_id in wanted]

    def __contains__(self, placed: Placed) -> bool:
        return placed.seq in self._placed

    def remove(self, letters: Sequence[Placed]) -> None:
        """Take letters out."""
        gone = {placed.seq for placed in letters}
        self._order = [seq for seq in self._order if seq not in gone]
        for seq in gone:
            self._placed.pop(seq, None)

    def older(self, moment: int) -> list[Placed]:
        """Return the letters that arrived at that moment or before."""
        in_order = (self._placed[seq] for seq in self._order)
        return list(takewhile(lambda placed: placed.at <= moment, in_order))

    @property
    def oldest(self) -> int | None:
        return self._placed[self._order[0]].at if self._order else None

    @property
    def last_seq(self) -> int:
        return self._order[-1] if self._order else 0
