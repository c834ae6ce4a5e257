"""What decides in the simulated world: our own decision function, and KEDA with the HPA.

KEDA as its documentation has it. Its operator polls a trigger every `pollingInterval` and does only
two things: from zero to one as soon as the trigger is active, and to zero once it has been inactive
for `cooldownPeriod`. From one on the HPA decides: every 15 s it asks KEDA for the length of the
queue, ready and unacknowledged alike, and wants length / target, within a tolerance of a tenth. It
at most doubles the pods or adds four in 15 s, whichever is more, and removes none that it wanted
within the stabilization window.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from namedqueue_operator.scaling import Policy, Sample, Window, decide
from simulator.worlds import World

MOST: Final = 20
_SYNC_SECONDS: Final = 15.0
_TOLERANCE: Final = 0.1


@dataclass
class NamedQueue:
    """The operator's decisions with the defaults of a manifest."""

    name: str = "NamedQueue"
    poll: float = 5.0
    spares_busy_pods: bool = True

    def begin(self, world: World) -> None:
        """Poll, decide and obey."""
        policy = Policy(per_replica=world.trace.per_replica, maximum=MOST)
        window = Window.opened(0, world.now)

        def poll() -> None:
            nonlocal window
            sample = Sample(
                at=world.now,
                ready=world.seen.ready,
                in_flight=world.seen.in_flight,
                waiting=world.seen.waiting,
                acked=world.seen.acked,
                replicas=world.ready_pods,
            )
            window = window.seen(sample, world.asked)
            decision = decide(window, policy, world.now)
            window = window.felt(decision.needed, world.now)
            world.scale(decision.replicas)

        world.every(self.poll, poll)


@dataclass
class Keda:
    """KEDA's RabbitMQ scaler in mode QueueLength over HTTP, and the HPA that it makes."""

    name: str = "KEDA, its defaults"
    poll: float = 30.0
    cooldown: float = 300.0
    stabilization: float = 300.0
    spares_busy_pods: bool = False
    _active: float = field(default=0.0, init=False)
    _recommended: list[tuple[float, int]] = field(default_factory=list, init=False)
    _added: list[tuple[float, int]] = field(default_factory=list, init=False)

    def begin(self, world: World) -> None:
        """Poll for zero, and synchronize the HPA for all else."""
        world.every(self.poll, lambda: self._activate(world))
        world.every(_SYNC_SECONDS, lambda: self._synchronize(world))

    def _activate(self, world: World) -> None:
        if world.seen.ready + world.seen.in_flight > 0:
            self._active = world.now
            if not world.asked:
                world.scale(1)
        elif world.asked and world.now - self._active >= self.cooldown:
            world.scale(0)

    def _synchronize(self, world: World) -> None:
        current = world.asked
        if not current:
            return  # an HPA whose target is at zero does nothing
        wanted = min(max(self._metric(world, current), 1), MOST)
        wanted = self._stabilized(world.now, wanted, current)
        if wanted > current:
            wanted = min(wanted, self._up_to(world.now, current))
            self._added.append((world.now, wanted - current))
        world.scale(wanted)

    def _metric(self, world: World, current: int) -> int:
        length, target = world.seen.ready + world.seen.in_flight, world.trace.per_replica
        if abs(length / (target * current) - 1) <= _TOLERANCE:
            return current
        return ceil(length / target)

    def _stabilized(self, now: float, wanted: int, current: int) -> int:
        """Keep what was wanted within the window, but never ask for more because of it."""
        self._recommended = [
            each for each in self._recommended if each[0] > now - self.stabilization
        ]
        self._recommended.append((now, wanted))
        highest = max(count for _, count in self._recommended)
        return wanted if wanted >= current else min(current, highest)

    def _up_to(self, now: float, current: int) -> int:
        self._added = [each for each in self._added if each[0] > now - _SYNC_SECONDS]
        before = current - sum(count for _, count in self._added)
        return max(2 * before, before + 4)


def contestants() -> list[NamedQueue | Keda]:
    """Return everyone, made anew: they remember."""
    return [
        NamedQueue(),
        Keda(),
        Keda("KEDA, pollingInterval 5 s", poll=5.0),
        Keda("KEDA, 5 s and stabilization 120 s", poll=5.0, stabilization=120.0),
    ]
