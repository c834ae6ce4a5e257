"""Bringing a queue about: the one way from a manifest to what exists.

`reconcile` may be called at any time, by any cause, and any number of times: it looks, plans,
applies what is missing and reports. It never raises for trouble with a broker or a manifest; the
condition tells it, and the drift loop comes back. A password is in its Secret before its user is on
the broker, so none can be lost in between.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from namedqueue import topology
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import Invalid, read
from namedqueue.topology import Names, Topology
from namedqueue.topology.model import Role
from namedqueue_operator import children, metrics, repairs, stores
from namedqueue_operator.applying import Applied, apply, entering
from namedqueue_operator.brokers import Brokers, Link, source_of
from namedqueue_operator.children import Manifest
from namedqueue_operator.cluster import Cluster, Object
from namedqueue_operator.conditions import (
    BROKER_REACHABLE,
    TOPOLOGY_READY,
    Answer,
    holds,
    in_place,
    reachable,
)
from namedqueue_operator.inventory import Body, Inventory, Key, is_going
from namedqueue_operator.observing import Look
from namedqueue_operator.reporting import Report, Reporter, in_trouble
from namedqueue_operator.stores import Provision, ReadStore
from namedqueue_operator.troubles import TopologyTrouble, Trouble
from namedqueue_operator.workers import belongs_to

_log = logging.getLogger(__name__)
_NOT_YET: Final = object()

Tend: TypeAlias = Callable[[Body], Awaitable[Mapping[str, Answer]]]
"""Brings a queue's workers about once there is a broker for them, and answers how they are."""


@dataclass(frozen=True)
class Wanted:
    """All that shall exist for a queue."""

    topology: Topology
    passwords: Mapping[str, str]
    manifests: tuple[Manifest, ...]


def queue_in(body: Body) -> NamedQueue:
    """Return the model of an object, or raise the trouble that it is not valid."""
    try:
        queue = read(body)
    except Invalid as error:
        raise TopologyTrouble("Invalid", str(error)) from None
    if not isinstance(queue, NamedQueue):
        raise TopologyTrouble("Invalid", "this is not a NamedQueue")
    return queue


def wanted(
    body: Body,
    link: Link,
    desired: Topology,
    secrets: Mapping[str, Object | None],
    provision: Provision,
) -> Wanted:
    """Return all that shall exist, with passwords kept where there are good ones."""
    names = Names(body["metadata"]["namespace"], body["metadata"]["name"])
    vhost = link.vhost(names)
    logins = {}
    for role, username in ((Role.CONSUMER, names.consumer), (Role.PRODUCER, names.producer)):
        found = secrets.get(children.secret_name(names.name, role))
        own = (username, children.password_for(body, found))
        logins[role] = (link.account.username, link.account.password) if link.shared else own
    before = secrets.get(children.store_secret_name(names.name))
    given = stores.given(body, provision, had_one=before is not None and belongs_to(before, body))
    return Wanted(
        desired,
        dict(logins.values()),
        (
            children.config_map(body),
            *(children.secret(body, role, link.account, vhost, logins[role]) for role in logins),
            *([] if given is None else [children.store_secret(body, given)]),
        ),
    )


class Reconciler:
    """Brings queues about."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: Brokers,
        inventory: Inventory,
        reporter: Reporter,
        tend: Tend,
        store: ReadStore,
    ) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._inventory = inventory
        self._reporter = reporter
        self._tend = tend
        self._store = store
        self._bound: dict[Key, Provision] = {}
        """What each queue was last given of a store: another one is news, and no repair."""

    async def reconcile(self, key: Key) -> bool:
        """Make what is missing; tell whether there is reason to come back soon."""
        async with self._inventory.lock(key):
            body = self._inventory.get(key)
            if body is None or is_going(body):
                self._bound.pop(key, None)
                return False
            errors = metrics.RECONCILE_ERRORS.labels("Internal")
            with metrics.RECONCILE_SECONDS.time(), errors.count_exceptions():
                report, held = await self._attempt(body)
            await self._reporter.report(key, report)
            return held or not report.in_place

    async def _attempt(self, body: Body) -> tuple[Report, bool]:
        try:
            queue = queue_in(body)
            link = await self._brokers.reach(source_of(queue))
            broker = await link.described()
        except Trouble as trouble:
            return self._failed(body, trouble), False
        place = link.account.place
        provision = await self._store()
        answers = {BROKER_REACHABLE: reachable(broker.version, place)}
        try:
            desired = topology.compile(queue, broker)
            async with link.turns:
                applied, seen = await self._bring_about(body, link, desired, provision)
            await applied.lasting()
        except Trouble as trouble:
            return self._failed(body, trouble, answers=answers, place=place), False
        await self._tell_of_a_move(body, place)
        remarks = () if applied.held is None else (f"shrinking: {applied.held}",)
        answers[TOPOLOGY_READY] = in_place(desired, *remarks)
        answers |= stores.answers(body, provision)
        answers |= await self._tend(body)
        names = Names(queue.metadata.namespace, queue.metadata.name)
        depth = seen.depth(names, link.vhost(names))
        report = Report(
            generation=body["metadata"]["generation"],
            answers=answers,
            place=place,
            topology=desired,
            depth=depth,
        )
        return report, applied.held is not None

    async def _bring_about(
        self, body: Body, link: Link, desired: Topology, provision: Provision
    ) -> tuple[Applied, Look]:
        secrets = await self._secrets(body)
        goal = wanted(body, link, desired, secrets, provision)
        names = Names(body["metadata"]["namespace"], body["metadata"]["name"])
        vhost = link.vhost(names)
        written = await self._write(goal.manifests, secrets)
        if self._bound.get(_key(body), _NOT_YET) != provision:
            news = f"Secret {children.store_secret_name(names.name)}"
            written = [each for each in written if each != news]
        self._bound[_key(body)] = provision
        seen = await link.look(vhost)
        for each in desired.queues:
            link.emptiness.forget(vhost, each.name)  # a queue that lives may get jobs at any time
        plan = topology.diff(seen.topology(names, vhost, goal.passwords), desired)
        if not link.shared:
            plan = entering(plan, link.account.username, seen.admits(link.account.username, vhost))
        applied = await apply(
            plan, link.management, vhost, emptiness=link.emptiness, passwords=goal.passwords
        )
        await self._tell(body, applied, written)
        return applied, seen

    async def _secrets(self, body: Body) -> dict[str, Object | None]:
        namespace, name = _key(body)
        return {
            each: await self._cluster.secret(namespace, each)
            for each in children.secret_names(name)
        }

    async def _write(
        self, manifests: tuple[Manifest, ...], secrets: Mapping[str, Object | None]
    ) -> list[str]:
        """Apply what differs; return what was missing or wrong, by kind and name."""
        written = []
        for manifest in manifests:
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            found = secrets.get(name) if kind == "Secret" else await self._cluster.read(manifest)
            if not children.same(found, manifest):
                await self._cluster.apply(manifest)
                written.append(f"{kind} {name}")
        return written

    async def _tell(self, body: Body, applied: Applied, written: list[str]) -> None:
        """Post an event if what had been in place was not any more."""
        status = body.get("status") or {}
        if not holds(status, TOPOLOGY_READY, body["metadata"]["generation"]):
            return
        missed, surplus = repairs.sorted_out(applied.done)
        words = repairs.sentence(missed, *(f"wrote {each}" for each in written))
        if words:
            metrics.REPAIRS.inc(len(missed) + len(written))
            await self._reporter.tell(body, "Warning", "Repaired", words)
        if surplus:
            await self._reporter.tell(body, "Normal", "Removed", repairs.sentence(surplus))

    async def _tell_of_a_move(self, body: Body, place: str) -> None:
        """Name what stays on the broker that a queue has left, with the jobs that are in it."""
        before = (body.get("status") or {}).get("broker")
        if before and before != place:
            await self._reporter.tell(body, "Warning", "Moved", repairs.orphans(body))

    def _failed(self, body: Body, trouble: Trouble, **known: object) -> Report:
        metrics.RECONCILE_ERRORS.labels(trouble.reason).inc()
        _log.warning(
            "%s",
            trouble,
            extra={"queue": "/".join(_key(body)), "action": "reconcile", "reason": trouble.reason},
        )
        return in_trouble(trouble, body["metadata"]["generation"], **known)


def _key(body: Body) -> Key:
    return (body["metadata"]["namespace"], body["metadata"]["name"])
