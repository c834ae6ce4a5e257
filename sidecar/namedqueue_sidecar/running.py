"""The sidecar as a process: its options, its life, its end.

It ends in one of four ways. After a drain (`POST /drain`, which the pod's preStop calls) SIGTERM
ends it at once. Without one SIGTERM drains first, for as long as `--grace` allows. A second
SIGTERM ends it where it stands; the broker then gives out again what was in flight. And a queue
that moved to another broker ends it like a SIGTERM, for the kubelet to start it anew over there.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from namedqueue.api.namedqueue import Ephemeral
from namedqueue_sidecar import looping, manifests
from namedqueue_sidecar.api.server import Server
from namedqueue_sidecar.bindings import Bindings
from namedqueue_sidecar.brokers.port import Broker, QueueKey
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials
from namedqueue_sidecar.logs import log_as_json
from namedqueue_sidecar.manifests import Mounted
from namedqueue_sidecar.plane import Plane
from namedqueue_sidecar.store.mounts import store_in
from namedqueue_sidecar.store.port import Store


@dataclass(frozen=True)
class Given:
    """What was mounted: manifests, ways to their brokers, and what would make us begin anew."""

    folder: Path
    pattern: str
    brokers: Callable[[], Broker]
    only_produced: frozenset[QueueKey]
    store: Path | None
    moved: Callable[[], Coroutine[Any, Any, None]]


def main() -> int:
    """Parse the options and run until told to stop."""
    options = _options()
    log_as_json(options.log_level)
    try:
        given = _given(options)
        store = store_in(given.store)
        mounted = manifests.load(given.folder, given.pattern)
    except (OSError, ValueError) as error:
        print(f"namedqueue_sidecar: {error}", file=sys.stderr)  # noqa: T201
        return 2
    looping.run(_run(options, given, mounted, store))
    return 0


def _given(options: argparse.Namespace) -> Given:
    """Return what the options lead to, or raise a ValueError about what is missing there."""
    if options.bindings is not None:
        bindings = Bindings.find(options.bindings, options.namespace)
        only_produced = bindings.only_produced
        where = (options.bindings, "*/*/*.json")
        store = options.store or bindings.store
        return Given(*where, bindings.brokers, only_produced, store, bindings.moved)
    Credentials.from_folder(options.broker)
    broker = partial(
        RabbitMQBroker,
        partial(Credentials.from_folder, options.broker),
        vhost=options.vhost or f"nq-{options.namespace}",
    )
    return Given(options.queues, "*.json", broker, frozenset(), options.store, _never)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m namedqueue_sidecar",
        description="The data plane beside an app: takes jobs in over HTTP and hands them to it.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"namedqueue {version('namedqueue')}")
    add(
        "--bindings",
        type=Path,
        metavar="DIR",
        help="consume/QUEUE and produce/QUEUE, each with the NamedQueue as a JSON file and the "
        "keys of a Service Binding Secret, as the operator mounts them",
    )
    add("--queues", type=Path, metavar="DIR", help="or: the NamedQueues, as JSON files")
    add("--broker", type=Path, metavar="DIR", help="and one Service Binding Secret for all")
    add("--store", type=Path, metavar="DIR", help="a PostgreSQL's Secret, if no binding has one")
    add("--namespace", required=True, help="the namespace that the API serves")
    add("--vhost", help="the broker's vhost; by default nq-NAMESPACE")
    add("--produce-only", action="store_true", help="take jobs in, work none off")
    add(
        "--allow-ephemeral",
        action="store_true",
        help="let a job for an unknown queue make an ephemeral one; with --broker only, and its "
        "account has to be one that may declare",
    )
    add(
        "--allow-edit",
        action="store_true",
        help="let a dead letter be sent back with another payload",
    )
    add("--host", default="127.0.0.1", help="where the API listens (%(default)s)")
    add("--port", type=int, default=3550, help="the API's port (%(default)s)")
    add("--observe-host", default="0.0.0.0", help="where health and metrics are (%(default)s)")  # noqa: S104
    add("--observe-port", type=int, default=3551, help="their port (%(default)s)")
    add("--grace", type=float, default=25.0, metavar="SECONDS", help="for a drain (%(default)s)")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    options = parser.parse_args()
    one_account = options.queues is not None and options.broker is not None
    if (options.bindings is None) != one_account:
        parser.error("give --bindings, or else --queues and --broker")
    if options.allow_ephemeral and options.bindings is not None:
        parser.error("--allow-ephemeral needs --broker; the accounts of --bindings declare nothing")
    return options


async def _run(
    options: argparse.Namespace,
    given: Given,
    mounted: Mounted,
    store: Callable[[], Store] | None,
) -> None:
    plane = Plane(
        given.brokers(),
        options.namespace,
        grace=options.grace,
        allow_ephemeral=Ephemeral() if options.allow_ephemeral else None,
        allow_edit=options.allow_edit,
        store=store() if store is not None else None,
    )
    server = Server(plane)

    async def apply(mounted: Mounted) -> None:
        await plane.apply(
            mounted.queues,
            declare=False,
            work=not options.produce_only,
            only_produced=given.only_produced,
            shares=mounted.shares,
        )

    stop = {asyncio.create_task(_signalled()), asyncio.create_task(given.moved())}
    try:
        # Known before anybody can ask: while the broker is away a queue is unavailable, not
        # unknown. And the kubelet starts the app as soon as the observers' port answers.
        await apply(mounted)
        await server.listen(options.host, options.port)
        await server.listen_for_observers(options.observe_host, options.observe_port)
        following = manifests.watch(given.folder, apply, given.pattern)
        working = asyncio.create_task(_work(plane, following))
        ended, _ = await asyncio.wait({*stop, working}, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        await plane.drain(options.grace)
        if working in ended:
            working.result()
    finally:
        await server.close()
        await plane.close()


async def _work(plane: Plane, following: Coroutine[Any, Any, None]) -> None:
    """Connect, and follow the manifests; never returns."""
    stores = [] if plane.store is None else [plane.store.open()]
    await asyncio.gather(plane.broker.open(), *stores, following)


async def _never() -> None:
    await asyncio.Event().wait()


async def _signalled() -> None:
    """Return at the first SIGTERM or SIGINT; the next one is not caught."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, told.set)
    await told.wait()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(sign)
