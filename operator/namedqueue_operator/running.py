"""The parts put together, for as long as the process runs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import kopf

from namedqueue.topology import Tenancy
from namedqueue_operator import handlers, metrics
from namedqueue_operator.accounts import Account
from namedqueue_operator.brokers import Brokers
from namedqueue_operator.cluster import Cluster
from namedqueue_operator.deleting import Deleter
from namedqueue_operator.drifting import Drift, Pace
from namedqueue_operator.fleets import Fleets
from namedqueue_operator.following import Follower
from namedqueue_operator.inventory import Inventory
from namedqueue_operator.leading import Lease
from namedqueue_operator.reconciling import Reconciler
from namedqueue_operator.redriving import Redriver
from namedqueue_operator.reporting import Reporter
from namedqueue_operator.serving import observers
from namedqueue_operator.sidecars import Sidecar
from namedqueue_operator.stores import Provision
from namedqueue_operator.tending import Tender
from namedqueue_operator.watching import Hearing, Watches
from namedqueue_operator.webhooks import Webhook, serve


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person decides."""

    account: Callable[[Cluster], Awaitable[Account]]
    store: Callable[[Cluster], Awaitable[Provision]]
    tenancy: Tenancy
    mqtt_bridge: bool
    pace: Pace
    hearing: Hearing
    give_up: float
    port: int
    lease: tuple[str, str] | None
    sidecar: Sidecar | None
    webhook: Webhook | None


async def run(options: Options) -> None:
    """Serve until told to stop, or until a part of it fails for good."""
    cluster = await Cluster.connect()
    brokers = Brokers(
        cluster,
        partial(options.account, cluster),
        tenancy=options.tenancy,
        mqtt_bridge=options.mqtt_bridge,
    )
    watches = Watches(options.hearing)
    try:
        async with observers(options.port, watches, poll=options.pace.poll):
            parts = [_lead(options, cluster, brokers, watches)]
            if options.webhook is not None and options.sidecar is not None:
                parts.append(serve(cluster, options.webhook, options.sidecar))
            await _first(*parts)
    finally:
        await brokers.close()
        await cluster.close()


async def _lead(options: Options, cluster: Cluster, brokers: Brokers, watches: Watches) -> None:
    """Work while we hold the Lease; without one to hold, at once."""
    if options.lease is None:
        await _control(options, cluster, brokers, watches)
        return
    lease = Lease(cluster, *options.lease)
    await lease.acquire()
    try:
        await _first(_control(options, cluster, brokers, watches), lease.hold())
    finally:
        await lease.release()


async def _control(options: Options, cluster: Cluster, brokers: Brokers, watches: Watches) -> None:
    """Watch and mend until told to stop."""
    metrics.LEADING.set(1)
    inventory = Inventory()
    reporter = Reporter(cluster, inventory)
    tender = Tender(cluster, inventory, reporter, options.sidecar, options.pace)
    store = partial(options.store, cluster)
    reconciler = Reconciler(cluster, brokers, inventory, reporter, tender.tend, store)
    deleter = Deleter(brokers, inventory, reporter, give_up=options.give_up)
    fleets = Fleets()
    follower = Follower(cluster, inventory, fleets, reporter, poll=options.pace.poll)
    drift = Drift(cluster, brokers, inventory, reconciler, reporter, follower, store, options.pace)
    redriver = Redriver(cluster, inventory, options.sidecar, poll=options.pace.poll)
    watching = kopf.operator(
        registry=handlers.registry(
            inventory, fleets, reconciler, deleter, drift, tender, redriver, watches
        ),
        settings=handlers.settings(options.hearing),
        standalone=True,
        clusterwide=options.pace.namespaces is None,
        namespaces=options.pace.namespaces or (),
    )
    await _first(watching, drift.run(), tender.run(), redriver.run())


async def _first(*parts: Coroutine[Any, Any, None]) -> None:
    """Run the parts until one of them ends, by itself or in an error; then end the others."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
