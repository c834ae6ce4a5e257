"""The `QueueRedrive` resource: send dead letters back to their queue, once."""

from typing import Annotated, Literal

from pydantic import Field

from namedqueue.api.fields import DnsLabel, ErrorCode, JobId
from namedqueue.api.metadata import ObjectMeta, name_rule
from namedqueue.api.rules import ChangeRule, Model, Unique
from namedqueue.api.status import QueueRedriveStatus


class QueueRedriveSpec(Model):
    """Which dead letters go back, and how. Immutable: another redrive is another object."""

    queue: DnsLabel
    """The NamedQueue, in the same namespace."""

    limit: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """At most this many jobs."""

    reason: ErrorCode | None = None
    """Only dead letters with this terminal reason."""

    ids: Annotated[tuple[JobId, ...], Unique()] = Field(default=(), max_length=1000)
    """Only these jobs."""

    rate_per_second: Annotated[float, Field(gt=0, le=100_000)] | None = None
    """At most this many jobs a second."""

    dry_run: bool = False
    """Count what would be redriven and leave it where it is."""

    wait_for_rollout: bool = False
    """Begin when the worker Deployment has rolled out."""

    abort_after_failures: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Stop when this many redriven jobs came straight back."""

    change_rules = (
        ChangeRule(
            cel="self == oldSelf",
            # To CEL `ids` is a set: another order is no change.
            holds=lambda new, old: (
                set(new.ids) == set(old.ids) and new == old.model_copy(update={"ids": new.ids})
            ),
            says="{at} cannot change; make another QueueRedrive",
        ),
    )


class QueueRedrive(Model):
    """Sends dead letters back to their queue: resumable, each job once."""

    api_version: Literal["namedqueue.io/v1alpha1"] = "namedqueue.io/v1alpha1"
    kind: Literal["QueueRedrive"] = "QueueRedrive"
    metadata: ObjectMeta
    spec: QueueRedriveSpec
    status: QueueRedriveStatus | None = None

    rules = (name_rule(52),)
