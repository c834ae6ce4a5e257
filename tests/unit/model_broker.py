"""A broker reduced to its routing, to watch a plan being carried out step by step.

It refuses what RabbitMQ refuses, and it remembers which queues hold jobs.
"""

import re
from collections.abc import Iterator, Sequence

from namedqueue.topology import Topology
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
    RequireEmpty,
    SetPermission,
    SetPolicy,
    Unbind,
)
from namedqueue.topology.model import Binding, Queue
from namedqueue.topology.names import MQTT_TOPICS
from unit.test_ladder import topic_matches

_LEVEL = re.compile(r"\.delay\.(\d+)$")


class ModelBroker:
    def __init__(self, topology: Topology, jobs: set[str] | None = None) -> None:
        self.vhost = topology.vhost
        self.exchanges = {exchange.name: exchange for exchange in topology.exchanges}
        self.queues = {queue.name: queue for queue in topology.queues}
        self.bindings = set(topology.bindings)
        self.policies = {policy.name: policy for policy in topology.policies}
        self.users = {user.name: user for user in topology.users}
        self.permissions = {each.user: each for each in topology.permissions}
        self.jobs = jobs or set()
        self._by_source: dict[str, list[Binding]] | None = None

    def topology(self) -> Topology:
        return Topology(
            vhost=self.vhost,
            exchanges=tuple(self.exchanges.values()),
            queues=tuple(self.queues.values()),
            bindings=tuple(self.bindings),
            policies=tuple(self.policies.values()),
            users=tuple(self.users.values()),
            permissions=tuple(self.permissions.values()),
        )

    def apply(self, action: Action) -> bool:
        """Do it, or return False if the broker refuses for the sake of a job."""
        self._by_source = None
        match action:
            case RequireEmpty(queues):
                return not self.jobs & set(queues)
            case DeleteQueue(queue, if_empty):
                if if_empty and queue.name in self.jobs:
                    return False
                self._delete_queue(queue)
            case CreateVhost(vhost):
                self.vhost = vhost
            case CreateUser(user):
                self.users[user.name] = user
            case DeleteUser(user):
                del self.users[user.name]
                self.permissions.pop(user.name, None)
            case SetPermission(permission):
                assert permission.user in self.users
                self.permissions[permission.user] = permission
            case _:
                self._apply_routing(action)
        return True

    def _apply_routing(self, action: Action) -> None:
        assert self.vhost is not None, "nothing can be made outside a vhost"
        match action:
            case DeclareExchange(exchange):
                assert self.exchanges.get(exchange.name, exchange) == exchange
                self.exchanges[exchange.name] = exchange
            case DeclareQueue(queue):
                assert self.queues.get(queue.name, queue) == queue
                self.queues[queue.name] = queue
            case Bind(binding):
                assert self._ends_exist(binding)
                self.bindings.add(binding)
            case Unbind(binding):
                self.bindings.remove(binding)
            case SetPolicy(policy):
                self.policies[policy.name] = policy
            case DeletePolicy(policy):
                assert not any(re.search(policy.pattern, name) for name in self.queues)
                del self.policies[policy.name]
            case DeleteExchange(exchange):
                touching = {exchange.name} & {it.source for it in self.bindings}
                assert not touching, "unbind before delete"
                del self.exchanges[exchange.name]
            case _:
                raise AssertionError(f"{action!r} is not for a broker")

    def _delete_queue(self, queue: Queue) -> None:
        assert queue.name not in self.jobs, "jobs were deleted"
        leading = [it for it in self.bindings if (it.to, it.destination) == ("queue", queue.name)]
        assert not leading, "unbind before delete"
        del self.queues[queue.name]

    def _ends_exist(self, binding: Binding) -> bool:
        ends: dict[str, object] = {**(self.queues if binding.to == "queue" else self.exchanges)}
        known = {*self.exchanges, MQTT_TOPICS}
        return binding.source in known and (
            binding.destination in ends or binding.destination in known
        )

    def route(self, exchange: str, key: str) -> set[str]:
        """Return the queues that a message reaches, without waiting in any."""
        here = self.exchanges.get(exchange)
        if here is None:
            return set()
        reached: set[str] = set()
        for binding in self._leading_from(exchange):
            if not _matches(here.type, binding.routing_key, key):
                continue
            if binding.to == "queue":
                reached.add(binding.destination)
            else:
                reached |= self.route(binding.destination, key)
        return {min(reached)} if reached and here.type == "x-consistent-hash" else reached

    def _leading_from(self, exchange: str) -> list[Binding]:
        if self._by_source is None:
            self._by_source = {}
            for binding in self.bindings:
                self._by_source.setdefault(binding.source, []).append(binding)
        return self._by_source.get(exchange, [])

    def lost(self, delays: Sequence[str], lasting: set[str]) -> Iterator[str]:
        """Name each place from which a job would get lost or doubled right now.

        `delays` are bits that jobs on the ladder carry; each is tried from every level. `lasting`
        are the ladder exchanges that workers rely on before and after the change.
        """
        for queue in self.queues.values():
            if queue.dead_letter_exchange is not None:
                for key in self._stranded(queue.dead_letter_exchange, queue.name, delays):
                    yield f"queue {queue.name} dead-letters {key} into nowhere"
        for name in lasting:
            for key in self._stranded(name, name, delays):
                yield f"exchange {name} leads {key} nowhere"
        yield from self._open_to_nowhere()

    def _stranded(self, exchange: str, level: str, delays: Sequence[str]) -> Iterator[str]:
        """Yield the keys of jobs at a level that would not reach exactly one queue."""
        return (key for key in _keys_at(level, delays) if len(self.route(exchange, key)) != 1)

    def _open_to_nowhere(self) -> Iterator[str]:
        """Name each entrance behind which there is no queue."""
        for binding in self.bindings:
            if binding.source == "nq.topics" and not self.route(binding.destination, "0"):
                yield f"topics lead nowhere by {binding.routing_key}"
        for user in self.permissions:
            if user.endswith(".producer") and not self.route(user.removesuffix(".producer"), ""):
                yield f"{user} publishes into nowhere"


def _matches(kind: str, pattern: str, key: str) -> bool:
    return kind != "topic" or topic_matches(pattern.split("."), key.split("."))


def _keys_at(name: str, delays: Sequence[str]) -> set[str]:
    """Return keys that a job waiting at this level of the ladder may carry."""
    level = _LEVEL.search(name)
    if level is None:
        return {""}
    return {".".join([*bits[: int(level[1])], "1"]) for bits in delays}
