"""`python -m namedqueue_operator`: the control plane.

It ends on SIGTERM or SIGINT, in good order, and with exit status 1 when a part of it fails for
good; Kubernetes starts it anew and it takes up where things stand. Nothing it knows has to survive.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

from namedqueue.topology import Tenancy
from namedqueue_operator.accounts import Account, read_folder
from namedqueue_operator.brokers import read_secret
from namedqueue_operator.cluster import Cluster, NoCluster
from namedqueue_operator.drifting import Pace
from namedqueue_operator.leading import Lost
from namedqueue_operator.logs import log_as_json
from namedqueue_operator.running import Options, run
from namedqueue_operator.troubles import BrokerTrouble


def main() -> int:
    """Parse the options and run until told to stop."""
    parsed = _parser().parse_args()
    log_as_json(parsed.log_level)
    tenancy = Tenancy(parsed.tenancy)
    namespaces = tuple(parsed.namespace) or None
    options = Options(
        account=_account_reader(parsed, tenancy),
        tenancy=tenancy,
        mqtt_bridge=parsed.mqtt_bridge,
        pace=Pace(parsed.poll_interval, parsed.drift_interval, namespaces),
        give_up=parsed.give_up_deleting,
        port=parsed.port,
        lease=parsed.lease,
    )
    try:
        asyncio.run(run(options))
    except NoCluster as missing:
        print(f"namedqueue_operator: {missing}", file=sys.stderr)  # noqa: T201  # a person started it
        return 2
    except Lost as lost:
        logging.getLogger(__name__).critical("%s", lost, extra={"action": "lead"})
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m namedqueue_operator",
        description="The control plane of NamedQueue: makes what NamedQueues ask for exist on "
        "their brokers, keeps it there, and takes it away again. It speaks to the cluster as its "
        "pod's service account, or as the kubeconfig in KUBECONFIG says.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"namedqueue {version('namedqueue')}")
    broker = parser.add_argument_group("the broker of queues that name no other")
    which = broker.add_mutually_exclusive_group()
    which.add_argument(
        "--broker", type=Path, metavar="DIR", help="a mounted Service Binding Secret"
    )
    which.add_argument(
        "--broker-secret",
        type=_reference,
        metavar="NAMESPACE/NAME",
        help="the same Secret, read from the cluster",
    )
    broker.add_argument(
        "--tenancy",
        choices=list(Tenancy),
        default=Tenancy.DEDICATED,
        help="dedicated: a vhost per namespace and users per queue; shared: only the vhost and "
        "the account in the Secret. A key `tenancy` in a Secret wins. (%(default)s)",
    )
    broker.add_argument(
        "--mqtt-bridge", action="store_true", help="let MQTT clients publish to topics"
    )
    add(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="watch only this namespace; may be repeated (default: all of them)",
    )
    add("--poll-interval", type=_seconds, default=5.0, help="seconds between depths (%(default)g)")
    add(
        "--drift-interval",
        type=_seconds,
        default=30.0,
        help="seconds after which whatever was changed behind our back is found (%(default)g)",
    )
    add(
        "--give-up-deleting",
        type=_seconds,
        default=300.0,
        metavar="SECONDS",
        help="how long a broker that is gone may hold up a deletion (%(default)g)",
    )
    add(
        "--lease",
        type=_reference,
        metavar="NAMESPACE/NAME",
        help="work only while holding this Lease, so that a second replica can stand by",
    )
    add("--port", type=int, default=8080, help="/metrics and /healthz; 0 for none (%(default)s)")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def _account_reader(
    parsed: argparse.Namespace, tenancy: Tenancy
) -> Callable[[Cluster], Awaitable[Account]]:
    """Return what reads the account of the operator's own broker, as it is at that moment."""

    async def read(cluster: Cluster) -> Account:
        if parsed.broker is not None:
            return read_folder(parsed.broker, tenancy=tenancy)
        if parsed.broker_secret is not None:
            found = await cluster.secret(*parsed.broker_secret)
            return read_secret(found, parsed.broker_secret, tenancy=tenancy)
        raise BrokerTrouble(
            "NoBroker",
            "the operator has no broker of its own; write spec.brokerSecretRef, or start the "
            "operator with --broker or --broker-secret",
        )

    return read


def _reference(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME")
    return namespace, name


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
