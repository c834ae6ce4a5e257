"""The drift loop: one, for all queues, that lets nothing stay broken.

Each round asks each broker in use once how long its queues are. Now and then, and after trouble, it
looks at everything instead, and at what belongs to us in the cluster, and has whatever differs from
its manifest brought about anew. Brokers are visited side by side; one that has not yet answered the
last round is left out of the next.
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
from namedqueue.topology.model import Role
from namedqueue_operator import children, metrics
from namedqueue_operator.brokers import Brokers, Link, Source
from namedqueue_operator.cluster import Cluster, Object
from namedqueue_operator.conditions import READY, holds
from namedqueue_operator.inventory import Body, Inventory, Key, is_going, key_of
from namedqueue_operator.observing import Look, count, look
from namedqueue_operator.reconciling import Reconciler, queue_in, wanted
from namedqueue_operator.reporting import Report, Reporter, in_trouble
from namedqueue_operator.troubles import BrokerTrouble, Trouble

_log = logging.getLogger(__name__)
_SOON: Final = 7.0
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
        pace: Pace,
    ) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._inventory = inventory
        self._reconciler = reconciler
        self._reporter = reporter
        self._pace = pace
        self._visits: dict[Source, asyncio.Task[None]] = {}
        self._looked: dict[Source, float] = {}
        self._due: dict[Key, float] = {}

    async def run(self) -> None:
        """Go round until cancelled."""
        try:
            while True:
                metrics.TICK.set_to_current_time()
                self._round()
                await asyncio.sleep(self._pace.poll)
        finally:
            for visit in self._visits.values():
                visit.cancel()
            await asyncio.gather(*self._visits.values(), return_exceptions=True)

    def _round(self) -> None:
        self._visits = {
            source: visit for source, visit in self._visits.items() if not _over(source, visit)
        }
        for source, bodies in self._by_broker().items():
            if source not in self._visits:
                self._visits[source] = asyncio.create_task(self._visit(source, bodies))

    def _by_broker(self) -> dict[Source, list[Body]]:
        found: dict[Source, list[Body]] = defaultdict(list)
        for body in self._inventory:
            reference = (body.get("spec") or {}).get("brokerSecretRef")
            namespace = body["metadata"]["namespace"]
            if not is_going(body):
                found[(namespace, reference["name"]) if reference else None].append(body)
        return found

    async def _visit(self, source: Source, bodies: Sequence[Body]) -> None:
        thoroughly = time.monotonic() - self._looked.get(source, 0.0) >= self._pace.drift
        try:
            link = await self._brokers.reach(source)
            if thoroughly:
                broken = await self._broken(link, bodies)
                self._looked[source] = time.monotonic()
            else:
                seen = await count(link.management, link.everywhere)
                await self._tell_depths(link, bodies, seen)
                broken = set()
        except BrokerTrouble as trouble:
            self._looked.pop(source, None)
            await self._each(bodies, partial(self._away, trouble))
            return
        metrics.LAST_POLL.labels(link.account.place).set_to_current_time()
        await self._each(bodies, partial(self._mend, broken))

    async def _broken(self, link: Link, bodies: Sequence[Body]) -> set[Key]:
        """Return the queues for which something is not as it shall be."""
        broker = await link.described()
        seen = await look(link.management, link.everywhere, users=not link.shared)
        owned = await self._owned(bodies)
        await self._tell_depths(link, bodies, seen)
        broken = set()
        for body in bodies:
            await asyncio.sleep(0)  # comparing five hundred takes a second; handlers go in between
            try:
                if not _intact(body, link, broker, seen, owned):
                    broken.add(key_of(body))
            except Trouble:
                continue  # an invalid manifest: its condition says so already
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

    async def _tell_depths(self, link: Link, bodies: Sequence[Body], seen: Look) -> None:
        async def tell(body: Body) -> None:
            names = Names(*key_of(body))
            depth = seen.depth(names, link.vhost(names))
            if depth is not None:
                await self._reporter.report(key_of(body), Report(depth=depth))

        await self._each(bodies, tell)

    async def _mend(self, broken: AbstractSet[Key], body: Body) -> None:
        key = key_of(body)
        if self._inventory.lock(key).locked():
            return  # somebody is at it already
        now = time.monotonic()
        newest = self._inventory.get(key) or body
        generation = newest["metadata"]["generation"]
        ready = holds(newest.get("status") or {}, READY, generation)
        due = key in self._due and self._due[key] <= now
        if (key in broken or due or not ready) and not is_going(newest):
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


def _intact(body: Body, link: Link, broker: topology.Broker, seen: Look, owned: Owned) -> bool:
    """Tell whether everything of a queue is as it shall be, on the broker and in the cluster."""
    queue = queue_in(body)
    namespace, name = key_of(body)
    names = Names(namespace, name)
    desired = topology.compile(queue, broker)
    secrets = {
        role: owned.get(("secrets", namespace, children.secret_name(name, role))) for role in Role
    }
    goal = wanted(body, link, desired, secrets)
    observed = seen.topology(names, link.vhost(names), goal.passwords)
    if observed != desired and topology.diff(observed, desired):
        return False
    return all(
        children.same(
            owned.get((f"{each['kind'].lower()}s", namespace, each["metadata"]["name"])), each
        )
        for each in goal.manifests
    )


def _over(source: Source, visit: asyncio.Task[None]) -> bool:
    """Tell whether a visit has ended; one that failed is logged and tried again."""
    if not visit.done():
        return False
    if not visit.cancelled() and visit.exception() is not None:
        _log.error("a visit to %s failed", source or "the broker", exc_info=visit.exception())
    return True
