"""The drift loop: one, for all queues, that lets nothing stay broken.

Each broker in use is visited when it is the turn of one of its queues, and asked once, for all of
them, how long they are; their workers follow. Now and then, and after trouble, all that it has is
looked at, and what belongs to us in the cluster, and whatever differs from its manifest is brought
about anew; no poll waits for that. Brokers are visited side by side; one that has not yet answered
is left out of the next round.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from namedqueue import topology
from namedqueue.topology import Names
from namedqueue_operator import children, metrics, stores
from namedqueue_operator.brokers import Brokers, Link, Source
from namedqueue_operator.cluster import Cluster, Object
from namedqueue_operator.conditions import TOPOLOGY_READY, holds, told
from namedqueue_operator.following import Follower
from namedqueue_operator.inventory import Body, Inventory, Key, is_going, key_of
from namedqueue_operator.observing import Look, count
from namedqueue_operator.reconciling import Reconciler, queue_in, wanted
from namedqueue_operator.reporting import Reporter, in_trouble
from namedqueue_operator.stores import Provision, ReadStore
from namedqueue_operator.troubles import BrokerTrouble, Trouble

_log = logging.getLogger(__name__)
_SOON: Final = 7.0
_BEAT: Final = 0.5
_AT_ONCE: Final = 8

Owned: TypeAlias = Mapping[tuple[str, str, str], Object]
"""ConfigMaps and Secrets of queues, by kind, namespace and name."""


@dataclass(frozen=True)
class Pace:
    """How often to look at what, in seconds; `namespaces` are those watched, None for all."""

    poll: float = 5.0
    drift: float = 30.0
    namespaces: tuple[str, ...] | None = None


class Drift:
    """Goes round for ever."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: Brokers,
        inventory: Inventory,
        reconciler: Reconciler,
        reporter: Reporter,
        follower: Follower,
        store: ReadStore,
        pace: Pace,
    ) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._inventory = inventory
        self._reconciler = reconciler
        self._reporter = reporter
        self._follower = follower
        self._store = store
        self._pace = pace
        self._visits: dict[Source, asyncio.Task[None]] = {}
        self._mending: dict[Source, asyncio.Task[None]] = {}
        self._visited: dict[Source, float] = {}
        self._looked: dict[Source, float] = {}
        self._due: dict[Key, float] = {}

    async def run(self) -> None:
        """Go round until cancelled."""
        try:
            while True:
                metrics.TICK.set_to_current_time()
                self._round()
                await asyncio.sleep(min(_BEAT, self._pace.poll))
        finally:
            tasks = [*self._visits.values(), *self._mending.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._follower.close()

    def _round(self) -> None:
        self._visits, self._mending = _unfinished(self._visits), _unfinished(self._mending)
        self._follower.retain({key_of(body) for body in self._inventory})
        now = time.monotonic()
        sources = self._by_broker()
        busy = self._visits.keys() | self._mending.keys()
        for gone in self._visited.keys() - sources.keys() - busy:
            del self._visited[gone]
            metrics.REACHABLE.remove(_shown(gone))
        for source, bodies in sources.items():
            turn = any(map(self._follower.due, bodies)) or self._restless(source, bodies, now)
            if turn and source not in self._visits:
                self._visited[source] = now
                self._visits[source] = asyncio.create_task(self._visit(source, bodies))

    def _restless(self, source: Source, bodies: Sequence[Body], now: float) -> bool:
        """Tell whether a broker has to be visited though it is no queue's turn."""
        since = now - self._visited.get(source, 0.0)
        if since >= self._pace.drift:
            return True
        open_ends = (not _in_place(body) or key_of(body) in self._due for body in bodies)
        return since >= self._pace.poll and any(open_ends)

    def _by_broker(self) -> dict[Source, list[Body]]:
        found: dict[Source, list[Body]] = defaultdict(list)
        for body in self._inventory:
            reference = (body.get("spec") or {}).get("brokerSecretRef")
            namespace = body["metadata"]["namespace"]
            if not is_going(body):
                found[(namespace, reference["name"]) if reference else None].append(body)
        return found

    async def _visit(self, source: Source, bodies: Sequence[Body]) -> None:
        rates = any(self._follower.needs_rates(body) for body in bodies)
        try:
            link = await self._brokers.reach(source)
            seen = await count(link.management, link.everywhere, rates=rates)
        except BrokerTrouble as trouble:
            await self._lost(source, bodies, trouble)
            return
        metrics.LAST_POLL.labels(link.account.place).set_to_current_time()
        metrics.REACHABLE.labels(_shown(source)).set(1)
        if source not in self._mending:
            self._mending[source] = asyncio.create_task(self._mend_all(source, link, bodies))
        due = [body for body in bodies if self._follower.due(body)]
        await self._each(due, partial(self._follow, link, seen))

    async def _lost(self, source: Source, bodies: Sequence[Body], trouble: BrokerTrouble) -> None:
        metrics.REACHABLE.labels(_shown(source)).set(0)
        self._looked.pop(source, None)
        await self._each(bodies, partial(self._away, trouble))

    async def _follow(self, link: Link, seen: Look, body: Body) -> None:
        names = Names(*key_of(body))
        vhost = link.vhost(names)
        await self._follower.follow(body, seen.depth(names, vhost), seen.acked(names, vhost))

    async def _mend_all(self, source: Source, link: Link, bodies: Sequence[Body]) -> None:
        broken: set[Key] = set()
        if time.monotonic() - self._looked.get(source, 0.0) >= self._pace.drift:
            try:
                broken = await self._broken(link, bodies)
            except BrokerTrouble as trouble:
                await self._lost(source, bodies, trouble)
                return
            self._looked[source] = time.monotonic()
        await self._each(bodies, partial(self._mend, broken))

    async def _broken(self, link: Link, bodies: Sequence[Body]) -> set[Key]:
        """Return the queues for which something is not as it shall be."""
        broker = await link.described()
        seen = await link.look(link.everywhere)
        owned = await self._owned(bodies)
        provision = await self._store()
        broken = set()
        for body in bodies:
            await asyncio.sleep(0)  # comparing five hundred takes a second; handlers go in between
            try:
                if not _intact(body, link, broker, seen, owned, provision):
                    broken.add(key_of(body))
            except Trouble:
                continue  # an invalid manifest: its condition says so already
            except Exception:  # noqa: BLE001  # whatever it was, the others are compared
                _log.exception("a comparison failed", extra={"queue": "/".join(key_of(body))})
        return broken

    async def _owned(self, bodies: Iterable[Body]) -> Owned:
        everywhere = self._pace.namespaces is None
        namespaces = {None} if everywhere else {body["metadata"]["namespace"] for body in bodies}
        found = {}
        for kind in ("configmaps", "secrets"):
            for namespace in namespaces:
                for child in await self._cluster.children(kind, namespace):
                    metadata = child["metadata"]
                    found[kind, metadata["namespace"], metadata["name"]] = child
        return found

    async def _mend(self, broken: AbstractSet[Key], body: Body) -> None:
        key = key_of(body)
        if self._inventory.lock(key).locked():
            return  # somebody is at it already
        now = time.monotonic()
        newest = self._inventory.get(key) or body
        due = key in self._due and self._due[key] <= now
        if (key in broken or due or not _in_place(newest)) and not is_going(newest):
            if due:
                del self._due[key]
            if await self._reconciler.reconcile(key):
                self.soon(key)

    def soon(self, key: Key) -> None:
        """Come back to a queue before its turn."""
        self._due.setdefault(key, time.monotonic() + _SOON)

    async def _away(self, trouble: BrokerTrouble, body: Body) -> None:
        await self._reporter.report(
            key_of(body), in_trouble(trouble, body["metadata"]["generation"])
        )
        await self._follower.lost(body, str(trouble))

    async def _each(self, bodies: Iterable[Body], act: Callable[[Body], Awaitable[None]]) -> None:
        """Do something for each queue, some at once; one that fails stops no other."""
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def safely(body: Body) -> None:
            async with at_once:
                try:
                    await act(body)
                except Exception:  # noqa: BLE001  # whatever it was, the others have their turn
                    _log.exception("a visit failed", extra={"queue": "/".join(key_of(body))})

        await asyncio.gather(*(safely(body) for body in bodies))


def _shown(source: Source) -> str:
    return "/".join(source) if source else "operator"


def _in_place(body: Body) -> bool:
    return holds(body.get("status") or {}, TOPOLOGY_READY, body["metadata"]["generation"])


def _intact(
    body: Body,
    link: Link,
    broker: topology.Broker,
    seen: Look,
    owned: Owned,
    provision: Provision,
) -> bool:
    """Tell whether everything of a queue is as it shall be, on the broker and in the cluster."""
    queue = queue_in(body)
    namespace, name = key_of(body)
    names = Names(namespace, name)
    desired = topology.compile(queue, broker)
    secrets = {
        each: owned.get(("secrets", namespace, each)) for each in children.secret_names(name)
    }
    goal = wanted(body, link, desired, secrets, provision)
    observed = seen.topology(names, link.vhost(names), goal.passwords)
    if observed != desired and topology.diff(observed, desired):
        return False
    known = told(body.get("status") or {}, body["metadata"]["generation"])
    if not stores.answers(body, provision).items() <= known.items():
        return False
    return all(
        children.same(
            owned.get((f"{each['kind'].lower()}s", namespace, each["metadata"]["name"])), each
        )
        for each in goal.manifests
    )


def _unfinished(tasks: Mapping[Source, asyncio.Task[None]]) -> dict[Source, asyncio.Task[None]]:
    """Return the tasks that still run; one that failed is logged and will be tried again."""
    for source, task in tasks.items():
        if task.done() and not task.cancelled() and task.exception() is not None:
            _log.error("a visit to %s failed", source or "the broker", exc_info=task.exception())
    return {source: task for source, task in tasks.items() if not task.done()}
