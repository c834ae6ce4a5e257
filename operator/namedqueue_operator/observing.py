"""What a broker has: one look at its lists, and from it the topology and depth of any queue.

A look covers the whole broker or one vhost. It is indexed by owner once, so that a look taken for
five hundred queues costs each of them only its own objects.
"""

import asyncio
import base64
import hashlib
import hmac
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from namedqueue.api.status import Depth
from namedqueue.topology import Names, Topology
from namedqueue.topology.management import observe
from namedqueue.topology.model import Vhost
from namedqueue.topology.names import is_shared
from namedqueue_operator.management import Listed, Management

Owner: TypeAlias = tuple[str, str]
"""A vhost, and the first three parts of a name: `nq.<namespace>.<queue>`."""

EVERYTHING: Final = ".*"

_RIGHTS: Final = ("configure", "write", "read")
_PARTS: Final = 3
_SALT: Final = 4
_HASHES: Final = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
}


class Look:
    """A broker's lists at one moment."""

    def __init__(
        self,
        *,
        vhosts: Iterable[str] = (),
        exchanges: Listed = (),
        queues: Listed = (),
        bindings: Listed = (),
        policies: Listed = (),
        users: Listed = (),
        permissions: Listed = (),
    ) -> None:
        self._vhosts = frozenset(vhosts)
        self._exchanges = _by_owner(exchanges)
        self._queues = _by_owner(queues)
        self._policies = _by_owner(policies)
        self._bindings = _bindings_by_owner(bindings)
        self._users = {user["name"]: user for user in users}
        self._permissions = _by_user(permissions)

    def topology(
        self, names: Names, vhost: str, passwords: Mapping[str, str] | None = None
    ) -> Topology:
        """Return what is there for a queue.

        With `passwords`, a user that has another one, or a tag, counts as not there: making it
        anew sets both right.
        """
        users = [self._users[name] for name in _users_of(names) if name in self._users]
        if passwords is not None:
            users = [user for user in users if _intact(user, passwords.get(user["name"], ""))]
        if vhost not in self._vhosts:  # users outlive their vhost
            return replace(observe(names, Vhost(vhost), users=users), vhost=None)
        mine, shared = (vhost, names.prefix), (vhost, "")
        return observe(
            names,
            Vhost(vhost),
            exchanges=[*self._exchanges[mine], *self._exchanges[shared]],
            queues=self._queues[mine],
            bindings=[*self._bindings[mine], *self._bindings[shared]],
            policies=[*self._policies[mine], *self._policies[shared]],
            users=users,
            permissions=[each for name in _users_of(names) for each in self._permissions[name]],
        )

    def admits(self, username: str, vhost: str) -> bool:
        """Tell whether an account may do everything in a vhost."""
        return any(
            each["vhost"] == vhost and {each[what] for what in _RIGHTS} == {EVERYTHING}
            for each in self._permissions[username]
        )

    def depth(self, names: Names, vhost: str) -> Depth | None:
        """Count a queue's jobs by stage, or None where the broker does not say."""
        return depth(names, self._queues[vhost, names.prefix])

    def acked(self, names: Names, vhost: str) -> int | None:
        """Count all that was ever acknowledged, or None in a look that did not ask for it."""
        queues = self._queues[vhost, names.prefix]
        counts = [
            (queue["message_stats"] or {}).get("ack", 0)  # an empty list where nothing happened yet
            for queue in queues
            if is_main(names, queue["name"]) and "message_stats" in queue
        ]
        return sum(counts) if counts else None


async def look(management: Management, vhost: str | None = None, *, users: bool = True) -> Look:
    """Read a broker's lists, of one vhost or of all; `users` only where we may read them."""
    # Every vhost has exchanges, and whoever may use it may list them; the vhost itself may not
    # be asked for by everyone.
    exchanges = await management.listed("exchanges", vhost)
    if exchanges is None:
        return Look(users=await _listed(management, "users") if users else ())
    vhosts, queues, bindings, policies, accounts, permissions = await asyncio.gather(
        _listed(management, "vhosts") if vhost is None else _only(vhost),
        _listed(management, "queues", vhost),
        _listed(management, "bindings", vhost),
        _listed(management, "policies", vhost),
        _listed(management, "users") if users else _nothing(),
        _permissions(management, vhost) if users else _nothing(),
    )
    return Look(
        vhosts=[each["name"] for each in vhosts],
        exchanges=exchanges,
        queues=queues,
        bindings=bindings,
        policies=policies,
        users=accounts,
        permissions=permissions,
    )


async def count(management: Management, vhost: str | None, *, rates: bool = False) -> Look:
    """Read only how many jobs are where: one call, whatever the number of queues.

    With `rates` also how many were ever acknowledged, which costs the broker more.
    """
    return Look(queues=await management.counted(vhost, acks=rates) or ())


def is_main(names: Names, queue: str) -> bool:
    """Tell whether a broker queue is one that workers take jobs from."""
    return queue == names.main or queue.startswith(f"{names.main}.")


def depth(names: Names, queues: Listed) -> Depth | None:
    """Sum up the lengths of a queue's broker queues, stage by stage."""
    stages = {"ready": 0, "inFlight": 0, "waiting": 0, "dead": 0}
    mine = [queue for queue in queues if names.own(queue["name"])]
    for queue in mine:
        total = queue.get("messages")
        if total is None:
            return None
        name = queue["name"]
        if is_main(names, name):
            stages["inFlight"] += queue.get("messages_unacknowledged") or 0
            stages["ready"] += queue.get("messages_ready") or 0
        elif name.startswith(f"{names.delay}.") or name == names.redrive:
            stages["waiting"] += total
        elif name == names.dead_letters:
            stages["dead"] += total
    return Depth.model_validate(stages) if mine else None


def _owner(vhost: str, name: str) -> Owner:
    """Return whose an object is; what a vhost's queues share belongs to the empty name."""
    return (vhost, "" if is_shared(name) else ".".join(name.split(".", _PARTS)[:_PARTS]))


def _by_owner(things: Listed) -> Mapping[Owner, list[Mapping[str, Any]]]:
    found = defaultdict(list)
    for thing in things:
        found[_owner(thing["vhost"], thing["name"])].append(thing)
    return found


def _bindings_by_owner(bindings: Listed) -> Mapping[Owner, list[Mapping[str, Any]]]:
    """File a binding under each queue at its ends; only one between shared exchanges is shared."""
    found = defaultdict(list)
    for binding in bindings:
        ends = (binding["source"], binding["destination"])
        owners = {_owner(binding["vhost"], end) for end in ends if end}
        for owner in {owner for owner in owners if owner[1]} or owners:
            found[owner].append(binding)
    return found


def _by_user(permissions: Listed) -> Mapping[str, list[Mapping[str, Any]]]:
    found = defaultdict(list)
    for permission in permissions:
        found[permission["user"]].append(permission)
    return found


def _users_of(names: Names) -> tuple[str, str]:
    return (names.consumer, names.producer)


def _intact(user: Mapping[str, Any], password: str) -> bool:
    """Tell whether a user has this password and no tag, as far as the broker lets us see."""
    tags = user.get("tags") or ()
    algorithm = _HASHES.get(str(user.get("hashing_algorithm")))
    if algorithm is None:
        return not tags
    known = base64.b64decode(user.get("password_hash") or "")
    salt, digest = known[:_SALT], known[_SALT:]
    ours = hashlib.new(algorithm, salt + password.encode()).digest()
    return not tags and hmac.compare_digest(digest, ours)


async def _listed(management: Management, kind: str, vhost: str | None = None) -> Listed:
    return await management.listed(kind, vhost) or ()


async def _permissions(management: Management, vhost: str | None) -> Listed:
    if vhost is None:
        return await _listed(management, "permissions")
    return await management.permissions(vhost) or ()


async def _only(vhost: str) -> Listed:
    return ({"name": vhost},)


async def _nothing() -> Listed:
    return ()
