"""Words for what was done behind a queue whose topology had been in place.

What was missing was somebody's mistake and is a repair. What was too much may as well be the rest
of a ladder that had to wait until it was empty.
"""

from collections.abc import Container, Iterable
from typing import Final

from namedqueue.topology import Names
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
from namedqueue_operator.inventory import Body, key_of

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
    """Tell in one sentence what was done; nothing at all is the empty one.

    A binding that came back only because one of its ends did is left out.
    """
    actions = tuple(done)
    anew = {_made_anew(action) for action in actions}
    parts = [*(_past(action) for action in actions if not _follows(action, anew)), *more]
    shown = "; ".join(parts[:_MOST])
    return f"{shown}; and {len(parts) - _MOST} more" if len(parts) > _MOST else shown


def orphans(body: Body) -> str:
    """Name what may be left on a queue's broker, as far as the status knew it."""
    status = body.get("status") or {}
    known = status.get("topology") or {}
    names = Names(*key_of(body))
    queues = ", ".join(known.get("queues") or [f"{names.prefix}.*"])
    return (
        f"left behind on {status.get('broker') or 'the broker'} in vhost "
        f"{known.get('vhost') or names.vhost}, if they were ever made: queues {queues}, exchanges "
        f"of the same names, and users {names.consumer} and {names.producer}; delete them by hand"
    )


def _made_anew(action: Action) -> str | None:
    match action:
        case DeclareExchange(made) | DeclareQueue(made):
            return made.name
        case _:
            return None


def _follows(action: Action, anew: Container[str | None]) -> bool:
    ends = (action.binding.source, action.binding.destination) if isinstance(action, Bind) else ()
    return any(end in anew for end in ends)


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
