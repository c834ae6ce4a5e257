"""What to do to a broker so that it has what a NamedQueue asks for.

The order is the point: after any number of the steps, no confirmed job can have been lost or sent
astray.

- What is missing is added upward, that is against the flow of jobs: a queue comes after the
  exchange that it dead-letters to, and after everything that exchange leads to. Entrances come
  last: topics, then users.
- What is too much is removed downward, in exactly the opposite order, and only after everything was
  added. A queue is cut off before it is deleted, and deleted only when empty.
- When the queue itself goes, its entrances are closed first, then nothing more happens until no job
  is left at any stage: a job in the main queue may still need the ladder and the dead letters.
- What can never change yields conflicts and nothing else.

What a vhost's queues share (the vhost, `nq.topics`, `nq.transit`) is made by whoever comes first
and is never removed here.
"""

from collections.abc import Iterable, Iterator

from namedqueue.topology.actions import (
    Action,
    Bind,
    Conflict,
    CreateUser,
    CreateVhost,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeletePolicy,
    DeleteQueue,
    DeleteUser,
    RequireEmpty,
    SetPermission,
    SetPolicy,
    Unbind,
)
from namedqueue.topology.conflicts import conflicts
from namedqueue.topology.model import (
    Binding,
    Exchange,
    Policy,
    Queue,
    Role,
    Topology,
    User,
)
from namedqueue.topology.names import holds_jobs, is_shared
from namedqueue.topology.order import Routed, upward


def diff(observed: Topology, desired: Topology) -> tuple[Action, ...]:
    """Return the steps from what a broker has to what it shall have, safe one by one.

    `NOTHING` as the first is a creation, as the second a deletion.
    """
    found: tuple[Conflict, ...] = tuple(conflicts(observed, desired))
    return found or (*_additions(observed, desired), *_removals(observed, desired))


def _additions(observed: Topology, desired: Topology) -> Iterator[Action]:
    if desired.vhost is not None and desired.vhost.managed and observed.vhost is None:
        yield CreateVhost(desired.vhost)
    there = {*upward(observed)}
    yield from (_added(thing) for thing in upward(desired) if thing not in there)
    yield from (CreateUser(user) for user in desired.users if user not in observed.users)
    yield from (
        SetPermission(permission)
        for permission in desired.permissions
        if permission not in observed.permissions
    )


def _removals(observed: Topology, desired: Topology) -> Iterator[Action]:
    kept = {(type(thing), thing.name) for thing in upward(desired)}
    gone = [
        thing
        for thing in reversed(tuple(upward(observed)))
        if (type(thing), thing.name) not in kept and not _outlives(thing, desired)
    ]
    users = [user for user in observed.users if user not in desired.users]
    entrances = [thing for thing in gone if _is_entrance(thing)]
    yield from _deleted_users(users, Role.PRODUCER)
    yield from (_removed(thing) for thing in entrances)
    yield from _wait_for_jobs(thing for thing in gone if isinstance(thing, Queue))
    yield from _deleted_users(users, Role.CONSUMER)
    yield from (_removed(thing) for thing in gone if thing not in entrances)


def _outlives(thing: Routed, desired: Topology) -> bool:
    """Tell whether something is the vhost's rather than the queue's.

    A bridge between shared exchanges goes only when a living queue says that it shall not be
    there; a queue that goes says nothing about it.
    """
    if isinstance(thing, Exchange | Policy):
        return is_shared(thing.name)
    return isinstance(thing, Binding) and is_shared(thing.destination) and desired.vhost is None


def _is_entrance(thing: Routed) -> bool:
    return isinstance(thing, Binding) and is_shared(thing.source)


def _wait_for_jobs(gone: Iterable[Queue]) -> Iterator[Action]:
    """Ask for all queues at once, for jobs travel between them. Levels drain by themselves."""
    queues = tuple(queue for queue in gone if holds_jobs(queue.name))
    if not all(queue.drains_itself for queue in queues):
        yield RequireEmpty(tuple(queue.name for queue in queues))


def _deleted_users(users: Iterable[User], role: Role) -> Iterator[Action]:
    return (DeleteUser(user) for user in users if user.role is role)


def _added(thing: Routed) -> Action:
    match thing:
        case Exchange():
            return DeclareExchange(thing)
        case Queue():
            return DeclareQueue(thing)
        case Binding():
            return Bind(thing)
        case Policy():
            return SetPolicy(thing)


def _removed(thing: Routed) -> Action:
    match thing:
        case Exchange():
            return DeleteExchange(thing)
        case Queue():
            return DeleteQueue(thing, if_empty=holds_jobs(thing.name))
        case Binding():
            return Unbind(thing)
        case Policy():
            return DeletePolicy(thing)
