"""Carrying a plan out on a broker: step by step, in order, and no further than is safe.

A step that is refused ends the work with a sentence; the next comparison finds what is left. A step
that has to wait for jobs to go ends it too, without being an error.

Whether a queue is empty is asked twice. A quorum queue tells its length every five seconds only, so
an answer of zero may be older than the last job. Therefore a queue counts as empty when it was seen
empty some seconds ago, after everything that leads to it was cut off, and is still.

What nobody can have used yet is made by one call rather than forty: it has no user to send with, so
the order among its objects is of no consequence. Topics lead to it only after that.

A new quorum queue can be trusted a second later. RabbitMQ writes down where the queue's log lies
half a second after it was declared, and killed before that it forgets what it has confirmed.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from namedqueue.topology.actions import (
    Action,
    Bind,
    Conflict,
    CreateUser,
    CreateVhost,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    RequireEmpty,
    SetPermission,
    SetPolicy,
)
from namedqueue.topology.management import definitions, request
from namedqueue.topology.model import Permission, Role
from namedqueue.topology.names import is_shared
from namedqueue_operator.management import Management
from namedqueue_operator.observing import EVERYTHING
from namedqueue_operator.troubles import TopologyTrouble

SETTLED_SECONDS: Final = 6.0
_ON_DISK_SECONDS: Final = 1.0
_ONE_STROKE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Held:
    """Why the work stopped before its end: jobs are left, or it is too early to say."""

    jobs: Mapping[str, int] = field(default_factory=dict)
    queue: str = ""

    @property
    def left(self) -> int:
        """How many jobs are in the way."""
        return sum(self.jobs.values())

    def __str__(self) -> str:
        if not self.left:
            return f"making sure that no job is left in {self.queue}"
        where = ", ".join(f"{count} in {name}" for name, count in self.jobs.items() if count)
        jobs = "1 job is" if self.left == 1 else f"{self.left} jobs are"
        return f"{jobs} left: {where}"


@dataclass(frozen=True)
class Applied:
    """What was done, what holds the rest up, and when the last new queue is on disk."""

    done: tuple[Action, ...] = ()
    held: Held | None = None
    on_disk: float = 0.0

    async def lasting(self) -> None:
        """Wait until a crash of the broker can no longer cost what was declared."""
        await asyncio.sleep(max(0.0, self.on_disk - time.monotonic()))


@dataclass
class Emptiness:
    """Since when each queue of a broker has been seen empty."""

    now: Callable[[], float] = time.monotonic
    _since: dict[tuple[str, str], float] = field(default_factory=dict)

    def settled(self, vhost: str, queue: str, jobs: int) -> bool:
        """Note a length; tell whether the queue can be trusted to be empty."""
        if jobs:
            self.forget(vhost, queue)
            return False
        return self.now() - self._since.setdefault((vhost, queue), self.now()) >= SETTLED_SECONDS

    def forget(self, vhost: str, queue: str) -> None:
        """Start anew: jobs may have come in."""
        self._since.pop((vhost, queue), None)


def entering(plan: Sequence[Action], username: str, admitted: bool) -> tuple[Action, ...]:
    """Return the plan with the step that lets ourselves into the vhost, where that is needed.

    Whoever makes a vhost is not let into it by that, and may declare nothing there.
    """
    if admitted or not plan or any(isinstance(action, Conflict) for action in plan):
        return tuple(plan)
    first = 1 if isinstance(plan[0], CreateVhost) else 0
    everything = dict.fromkeys(("configure", "write", "read"), EVERYTHING)
    step = SetPermission(Permission(user=username, **everything))
    return (*plan[:first], step, *plan[first:])


async def apply(
    plan: Sequence[Action],
    management: Management,
    vhost: str,
    *,
    emptiness: Emptiness,
    passwords: Mapping[str, str],
) -> Applied:
    """Carry out a plan, or as much of it as is safe; raise `Trouble` at what is refused."""
    conflicts = [str(action) for action in plan if isinstance(action, Conflict)]
    if conflicts:
        raise TopologyTrouble("Conflict", "; ".join(conflicts))
    done, left = await _at_one_stroke(plan, management, vhost)
    on_disk = 0.0
    for action in done:
        _forget(emptiness, vhost, action)
        on_disk = _on_disk(action, on_disk)
    for action in left:
        held = await _questions(action, management, vhost, emptiness)
        if held is not None:
            return Applied(tuple(done), held, on_disk)
        await _perform(action, management, vhost, passwords)
        _forget(emptiness, vhost, action)
        on_disk = _on_disk(action, on_disk)
        done.append(action)
    return Applied(tuple(done), on_disk=on_disk)


def parted(plan: Sequence[Action]) -> tuple[list[Action], list[Action], list[Action]]:
    """Part a plan into what comes first, what one call can make, and what follows.

    One call makes what nobody can have sent to: where the plan makes the producer as well.
    """
    anew = any(isinstance(each, CreateUser) and each.user.role is Role.PRODUCER for each in plan)
    first, together, then = [], [], []
    for action in plan:
        if anew and _is_inner(action):
            together.append(action)
        elif together:
            then.append(action)
        else:
            first.append(action)
    return first, together, then


def _is_inner(action: Action) -> bool:
    """Tell whether an action makes a part of a queue, and no entrance from a shared exchange."""
    if isinstance(action, Bind):
        return not is_shared(action.binding.source)
    return isinstance(action, SetPolicy | DeclareQueue | DeclareExchange)


async def _at_one_stroke(
    plan: Sequence[Action], management: Management, vhost: str
) -> tuple[list[Action], Sequence[Action]]:
    """Make what one call can make; return what was done, and what is left to do step by step.

    A broker that refuses it gets the steps one by one, and says which of them it refuses.
    """
    first, together, then = parted(plan)
    if not together:
        return [], plan
    try:
        for action in first:
            await _perform(action, management, vhost, {})
        await management.send(definitions(together, vhost), within=_ONE_STROKE_SECONDS)
    except TopologyTrouble:
        return [], plan
    return [*first, *together], then


def _forget(emptiness: Emptiness, vhost: str, action: Action) -> None:
    """Forget what was seen of a queue that is another one now, or that jobs are led to again."""
    match action:
        case DeclareQueue(queue) | DeleteQueue(queue):
            emptiness.forget(vhost, queue.name)
        case Bind(binding):
            emptiness.forget(vhost, binding.destination)


def _on_disk(action: Action, before: float) -> float:
    """Return when all that was declared so far, and just now this, will be on disk."""
    quorum = isinstance(action, DeclareQueue) and (
        action.queue.arguments.get("x-queue-type") == "quorum"
    )
    return time.monotonic() + _ON_DISK_SECONDS if quorum else before


async def _questions(
    action: Action, management: Management, vhost: str, emptiness: Emptiness
) -> Held | None:
    match action:
        case RequireEmpty(queues):
            return await _unless_empty(queues, management, vhost, emptiness)
        case DeleteQueue(queue, if_empty=True):
            return await _unless_empty((queue.name,), management, vhost, emptiness)
        case _:
            return None


async def _unless_empty(
    names: Sequence[str], management: Management, vhost: str, emptiness: Emptiness
) -> Held | None:
    listed = await management.listed("queues", vhost) or ()
    # A queue that does not say how long it is (its leader is away) holds an unknown number.
    lengths = {it["name"]: it.get("messages") for it in listed if it["name"] in names}
    silent = next((name for name, length in lengths.items() if length is None), None)
    if silent is not None:
        raise TopologyTrouble(
            "Unavailable", f"queue {silent} does not say how many jobs it holds; wait for its node"
        )
    jobs = {name: int(length or 0) for name, length in lengths.items()}
    unsettled = [name for name in jobs if not emptiness.settled(vhost, name, jobs[name])]
    return Held(jobs, ", ".join(unsettled)) if unsettled else None


async def _perform(
    action: Action, management: Management, vhost: str, passwords: Mapping[str, str]
) -> None:
    user = getattr(action, "user", None)
    call = request(action, vhost, password=passwords.get(user.name, "") if user else "")
    if call is not None:
        await management.send(call)
