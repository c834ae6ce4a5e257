"""`python -m namedqueue_operator`: the control plane.

It ends on SIGTERM or SIGINT, in good order, and with exit status 1 when a part of it fails for
good; Kubernetes starts it anew and it takes up where things stand. Nothing it knows has to survive.
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from namedqueue.topology import Tenancy
from namedqueue_operator import stores
from namedqueue_operator.accounts import Account, read_folder
from namedqueue_operator.brokers import read_secret
from namedqueue_operator.cluster import Cluster, NoCluster, Refused
from namedqueue_operator.drifting import Pace
from namedqueue_operator.leading import Lost
from namedqueue_operator.logs import log_as_json
from namedqueue_operator.running import Options, run
from namedqueue_operator.sidecars import Sidecar
from namedqueue_operator.stores import Provision
from namedqueue_operator.troubles import BrokerTrouble, StoreTrouble
from namedqueue_operator.watching import Hearing
from namedqueue_operator.webhooks import Webhook

_NINETY_DAYS: Final = 90 * 24 * 3600.0


def main() -> int:
    """Parse the options and run until told to stop."""
    parser = _parser()
    parsed = parser.parse_args()
    if parsed.webhook_configuration and not (parsed.webhook_secret and parsed.sidecar_image):
        parser.error("--webhook-configuration needs --webhook-secret and --sidecar-image")
    log_as_json(parsed.log_level)
    tenancy = Tenancy(parsed.tenancy)
    namespaces = tuple(parsed.namespace) or None
    options = Options(
        account=_account_reader(parsed, tenancy),
        store=_store_reader(parsed),
        tenancy=tenancy,
        mqtt_bridge=parsed.mqtt_bridge,
        pace=Pace(parsed.poll_interval, parsed.drift_interval, namespaces),
        hearing=Hearing(parsed.watch_span),
        give_up=parsed.give_up_deleting,
        port=parsed.port,
        lease=parsed.lease,
        sidecar=_sidecar(parsed),
        webhook=_webhook(parsed),
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
    store = parser.add_argument_group(
        "the store of idempotency and dead-letter records: a PostgreSQL, one for all queues"
    ).add_mutually_exclusive_group()
    store.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="a mounted Service Binding Secret (connection_string or uri; or host, port, username, "
        "password, database; ca.crt), handed on to the pods that consume; without one there is "
        "no store, and queues with spec.idempotency wait",
    )
    store.add_argument(
        "--store-secret",
        type=_reference,
        metavar="NAMESPACE/NAME",
        help="the same Secret, read from the cluster",
    )
    workers = parser.add_argument_group("the sidecar of workers and of pods that ask for one")
    workers.add_argument("--sidecar-image", metavar="IMAGE", help="without it there are none")
    workers.add_argument(
        "--sidecar-resources",
        type=_resources,
        metavar="JSON",
        help="requests and limits of its container, as a pod's specification has them",
    )
    webhook = parser.add_argument_group("the webhook that puts the sidecar into labelled pods")
    webhook.add_argument(
        "--webhook-configuration",
        metavar="NAME",
        help="the MutatingWebhookConfiguration that calls it; without one it is not served",
    )
    webhook.add_argument(
        "--webhook-secret",
        type=_reference,
        metavar="NAMESPACE/NAME",
        help="where its certificates are kept, for all replicas",
    )
    webhook.add_argument("--webhook-port", type=int, default=9443, help="its port (%(default)s)")
    webhook.add_argument(
        "--webhook-certificate-lifetime",
        type=_seconds,
        default=_NINETY_DAYS,
        metavar="SECONDS",
        help="a third of it before the end, a certificate is replaced (%(default)g)",
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
        "--watch-span",
        type=_whole_seconds,
        default=Hearing.span,
        metavar="SECONDS",
        help="how long the API server shall keep a watch open; one without a word for a sixth more "
        "is taken for silent and asked for anew (%(default)s)",
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
    add(
        "--port",
        type=int,
        default=8080,
        help="/metrics and /healthz/live; 0 for none (%(default)s)",
    )
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


def _store_reader(parsed: argparse.Namespace) -> Callable[[Cluster], Awaitable[Provision]]:
    """Return what tells where the store is, as it is at that moment."""

    async def read(cluster: Cluster) -> Provision:
        try:
            if parsed.store is not None:
                return stores.read_folder(parsed.store)
            if parsed.store_secret is not None:
                found = await cluster.secret(*parsed.store_secret)
                return stores.read_secret(found, parsed.store_secret)
        except Refused as refusal:
            return StoreTrouble("SecretRefused", f"the API server refuses: {refusal}")
        except StoreTrouble as trouble:
            return trouble
        return None

    return read


def _sidecar(parsed: argparse.Namespace) -> Sidecar | None:
    if parsed.sidecar_image is None:
        return None
    chosen = {} if parsed.sidecar_resources is None else {"resources": parsed.sidecar_resources}
    return Sidecar(parsed.sidecar_image, **chosen)


def _webhook(parsed: argparse.Namespace) -> Webhook | None:
    if parsed.webhook_configuration is None:
        return None
    return Webhook(
        port=parsed.webhook_port,
        secret=parsed.webhook_secret,
        configuration=parsed.webhook_configuration,
        lifetime=parsed.webhook_certificate_lifetime,
    )


def _resources(text: str) -> dict[str, Any]:
    try:
        resources = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"this is not JSON: {error}") from None
    if not isinstance(resources, dict) or not resources.keys() <= {"requests", "limits", "claims"}:
        raise argparse.ArgumentTypeError('write it as {"requests": {…}, "limits": {…}}')
    return resources


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


def _whole_seconds(text: str) -> int:
    seconds = int(text)
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of seconds above 0")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
