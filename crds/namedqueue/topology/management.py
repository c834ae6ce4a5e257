"""How actions and topologies are written in RabbitMQ's management API.

Pure translation: an action becomes the request to send, and the lists that the broker answers
become the topology that is there. Sending is the operator's work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote

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
from namedqueue.topology.model import (
    Arguments,
    Binding,
    Exchange,
    Permission,
    Policy,
    Queue,
    Role,
    Topology,
    User,
    Vhost,
)
from namedqueue.topology.names import TOPICS, TRANSIT, Names, is_shared

Listed: TypeAlias = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """A call below `/api/`. A 404 on DELETE is success: what shall be gone is gone."""

    method: str
    path: str
    body: Mapping[str, Any] | None = field(default=None, repr=False)


def request(action: Action, vhost: str, *, password: str = "") -> Request | None:
    """Return the call that performs an action, or None where there is nothing to call.

    `password` is for the user that is created. A queue's emptiness is for the caller to check.
    """
    return (
        _object_request(action, vhost)
        or _routing_request(action, vhost)
        or _account_request(action, vhost, password)
    )


def definitions(actions: Iterable[Action], vhost: str) -> Request:
    """Return the one call that makes exchanges, queues, bindings and policies, all or in part.

    The broker makes them kind by kind: policies, queues, exchanges, bindings. It may be repeated.
    """
    kinds: dict[str, list[dict[str, Any]]] = {
        "policies": [],
        "queues": [],
        "exchanges": [],
        "bindings": [],
    }
    for action in actions:
        match action:
            case SetPolicy(policy):
                kinds["policies"].append({"name": policy.name, **_policy_body(policy)})
            case DeclareQueue(queue):
                kinds["queues"].append({"name": queue.name, **_born(queue)})
            case DeclareExchange(exchange):
                born = {"name": exchange.name, "type": exchange.type, **_born(exchange)}
                kinds["exchanges"].append({**born, "internal": False})
            case Bind(binding):
                kinds["bindings"].append(
                    {
                        "source": binding.source,
                        "destination": binding.destination,
                        "destination_type": binding.to,
                        "routing_key": binding.routing_key,
                        "arguments": {},
                    }
                )
            case _:
                raise ValueError(f"{action} cannot be one of many")
    return Request("POST", _path("definitions", vhost), kinds)


def _object_request(action: Action, vhost: str) -> Request | None:
    match action:
        case DeclareExchange(exchange):
            body = {"type": exchange.type, **_born(exchange)}
            return Request("PUT", _path("exchanges", vhost, exchange.name), body)
        case DeleteExchange(exchange):
            return Request("DELETE", _path("exchanges", vhost, exchange.name))
        case DeclareQueue(queue):
            return Request("PUT", _path("queues", vhost, queue.name), _born(queue))
        case DeleteQueue(queue):
            return Request("DELETE", _path("queues", vhost, queue.name))
        case _:
            return None


def _routing_request(action: Action, vhost: str) -> Request | None:
    match action:
        case Bind(binding):
            body = {"routing_key": binding.routing_key, "arguments": {}}
            return Request("POST", _bindings_path(binding, vhost), body)
        case Unbind(binding):
            key = quote(binding.routing_key, safe="") or "~"
            return Request("DELETE", f"{_bindings_path(binding, vhost)}/{key}")
        case SetPolicy(policy):
            return Request("PUT", _path("policies", vhost, policy.name), _policy_body(policy))
        case DeletePolicy(policy):
            return Request("DELETE", _path("policies", vhost, policy.name))
        case _:
            return None


def _account_request(action: Action, vhost: str, password: str) -> Request | None:
    match action:
        case CreateVhost(made):
            return Request("PUT", _path("vhosts", made.name), {})
        case CreateUser(user):
            body = {"password": password, "tags": ""}
            return Request("PUT", _path("users", user.name), body)
        case DeleteUser(user):
            return Request("DELETE", _path("users", user.name))
        case SetPermission(permission):
            return Request(
                "PUT", _path("permissions", vhost, permission.user), _permission_body(permission)
            )
        case _:
            return None


def observe(
    names: Names,
    vhost: Vhost,
    *,
    exchanges: Listed = (),
    queues: Listed = (),
    bindings: Listed = (),
    policies: Listed = (),
    users: Listed = (),
    permissions: Listed = (),
) -> Topology:
    """Return what a broker has for one NamedQueue, out of all that it lists for a vhost."""
    ours = [user["name"] for user in users if user["name"] in (names.consumer, names.producer)]
    return Topology(
        vhost=vhost,
        exchanges=tuple(_exchange(it) for it in exchanges if _concerns(names, it["name"])),
        queues=tuple(_queue(it) for it in queues if names.own(it["name"])),
        bindings=tuple(_binding(it) for it in bindings if _leads_to_or_from(names, it)),
        policies=tuple(_policy(it) for it in policies if _concerns(names, it["name"])),
        users=tuple(_user(names, name) for name in ours),
        permissions=tuple(
            _permission(it)
            for it in permissions
            if it["user"] in ours and it["vhost"] == vhost.name
        ),
    )


def _concerns(names: Names, name: str) -> bool:
    return names.own(name) or name in {TOPICS, TRANSIT}


def _leads_to_or_from(names: Names, binding: Mapping[str, Any]) -> bool:
    """Tell whether a binding is the queue's own, or the bridge between shared exchanges.

    Every queue is bound to the nameless default exchange; nobody made that, or can undo it.
    """
    source, destination = binding["source"], binding["destination"]
    if not source:
        return False
    between_shared = is_shared(source) and is_shared(destination)
    return names.own(source) or names.own(destination) or between_shared


def _exchange(listed: Mapping[str, Any]) -> Exchange:
    return Exchange(
        name=listed["name"],
        type=listed["type"],
        durable=listed["durable"],
        auto_delete=listed["auto_delete"],
        arguments=Arguments(listed["arguments"]),
    )


def _queue(listed: Mapping[str, Any]) -> Queue:
    return Queue(
        name=listed["name"],
        durable=listed["durable"],
        auto_delete=listed["auto_delete"],
        arguments=Arguments(listed["arguments"]),
    )


def _binding(listed: Mapping[str, Any]) -> Binding:
    return Binding(
        source=listed["source"],
        destination=listed["destination"],
        to=listed["destination_type"],
        routing_key=listed["routing_key"],
    )


def _policy(listed: Mapping[str, Any]) -> Policy:
    return Policy(
        name=listed["name"],
        pattern=listed["pattern"],
        definition=Arguments(listed["definition"]),
        priority=listed["priority"],
        apply_to=listed["apply-to"],
    )


def _user(names: Names, name: str) -> User:
    return User(name=name, role=Role.CONSUMER if name == names.consumer else Role.PRODUCER)


def _permission(listed: Mapping[str, Any]) -> Permission:
    return Permission(
        user=listed["user"],
        configure=listed["configure"],
        write=listed["write"],
        read=listed["read"],
    )


def _born(thing: Exchange | Queue) -> dict[str, Any]:
    return {
        "durable": thing.durable,
        "auto_delete": thing.auto_delete,
        "arguments": dict(thing.arguments),
    }


def _policy_body(policy: Policy) -> dict[str, Any]:
    return {
        "pattern": policy.pattern,
        "definition": dict(policy.definition),
        "priority": policy.priority,
        "apply-to": policy.apply_to,
    }


def _permission_body(permission: Permission) -> dict[str, Any]:
    return {
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


def _bindings_path(binding: Binding, vhost: str) -> str:
    kind = "q" if binding.to == "queue" else "e"
    return _path("bindings", vhost, "e", binding.source, kind, binding.destination)


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)
