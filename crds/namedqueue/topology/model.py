"""A topology as a value: everything that shall be, or is, on the broker for one NamedQueue.

Two topologies are equal when the broker could not tell them apart. What is said for people (stage,
purpose, notes) and the order in which things were listed make no difference, so that one read back
from a broker compares with one that was compiled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from namedqueue.topology.names import in_order

Value: TypeAlias = str | int | bool
DestinationKind: TypeAlias = Literal["queue", "exchange"]


class Stage(StrEnum):
    """Where in a job's life an object serves."""

    TOPICS = "topics"
    MAIN = "main"
    DELAY = "delay"
    DEAD_LETTER = "dead letter"
    GROUPS = "groups"
    REDRIVE = "redrive"


class Role(StrEnum):
    """What a broker user is for."""

    CONSUMER = "consumer"
    PRODUCER = "producer"


class Arguments(Mapping[str, Value]):
    """Settings of an object on the broker: a mapping that never changes and can be hashed."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Value] | None = None) -> None:
        self._items = dict(sorted((items or {}).items()))

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items))  # of its keys: what others set may have a list in it

    def __repr__(self) -> str:
        return f"Arguments({self._items!r})"


NO_ARGUMENTS = Arguments()


@dataclass(frozen=True)
class Vhost:
    """The namespace's own part of the broker, or under shared tenancy the part we were given."""

    name: str
    managed: bool = field(default=True, compare=False)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = NO_ARGUMENTS
    stage: Stage | None = field(default=None, compare=False)
    purpose: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A queue. Its arguments can never change, so they hold only what never has to."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = NO_ARGUMENTS
    stage: Stage | None = field(default=None, compare=False)
    purpose: str = field(default="", compare=False)

    @property
    def dead_letter_exchange(self) -> str | None:
        """Where the broker itself sends what leaves this queue without an ack."""
        target = self.arguments.get("x-dead-letter-exchange")
        return None if target is None else str(target)

    @property
    def drains_itself(self) -> bool:
        """Tell whether every job leaves after a fixed time without anyone's help."""
        return self.dead_letter_exchange is not None and "x-message-ttl" in self.arguments


@dataclass(frozen=True, kw_only=True)
class Binding:
    source: str
    destination: str
    to: DestinationKind
    routing_key: str = ""
    stage: Stage | None = field(default=None, compare=False)
    purpose: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return f"{self.source}.{self.destination}.{self.routing_key}"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The changeable settings of the queues of one stage.

    The broker applies at most one policy to a queue, the one of the highest priority. Each of our
    queues therefore has one of ours, above what a catch-all of the platform team would set.
    """

    name: str
    pattern: str
    definition: Arguments
    priority: int = 100
    apply_to: str = "queues"
    stage: Stage | None = field(default=None, compare=False)
    purpose: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class User:
    """A broker account. Its password is nobody's business here."""

    name: str
    role: Role = field(compare=False)
    purpose: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Permission:
    """What a user may do in the vhost, as anchored regular expressions; an empty one is nothing."""

    user: str
    configure: str = ""
    write: str = ""
    read: str = ""

    @property
    def name(self) -> str:
        return self.user


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Everything on the broker for one NamedQueue. Without a vhost it is nothing at all."""

    vhost: Vhost | None = None
    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()
    policies: tuple[Policy, ...] = ()
    users: tuple[User, ...] = ()
    permissions: tuple[Permission, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for kind in _KINDS:
            ordered = sorted(getattr(self, kind), key=lambda thing: in_order(thing.name))
            object.__setattr__(self, kind, tuple(ordered))

    def to_dict(self) -> dict[str, Any]:
        """Return the topology as JSON knows it, in a fixed order."""
        listed = {kind: [_as_dict(thing) for thing in getattr(self, kind)] for kind in _KINDS}
        vhost = None if self.vhost is None else _as_dict(self.vhost)
        return {"vhost": vhost, **listed, "notes": list(self.notes)}


_KINDS = ("exchanges", "queues", "bindings", "policies", "users", "permissions")

NOTHING = Topology()


def combine(*parts: Topology, vhost: Vhost | None = None) -> Topology:
    """Put the parts of a topology together."""
    everything = {kind: sum((getattr(part, kind) for part in parts), ()) for kind in _KINDS}
    notes = sum((part.notes for part in parts), ())
    return Topology(vhost=vhost, notes=notes, **everything)


def _as_dict(thing: Any) -> dict[str, Any]:
    found = {each.name: getattr(thing, each.name) for each in fields(thing)}
    return {
        _camel(name): dict(value) if isinstance(value, Mapping) else value
        for name, value in found.items()
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
