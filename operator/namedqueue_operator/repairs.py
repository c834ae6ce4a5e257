"""Words for what was done behind a queue whose topology had been in place.

What was missing was somebody's mistake and is a repair. What was too much may as well be the rest
of a ladder that had to wait until it was empty.
"""

from collections.abc import Iterable
from typing import Final

from namedqueue.topology.actions import (
    Action,
    Bind,
    CreateUser,
    CreateVhost,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeletePolicy,
    DeleteQueue,
    DeleteUser,
    SetPermission,
    SetPolicy,
    Unbind,
)

_MOST: Final = 6


def sorted_out(done: Iterable[Action]) -> tuple[list[Action], list[Action]]:
    """Part what was put back from what was taken away."""
    missed: list[Action] = []
    surplus: list[Action] = []
    for action in done:
        taken = isinstance(
            action, Unbind | DeleteQueue | DeleteExchange | DeletePolicy | DeleteUser
        )
        (surplus if taken else missed).append(action)
    return missed, surplus


def sentence(done: Iterable[Action], *more: str) -> str:
    """Tell in one sentence what was done; nothing at all is the empty one."""
    parts = [*(_past(action) for action in done), *more]
    shown = "; ".join(parts[:_MOST])
    return f"{shown}; and {len(parts) - _MOST} more" if len(parts) > _MOST else shown


def _past(action: Action) -> str:  # noqa: PLR0911  # one case a kind of object
    match action:
        case CreateVhost(vhost):
            return f"recreated vhost {vhost.name}"
        case DeclareExchange(exchange):
            return f"recreated exchange {exchange.name}"
        case DeclareQueue(queue):
            return f"recreated queue {queue.name}"
        case Bind(binding):
            return f"bound {binding.source} to {binding.destination} again"
        case SetPolicy(policy):
            return f"set policy {policy.name} back"
        case CreateUser(user):
            return f"recreated user {user.name}"
        case SetPermission(permission):
            return f"set the permissions of {permission.user} back"
        case _:
            return str(action)
