"""Where a cluster comes from: one that exists, kind, or the local build; all behind one face.

    cluster = providers.start("mine", control_plane_only=True)
    ... cluster.kubeconfig, cluster.kubectl ...
    cluster.stop()

Unless told otherwise the first that can be had is taken, in that order.
"""

import re
import shutil
from pathlib import Path
from typing import Literal, Protocol, get_args

from testbed import existing, kind
from testbed.localcluster import binaries
from testbed.localcluster import provider as local
from testbed.processes import TestbedError
from testbed.progress import say

Provider = Literal["existing", "kind", "local"]
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")
PROVIDERS: tuple[Provider, ...] = get_args(Provider)


class Cluster(Protocol):
    """What every provider's cluster can do."""

    @property
    def provider(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def kubeconfig(self) -> Path: ...
    @property
    def kubectl(self) -> Path: ...
    @property
    def helm(self) -> Path: ...
    @property
    def node_names(self) -> list[str]: ...
    @property
    def audit_log(self) -> Path | None:
        """Who asked the API server for what, one JSON object a line; None if out of reach."""

    @property
    def host_address(self) -> str | None:
        """Return where pods reach a server of this machine; None if they cannot."""

    def load_image(self, archive: Path) -> None: ...
    def stop_node(self, name: str) -> None: ...
    def start_node(self, name: str) -> None: ...
    def stop(self) -> None: ...
    def logs(self) -> dict[str, Path]: ...
    def broken_parts(self) -> list[str]: ...
    def describe(self) -> list[str]: ...


def start(
    name: str,
    *,
    nodes: int = 1,
    control_plane_only: bool = False,
    provider: Provider | None = None,
) -> Cluster:
    """Return a running cluster; one of this name that runs already is taken as it is."""
    if not _NAME.fullmatch(name):
        raise TestbedError(f"{name!r} is no name for a cluster: use a-z, 0-9 and - in between")
    chosen = provider or choose(name)
    if chosen == "existing":
        return _existing()
    if chosen == "kind":
        return kind.start(name, nodes=nodes)
    return local.start(name, nodes=nodes, control_plane_only=control_plane_only)


def find(name: str) -> Cluster | None:
    """Return the cluster of this name that was started here, in whatever state it is."""
    return local.find(name) or kind.find(name)


def choose(name: str) -> Provider:
    """Return the provider for a cluster of this name: the one that has it, or else the first."""
    if local.find(name) is not None:
        return "local"
    if kind.find(name) is not None:
        return "kind"
    if existing.find() is not None:
        return "existing"
    return "kind" if kind.usable() else "local"


def build(*, control_plane_only: bool = False) -> None:
    """Make beforehand whatever a later `start` would otherwise have to build."""
    if existing.find() is None and not kind.usable():
        local.build(control_plane_only=control_plane_only)


def unavailable_reason() -> str | None:
    """Say in a sentence why no API server can be had here; None if one can."""
    if shutil.which("go") is not None or not binaries.missing(binaries.CONTROL_PLANE):
        return None
    if existing.find() is not None or kind.usable():
        return None
    return (
        "no API server can be had: KUBECONFIG is not set, Docker cannot run kind, and there is no "
        "Go to build Kubernetes; provide any one of the three (installing Go is the least work)"
    )


def _existing() -> Cluster:
    found = existing.find()
    if found is None:
        raise TestbedError("set KUBECONFIG to the kubeconfig of the cluster to use")
    if found.broken_parts():
        raise TestbedError(f"the cluster of {found.kubeconfig} does not answer as ready")
    say(f"using the cluster of {found.kubeconfig}")
    return found
