"""`python -m namedqueue_sidecar`: the data plane beside an app in a pod.

It ends in one of three ways. After a drain (`POST /drain`, which the pod's preStop calls) SIGTERM
ends it at once. Without one SIGTERM drains first, for as long as `--grace` allows. A second
SIGTERM ends it where it stands; the broker then gives out again what was in flight.
"""

import argparse
import asyncio
import signal
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import uvloop

from namedqueue.api.namedqueue import NamedQueue
from namedqueue_sidecar import manifests
from namedqueue_sidecar.api.server import Server
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials
from namedqueue_sidecar.logs import log_as_json
from namedqueue_sidecar.plane import Plane


def main() -> int:
    """Parse the options and run until told to stop."""
    options = _options()
    log_as_json(options.log_level)
    try:
        queues = manifests.load(options.queues)
        Credentials.from_folder(options.broker)
    except (OSError, ValueError) as error:
        print(f"namedqueue_sidecar: {error}", file=sys.stderr)  # noqa: T201
        return 2
    uvloop.run(_run(options, queues))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m namedqueue_sidecar",
        description="The data plane beside an app: takes jobs in over HTTP and hands them to it.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"namedqueue {version('namedqueue')}")
    add("--queues", type=Path, required=True, metavar="DIR", help="the NamedQueues, as JSON files")
    add(
        "--broker", type=Path, required=True, metavar="DIR", help="a mounted Service Binding Secret"
    )
    add("--namespace", required=True, help="the namespace that the API serves")
    add("--vhost", help="the broker's vhost; by default nq-NAMESPACE")
    add("--produce-only", action="store_true", help="take jobs in, work none off")
    add("--host", default="127.0.0.1", help="where the API listens (%(default)s)")
    add("--port", type=int, default=3550, help="the API's port (%(default)s)")
    add("--observe-host", default="0.0.0.0", help="where health and metrics are (%(default)s)")  # noqa: S104
    add("--observe-port", type=int, default=3551, help="their port (%(default)s)")
    add("--grace", type=float, default=25.0, metavar="SECONDS", help="for a drain (%(default)s)")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser.parse_args()


async def _run(options: argparse.Namespace, queues: list[NamedQueue]) -> None:
    broker = RabbitMQBroker(
        partial(Credentials.from_folder, options.broker),
        vhost=options.vhost or f"nq-{options.namespace}",
    )
    plane = Plane(broker, options.namespace, grace=options.grace)
    server = Server(plane)
    stop = asyncio.create_task(_signalled())
    try:
        # Known before anybody can ask: while the broker is away a queue is unavailable, not
        # unknown. And the kubelet starts the app as soon as the observers' port answers.
        await plane.apply(queues, declare=False, work=not options.produce_only)
        await server.listen(options.host, options.port)
        await server.listen_for_observers(options.observe_host, options.observe_port)
        working = asyncio.create_task(_work(plane, options))
        ended, _ = await asyncio.wait({stop, working}, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        await plane.drain(options.grace)
        if working in ended:
            working.result()
    finally:
        await server.close()
        await plane.close()


async def _work(plane: Plane, options: argparse.Namespace) -> None:
    """Connect, and follow the manifests; never returns."""

    async def apply(wanted: list[NamedQueue]) -> None:
        await plane.apply(wanted, declare=False, work=not options.produce_only)

    await asyncio.gather(plane.broker.open(), manifests.watch(options.queues, apply))


async def _signalled() -> None:
    """Return at the first SIGTERM or SIGINT; the next one is not caught."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, told.set)
    await told.wait()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(sign)


if __name__ == "__main__":
    sys.exit(main())
