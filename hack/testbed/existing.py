"""A cluster that is there already, named by a kubeconfig. It is used, never changed or ended.

Which one: `NQ_TEST_KUBECONFIG`, or else `KUBECONFIG`, as kubectl reads it.
"""

import os
import shutil
from pathlib import Path

from testbed.kubectl import Kubectl
from testbed.localcluster import binaries
from testbed.processes import TestbedError


class ExistingCluster:
    """Somebody else's cluster that we may use."""

    provider = "existing"
    audit_log: Path | None = None
    host_address: str | None = None

    def __init__(self, kubeconfig: Path) -> None:
        self.name = str(kubeconfig)
        self.kubeconfig = kubeconfig

    @property
    def kubectl(self) -> Path:
        return _own_or_found("kubectl")

    @property
    def helm(self) -> Path:
        return _own_or_found("helm")

    @property
    def node_names(self) -> list[str]:
        return self._ask("get", "nodes", "--output=name").replace("node/", "").split()

    def load_image(self, archive: Path) -> None:
        """Refuse: only its owner knows how an image gets there."""
        raise TestbedError(
            f"{archive} cannot be loaded into the cluster of {self.kubeconfig}: push the image to "
            "a registry which that cluster pulls from"
        )

    def stop_node(self, name: str) -> None:
        raise TestbedError(f"{name} is not ours to stop: the cluster of {self.kubeconfig} is used")

    def start_node(self, name: str) -> None:
        raise TestbedError(f"{name} is not ours to start: the cluster of {self.kubeconfig} is used")

    def stop(self) -> None:
        """Leave it as it is."""

    def logs(self) -> dict[str, Path]:
        """Return nothing: its components' logs are its owner's."""
        return {}

    def broken_parts(self) -> list[str]:
        """Return what keeps it from being used."""
        try:
            self._ask("get", "--raw", "/readyz")
        except TestbedError:
            return ["its API server"]
        return []

    def describe(self) -> list[str]:
        """Say which cluster it is."""
        server = self._ask(
            "config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}"
        )
        return [f"server      {server}", f"kubeconfig  {self.kubeconfig}"]

    def _ask(self, *arguments: str) -> str:
        return Kubectl(self.kubectl, self.kubeconfig)("--request-timeout=10s", *arguments)


def find() -> ExistingCluster | None:
    """Return the cluster that the environment names, if it names one."""
    named = os.environ.get("NQ_TEST_KUBECONFIG") or os.environ.get("KUBECONFIG")
    if not named:
        return None
    first = Path(named.split(os.pathsep)[0]).expanduser()
    if not first.is_file():
        raise TestbedError(f"KUBECONFIG names {first}, which does not exist: correct or unset it")
    return ExistingCluster(first)


def _own_or_found(name: str) -> Path:
    """Prefer the pinned program; without Go, take what the machine has."""
    if binaries.missing([name]) and shutil.which("go") is None:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    return binaries.path(name)
