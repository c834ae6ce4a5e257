"""The order in which a topology is built: against the flow of jobs.

Jobs flow from an exchange along its bindings to queues and further exchanges, and from a queue to
its dead-letter exchange. The flow has no circle, because the way back from a worker to the ladder
is not the broker's. So there is an order in which whatever a job could reach is there before it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from namedqueue.topology.model import Binding, Exchange, Policy, Queue, Topology
from namedqueue.topology.names import is_shared

Routed: TypeAlias = Exchange | Queue | Binding | Policy


def upward(topology: Topology) -> Iterator[Routed]:
    """Yield each exchange, queue, binding and policy once, in the order to make them.

    A queue follows its policy, so that it is born with it, and the exchange that it dead-letters
    to with all that this leads to. Reversed, it is the order to take them down.
    """
    return iter(_Walk(topology).everything())


class _Walk:
    """One pass over a topology, that remembers what it has already yielded."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._exchanges = {exchange.name: exchange for exchange in topology.exchanges}
        self._queues = {queue.name: queue for queue in topology.queues}
        self._seen: dict[Routed, None] = {}
        self._entered: set[str] = set()

    def everything(self) -> Iterable[Routed]:
        for exchange in sorted(self._topology.exchanges, key=lambda it: is_shared(it.name)):
            self._exchange(exchange.name)
        for queue in self._topology.queues:
            self._queue(queue)
        self._yield(*self._topology.bindings, *self._topology.policies)
        return tuple(self._seen)

    def _exchange(self, name: str | None) -> None:
        if name is None or name in self._entered:
            return
        self._entered.add(name)
        bindings = [each for each in self._topology.bindings if each.source == name]
        for binding in bindings:
            self._whatever_lies_behind(binding)
        if name in self._exchanges:
            self._yield(self._exchanges[name])
        for binding in bindings:
            if binding.to == "queue" and binding.destination in self._queues:
                self._queue(self._queues[binding.destination])
            self._yield(binding)

    def _whatever_lies_behind(self, binding: Binding) -> None:
        if binding.to == "exchange":
            self._exchange(binding.destination)
        elif binding.destination in self._queues:
            self._exchange(self._queues[binding.destination].dead_letter_exchange)

    def _queue(self, queue: Queue) -> None:
        self._exchange(queue.dead_letter_exchange)
        covering = (each for each in self._topology.policies if _covers(each, queue.name))
        self._yield(*covering, queue)

    def _yield(self, *things: Routed) -> None:
        self._seen.update(dict.fromkeys(things))


def _covers(policy: Policy, queue: str) -> bool:
    """Tell whether a policy is for a queue; one that was edited may have a pattern of Erlang's."""
    try:
        return re.search(policy.pattern, queue) is not None
    except re.error:
        return False
