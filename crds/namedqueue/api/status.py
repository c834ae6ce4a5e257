"""What the operator reports about a resource: conditions, depths, counts."""

from typing import Annotated, Literal

from pydantic import Field

from namedqueue.api.rules import Model, Unique


class Condition(Model):
    """One answer to one question, in the form every Kubernetes tool understands."""

    type: str = Field(max_length=64)
    """The question, such as `Ready` or `BrokerReachable`."""

    status: Literal["True", "False", "Unknown"]
    """The answer."""

    reason: str = Field(max_length=128)
    """One word for programs."""

    message: str = Field(default="", max_length=4096)
    """A sentence for people: what is wrong and what to do."""

    last_transition_time: str = Field(max_length=40)
    """When the answer last changed."""

    observed_generation: int = 0
    """The spec's generation that the answer is about."""


class Depth(Model):
    """How many jobs are where."""

    ready: int = 0
    """Waiting for a worker."""

    in_flight: int = 0
    """Being worked on."""

    waiting: int = 0
    """On the delay ladder, before their next attempt."""

    dead: int = 0
    """Dead letters."""


class TopologyStatus(Model):
    """The broker's objects behind the queue."""

    vhost: str = ""
    exchanges: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


class NamedQueueStatus(Model):
    """What the queue is right now."""

    observed_generation: int = 0
    """The spec's generation that this status is about."""

    conditions: Annotated[tuple[Condition, ...], Unique("type")] = ()
    """`Ready`, `TopologyReady`, `StoreBound`, `WorkersReady`, `ScalingActive`, `BrokerReachable`"""

    replicas: int = 0
    """Worker replicas that exist."""

    selector: str = ""
    """Selects the worker pods, for the scale subresource."""

    depth: Depth = Depth()
    """How many jobs are where."""

    broker: str = ""
    """The broker that holds the queue, without credentials."""

    topology: TopologyStatus = TopologyStatus()
    """The broker's objects behind the queue."""


class QueueRedriveStatus(Model):
    """How far the redrive is."""

    observed_generation: int = 0
    """The spec's generation that this status is about."""

    phase: Literal["Pending", "Waiting", "Running", "Succeeded", "Failed"] = "Pending"
    """Where it stands."""

    matched: int = 0
    """Dead letters that the redrive covers."""

    redriven: int = 0
    """Jobs that are back in the main queue."""

    remaining: int = 0
    """Jobs still to go."""

    conditions: Annotated[tuple[Condition, ...], Unique("type")] = ()
    """`Complete`, `Progressing`, `Aborted`."""
