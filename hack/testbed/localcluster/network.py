"""The wires of a cluster: one bridge on this machine, one cable to each node.

No firewall or NAT rule is made on this machine and none is needed: nodes talk over the bridge,
and this machine reaches pods and Services by routes through the nodes. Removing the bridge
removes the routes with it.
"""

import json
import zlib
from collections.abc import Sequence
from ipaddress import IPv4Network, ip_network
from pathlib import Path

from testbed.localcluster.blueprint import Blueprint, NodePlan
from testbed.processes import TestbedError, run

_FIRST_SUBNET, _LAST_SUBNET = 180, 249
# A route to the whole of 10.0.0.0/8 is a VPN or a default of sorts: a narrower one may beside it.
_WHOLE_TEN = 8


def choose_subnet(name: str) -> int:
    """Return an x for which 10.x.0.0/16 is not in use here; the same for a name if possible."""
    taken = _networks_in_use()
    count = _LAST_SUBNET - _FIRST_SUBNET + 1
    first = zlib.crc32(name.encode())
    for offset in range(count):
        subnet = _FIRST_SUBNET + (first + offset) % count
        wanted = IPv4Network(f"10.{subnet}.0.0/16")
        if not any(wanted.overlaps(network) for network in taken):
            return subnet
    raise TestbedError("every 10.x.0.0/16 that a cluster could use is routed elsewhere already")


def make_bridge(plan: Blueprint) -> None:
    """Make the bridge, with this machine's address on it."""
    _ip("link", "add", plan.bridge, "type", "bridge", "forward_delay", "0")
    _ip("address", "add", f"{plan.host_address}/24", "dev", plan.bridge)
    _ip("link", "set", plan.bridge, "up")


def connect(plan: Blueprint, node: NodePlan, pid: int) -> None:
    """Lay the cable from the bridge into the namespace of process `pid`, as its eth0."""
    disconnect(node)
    peer = ["peer", "name", "eth0", "netns", str(pid)]
    _ip("link", "add", node.host_link, "type", "veth", *peer)
    _ip("link", "set", node.host_link, "master", plan.bridge, "up")


def disconnect(node: NodePlan) -> None:
    """Cut the cable; the end inside the node goes with it."""
    _delete(node.host_link)


def route(plan: Blueprint, running: Sequence[NodePlan]) -> None:
    """Reach each running node's pods through it, and Services through the first of them."""
    for node in running:
        _ip("route", "replace", node.pod_range, "via", node.address, "dev", plan.bridge)
    if running:
        through = running[0].address
        _ip("route", "replace", plan.service_range, "via", through, "dev", plan.bridge)


def remove_bridge(plan: Blueprint) -> None:
    for node in plan.nodes:
        disconnect(node)
    _delete(plan.bridge)


def _delete(link: str) -> None:
    """Delete a link, if it does not go by itself meanwhile because its other end did."""
    path = Path("/sys/class/net", link)
    if not path.exists():
        return
    try:
        _ip("link", "delete", link)
    except TestbedError:
        if path.exists():
            raise


def _networks_in_use() -> list[IPv4Network]:
    routes = json.loads(_ip("-json", "-4", "route", "show", "table", "all") or "[]")
    destinations = [each["dst"] for each in routes if each["dst"] != "default"]
    networks = [ip_network(destination, strict=False) for destination in destinations]
    return [
        each for each in networks if isinstance(each, IPv4Network) and each.prefixlen > _WHOLE_TEN
    ]


def _ip(*arguments: str) -> str:
    return run(["ip", *arguments], what=f"ip {' '.join(arguments)}")
