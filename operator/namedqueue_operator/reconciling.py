"""Bringing a queue about: the one way from a manifest to what exists.

`reconcile` may be called at any time, by any cause, and any number of times: it looks, plans,
applies what is missing and reports. It never raises for trouble with a broker or a manifest; the
condition tells it, and the drift loop comes back. A password is in its Secret before its user is on
the broker, so none can be lost in between.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from namedqueue import topology
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import Invalid, read
from namedqueue.topology import Names, Topology
from namedqueue.topology.model import Role
from namedqueue_operator import children, metrics, repairs
from namedqueue_operator.applying import Applied, apply, entering
from namedqueue_operator.brokers import Brokers, Link, source_of
from namedqueue_operator.children import Manifest
from namedqueue_operator.cluster import Cluster, Object
from namedqueue_operator.conditions import (
    BROKER_REACHABLE,
    TOPOLOGY_READY,
    holds,
    in_place,
    reachable,
)
from namedqueue_operator.inventory import Body, Inventory, Key, is_going
from namedqueue_operator.observing import Look, look
from namedqueue_operator.reporting import Report, Reporter, in_trouble
from namedqueue_operator.troubles import TopologyTrouble, Trouble

_log = logging.getLogger(__name__)


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
    body: Body, link: Link, desired: Topology, secrets: Mapping[Role, Object | None]
) -> Wanted:
    """Return all that shall exist, with passwords kept where there are good ones."""
    names = Names(body["metadata"]["namespace"], body["metadata"]["name"])
    vhost = link.vhost(names)
    logins = {}
    for role, username in ((Role.CONSUMER, names.consumer), (Role.PRODUCER, names.producer)):
        own = (username, children.password_for(body, secrets.get(role)))
        logins[role] = (link.account.username, link.account.password) if link.shared else own
    return Wanted(
        desired,
        dict(logins.values()),
        (
            children.config_map(body),
            *(children.secret(body, role, link.account, vhost, logins[role]) for role in logins),
        ),
    )


class Reconciler:
    """Brings queues about."""

    def __init__(
        self, cluster: Cluster, brokers: Brokers, inventory: Inventory, reporter: Reporter
    ) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._inventory = inventory
        self._reporter = reporter

    async def reconcile(self, key: Key) -> bool:
        """Make what is missing; tell whether there is reason to come back soon."""
        async with self._inventory.lock(key):
            body = self._inventory.get(key)
            if body is None or is_going(body):
                return False
            errors = metrics.RECONCILE_ERRORS.labels("Internal")
            with metrics.RECONCILE_SECONDS.time(), errors.count_exceptions():
                report, held = await self._attempt(body)
            await self._reporter.report(key, report)
            return held or not report.ready

    async def _attempt(self, body: Body) -> tuple[Report, bool]:
        try:
            queue = queue_in(body)
            link = await self._brokers.reach(source_of(queue))
            broker = await link.described()
        except Trouble as trouble:
            return self._failed(body, trouble), False
        place = link.account.place
        answers = {BROKER_REACHABLE: reachable(broker.version, place)}
        try:
            desired = topology.compile(queue, broker)
            applied, seen = await self._bring_about(body, link, desired)
        except Trouble as trouble:
            return self._failed(body, trouble, answers=answers, place=place), False
        remarks = () if applied.held is None else (f"shrinking: {applied.held}",)
        answers[TOPOLOGY_READY] = in_place(desired, *remarks)
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

    async def _bring_about(self, body: Body, link: Link, desired: Topology) -> tuple[Applied, Look]:
        secrets = await self._secrets(body)
        goal = wanted(body, link, desired, secrets)
        names = Names(body["metadata"]["namespace"], body["metadata"]["name"])
        vhost = link.vhost(names)
        written = await self._write(goal.manifests, secrets)
        seen = await look(link.management, vhost, users=not link.shared)
        plan = topology.diff(seen.topology(names, vhost, goal.passwords), desired)
        if not link.shared:
            plan = entering(plan, link.account.username, seen.admits(link.account.username, vhost))
        applied = await apply(
            plan, link.management, vhost, emptiness=link.emptiness, passwords=goal.passwords
        )
        await self._tell(body, applied, written)
        return applied, seen

    async def _secrets(self, body: Body) -> dict[Role, Object | None]:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        return {
            role: await self._cluster.secret(namespace, children.secret_name(name, role))
            for role in Role
        }

    async def _write(
        self, manifests: tuple[Manifest, ...], secrets: Mapping[Role, Object | None]
    ) -> list[str]:
        """Apply what differs; return the names of Secrets that were missing or wrong."""
        there = {found["metadata"]["name"]: found for found in secrets.values() if found}
        written = []
        for manifest in manifests:
            name = manifest["metadata"]["name"]
            if manifest["kind"] == "Secret" and children.same(there.get(name), manifest):
                continue
            await self._cluster.apply(manifest)
            if manifest["kind"] == "Secret":
                written.append(name)
        return written

    async def _tell(self, body: Body, applied: Applied, written: list[str]) -> None:
        """Post an event if what had been in place was not any more."""
        status = body.get("status") or {}
        if not holds(status, TOPOLOGY_READY, body["metadata"]["generation"]):
            return
        missed, surplus = repairs.sorted_out(applied.done)
        words = repairs.sentence(missed, *(f"wrote Secret {name}" for name in written))
        if words:
            metrics.REPAIRS.inc(len(missed) + len(written))
            await self._reporter.tell(body, "Warning", "Repaired", words)
        if surplus:
            await self._reporter.tell(body, "Normal", "Removed", repairs.sentence(surplus))

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
