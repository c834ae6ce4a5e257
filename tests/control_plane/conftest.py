"""The API server with our CRDs on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.api_server import ApiServer
from fixtures.kubernetes import ControlPlane
from testbed.kubectl import Kubectl

_FILES = [f"--filename={path}" for path in (Path(__file__).parents[2] / "crds").glob("*.yaml")]


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> None:
    """Put the CRDs in place, and wait until the API server serves them."""
    kubectl = Kubectl(control_plane.kubectl, control_plane.kubeconfig)
    kubectl("apply", "--server-side", "--force-conflicts", *_FILES)
    kubectl("wait", "--for=condition=Established", "--timeout=60s", *_FILES)


@pytest.fixture(scope="session")
def api_server(control_plane: ControlPlane, crds: None) -> Iterator[ApiServer]:  # noqa: ARG001  # the CRDs come first
    """Give a namespace of one's own on an API server that knows our kinds."""
    with ApiServer.connect(control_plane.kubeconfig) as server:
        yield server
