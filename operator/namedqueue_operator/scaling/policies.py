"""What a manifest says about scaling, in the numbers that a decision needs."""

from dataclasses import dataclass

from namedqueue.api.namedqueue import NamedQueueSpec
from namedqueue.api.workers import DEFAULT_MESSAGES_PER_REPLICA


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How replicas follow jobs; spans are in seconds.

    Exactly one of `per_replica` and `drain_time` is given. `partitions` is how many replicas of a
    FIFO queue can have work at all. A `constant` policy is that of a stream, which has no backlog.
    """

    minimum: int = 0
    maximum: int = 20
    per_replica: int | None = DEFAULT_MESSAGES_PER_REPLICA
    drain_time: float | None = None
    cooldown: float = 300.0
    stabilization: float = 120.0
    max_step: int | str = "50%"
    partitions: int | None = None
    constant: bool = False

    @property
    def most(self) -> int:
        """The most replicas that are allowed and of use."""
        if self.partitions is None:
            return self.maximum
        return max(self.minimum, min(self.maximum, self.partitions))

    def step(self, replicas: int) -> int:
        """Return how many of these replicas may go at once: at least one."""
        text = str(self.max_step)
        if text.endswith("%"):
            return max(1, replicas * int(text[:-1]) // 100)
        return int(text)


def policy_of(spec: NamedQueueSpec) -> Policy | None:
    """Return a queue's policy, or None where nothing is to be scaled."""
    scaling = spec.scaling
    if scaling is None:
        return None
    drain_time = scaling.drain_time
    per_replica = scaling.messages_per_replica or DEFAULT_MESSAGES_PER_REPLICA
    fifo = spec.durable_or_default.fifo
    return Policy(
        minimum=spec.least_replicas,
        maximum=scaling.max_replicas,
        per_replica=None if drain_time else per_replica,
        drain_time=drain_time.seconds if drain_time else None,
        cooldown=scaling.cooldown.seconds,
        stabilization=scaling.scale_down.stabilization.seconds,
        max_step=scaling.scale_down.max_step,
        partitions=fifo.partitions if fifo else None,
        constant=spec.type == "stream",
    )
