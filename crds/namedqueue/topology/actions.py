"""The steps that change a broker, as values.

Whoever applies them does so in order and stops at the first that is refused; what is left is found
again by the next comparison. Every action can be repeated without harm.

Two of them ask before they act. `RequireEmpty` changes nothing and is refused while any of its
queues holds a job, ready, unacked or on its way to a dead-letter exchange. `DeleteQueue` with
`if_empty` is refused while its queue does. RabbitMQ's own `if-empty` flag exists for classic queues
and streams only, so for quorum queues the applier reads the count first. That is safe, because by
then nothing leads to the queue any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from namedqueue.topology.model import Binding, Exchange, Permission, Policy, Queue, User, Vhost


@dataclass(frozen=True)
class Conflict:
    """A difference that no action can mend without losing jobs; it takes a person.

    A comparison that finds one plans nothing else.
    """

    what: str
    difference: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {self.difference}; {self.remedy}"


@dataclass(frozen=True)
class CreateVhost:
    vhost: Vhost

    def __str__(self) -> str:
        return f"create vhost {self.vhost.name}"


@dataclass(frozen=True)
class DeclareExchange:
    exchange: Exchange

    def __str__(self) -> str:
        return f"declare exchange {self.exchange.name} ({self.exchange.type})"


@dataclass(frozen=True)
class DeclareQueue:
    queue: Queue

    def __str__(self) -> str:
        kind = self.queue.arguments.get("x-queue-type", "classic")
        return f"declare queue {self.queue.name} ({kind})"


@dataclass(frozen=True)
class Bind:
    binding: Binding

    def __str__(self) -> str:
        return f"bind {_arrow(self.binding)}"


@dataclass(frozen=True)
class SetPolicy:
    policy: Policy

    def __str__(self) -> str:
        return f"set policy {self.policy.name}"


@dataclass(frozen=True)
class CreateUser:
    user: User

    def __str__(self) -> str:
        return f"create user {self.user.name}"


@dataclass(frozen=True)
class SetPermission:
    permission: Permission

    def __str__(self) -> str:
        return f"set the permissions of {self.permission.user}"


@dataclass(frozen=True)
class RequireEmpty:
    queues: tuple[str, ...]

    def __str__(self) -> str:
        return f"go on only when no job is left in {', '.join(self.queues)}"


@dataclass(frozen=True)
class Unbind:
    binding: Binding

    def __str__(self) -> str:
        return f"unbind {_arrow(self.binding)}"


@dataclass(frozen=True)
class DeleteQueue:
    queue: Queue
    if_empty: bool = True

    def __str__(self) -> str:
        return f"delete queue {self.queue.name}{' when empty' if self.if_empty else ''}"


@dataclass(frozen=True)
class DeleteExchange:
    exchange: Exchange

    def __str__(self) -> str:
        return f"delete exchange {self.exchange.name}"


@dataclass(frozen=True)
class DeletePolicy:
    policy: Policy

    def __str__(self) -> str:
        return f"delete policy {self.policy.name}"


@dataclass(frozen=True)
class DeleteUser:
    user: User

    def __str__(self) -> str:
        return f"delete user {self.user.name}"


Action: TypeAlias = (
    Conflict
    | CreateVhost
    | DeclareExchange
    | DeclareQueue
    | Bind
    | SetPolicy
    | CreateUser
    | SetPermission
    | RequireEmpty
    | Unbind
    | DeleteQueue
    | DeleteExchange
    | DeletePolicy
    | DeleteUser
)


def discarding_jobs(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Return the same steps without their questions, for someone who said that jobs may go."""
    return tuple(
        replace(action, if_empty=False) if isinstance(action, DeleteQueue) else action
        for action in actions
        if not isinstance(action, RequireEmpty)
    )


def _arrow(binding: Binding) -> str:
    key = f" [{binding.routing_key}]" if binding.routing_key else ""
    return f"{binding.source} -> {binding.to} {binding.destination}{key}"
