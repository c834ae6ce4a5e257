"""The worker side of a `NamedQueue`: the app that is called, and how many replicas it gets."""

from typing import Annotated

from pydantic import Field

from namedqueue.api.durations import Duration
from namedqueue.api.fields import HealthPath, HttpPath, ObjectName, Opaque, StepSize, TopicPattern
from namedqueue.api.rules import Between, Model, Rule

DEFAULT_MESSAGES_PER_REPLICA = 20


class Route(Model):
    """Another path for some topics."""

    topic: TopicPattern
    """A pattern as in `subscriptions`."""

    path: HttpPath
    """Where matching jobs are posted."""


class RateLimit(Model):
    """The most jobs that start in a span of time, across all replicas."""

    requests: int = Field(ge=1, le=10**9)
    """How many."""

    per: Annotated[Duration, Between("100ms", "24h")] = Duration.parse("1s")
    """In how long."""


class Batch(Model):
    """Several jobs in one POST."""

    max_messages: int = Field(default=100, ge=1, le=1000)
    """The most jobs in one."""

    max_wait: Annotated[Duration, Between("0ms", "60s")] = Duration.parse("50ms")
    """How long the first job waits for company."""


class DeploymentRef(Model):
    """A Deployment in the queue's own namespace."""

    name: ObjectName
    """The Deployment's name."""


class Worker(Model):
    """The app that does the work, and how it is called."""

    deployment_ref: DeploymentRef | None = None
    """An existing Deployment to scale."""

    template: Opaque | None = None
    """A pod template that the operator runs as a Deployment of its own."""

    port: int = Field(ge=1, le=65535)
    """The app's port on loopback."""

    path: HttpPath = "/"
    """Where jobs are posted; `{type}` is the message's type."""

    routes: tuple[Route, ...] = Field(default=(), max_length=64)
    """Other paths by topic; the first match wins, else `path`."""

    health_path: HealthPath | None = None
    """Answers 2xx when the app is ready; without it an open port means ready."""

    timeout: Annotated[Duration, Between("100ms", "24h")] = Duration.parse("30s")
    """The most time for one attempt."""

    concurrency: int = Field(default=10, ge=1, le=1000)
    """Jobs at once in one pod; with `batch`, batches at once."""

    rate_limit: RateLimit | None = None
    """The most jobs per time across all replicas."""

    batch: Batch | None = None
    """Several jobs in one POST."""

    rules = (
        Rule(
            cel="!(has(self.deploymentRef) && has(self.template))",
            holds=lambda self: self.deployment_ref is None or self.template is None,
            says="{at}.deploymentRef and {at}.template exclude each other; keep one",
        ),
    )

    @property
    def slots(self) -> int:
        """How many jobs one pod may have in hand: each of its calls takes a whole batch."""
        return self.concurrency * (self.batch.max_messages if self.batch else 1)


class ScaleDown(Model):
    """How fast replicas go."""

    stabilization: Annotated[Duration, Between("0s", "24h")] = Duration.parse("120s")
    """The highest count wanted within this span is kept."""

    max_step: StepSize = "50%"
    """The most replicas removed at once: a count or a percentage."""


class Scaling(Model):
    """How many replicas follow how many jobs."""

    min_replicas: int = Field(default=0, ge=0, le=1000)
    """Never fewer, and never fewer than `spec.replicas`."""

    max_replicas: int = Field(default=20, ge=1, le=1000)
    """Never more."""

    messages_per_replica: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Jobs ready or in flight for each replica; 20 unless `drainTime` is given."""

    drain_time: Annotated[Duration, Between("1s", "24h")] | None = None
    """The backlog shall be gone in this time, by measured rates."""

    poll_interval: Annotated[Duration, Between("1s", "5m")] = Duration.parse("5s")
    """How often the depth is read."""

    cooldown: Annotated[Duration, Between("0s", "24h")] = Duration.parse("300s")
    """How long nothing may be left to do before the last replica goes."""

    scale_down: ScaleDown = ScaleDown()
    """How fast replicas go."""

    rules = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda self: self.min_replicas <= self.max_replicas,
            says="{at}.minReplicas ({self.minReplicas}) is above {at}.maxReplicas "
            "({self.maxReplicas}); raise maxReplicas or lower minReplicas",
        ),
        Rule(
            cel="!(has(self.messagesPerReplica) && has(self.drainTime))",
            holds=lambda self: self.messages_per_replica is None or self.drain_time is None,
            says="{at}.messagesPerReplica and {at}.drainTime exclude each other; keep one",
        ),
    )
