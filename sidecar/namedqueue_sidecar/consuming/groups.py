"""Which job of a FIFO queue may run next. Pure: no time, no broker, no app.

The jobs of a group stand in line. Only the head of a line runs, and it stays at the head until it
is settled, however often it is tried. A group is idle, or in the round of groups whose head may
start, or busy: its head is with the app, rests between two attempts, or moves on. Groups take
turns, so one that always has work does not keep the others waiting.
"""

from collections import deque
from collections.abc import Iterator

from namedqueue.envelope import Job
from namedqueue_sidecar.brokers.port import Delivery


class Place:
    """A job in line: its delivery, and the job as it is after the attempts made so far."""

    __slots__ = ("delivery", "job")

    def __init__(self, delivery: Delivery, job: Job) -> None:
        self.delivery = delivery
        self.job = job


class Group:
    """A line of jobs."""

    __slots__ = ("busy", "line", "listed", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.line: deque[Place] = deque()
        self.busy = False
        self.listed = False


class Groups:
    """All lines of a queue, as far as its jobs are in our hands."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._round: deque[Group] = deque()

    def __len__(self) -> int:
        return sum(len(group.line) for group in self._groups.values())

    def __iter__(self) -> Iterator[Group]:
        return iter(tuple(self._groups.values()))

    @property
    def any_ready(self) -> bool:
        return bool(self._round)

    def add(self, name: str, place: Place) -> None:
        """Put a job at the end of its line."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name)
        group.line.append(place)
        self._list(group)

    def take(self) -> Group:
        """Return the group whose turn it is, busy from now on."""
        group = self._round.popleft()
        group.listed = False
        group.busy = True
        return group

    def settle(self, group: Group) -> Place:
        """Remove the head of a busy group; the next in line may start."""
        head = group.line.popleft()
        self.free(group)
        return head

    def free(self, group: Group) -> None:
        """Let the head of a busy group start, for the first time or again."""
        group.busy = False
        if group.line:
            self._list(group)
        else:
            self._groups.pop(group.name, None)

    def leave(self) -> list[Place]:
        """Remove and return all jobs but the heads of busy groups."""
        left: list[Place] = []
        for group in self:
            head = group.line.popleft() if group.busy and group.line else None
            left += group.line
            group.line.clear()
            if head is not None:
                group.line.append(head)
            self._forget_idle(group)
        self._round.clear()
        return left

    def void(self) -> list[Place]:
        """Remove and return all jobs; busy groups stay busy until they are freed."""
        gone: list[Place] = []
        for group in self:
            gone += group.line
            group.line.clear()
            self._forget_idle(group)
        self._round.clear()
        return gone

    def _list(self, group: Group) -> None:
        if not group.busy and not group.listed:
            group.listed = True
            self._round.append(group)

    def _forget_idle(self, group: Group) -> None:
        group.listed = False
        if not group.busy:
            del self._groups[group.name]
