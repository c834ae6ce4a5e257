"""Helm, and Debian's promtool."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed import debian
from testbed.helm import Helm
from testbed.localcluster import binaries
from testbed.processes import TestbedError

SERVED = {"watchNamespaces": ["shop"]}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build and install what is missing before any test's time-out runs."""
    if not session.config.option.collectonly:
        with suppress(TestbedError):
            binaries.ensure(["helm"])
            debian.ensure_packages("prometheus")


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(binaries.path("helm"))


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Give the program that tests alert rules."""
    debian.ensure_packages("prometheus")
    return Path("/usr/bin/promtool")


@pytest.fixture(scope="session")
def rules(helm: Helm) -> dict[str, Any]:
    """Give the alert rules as an installation gets them, with the defaults."""
    values = {**SERVED, "alerts": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    [rule] = [each for each in helm.render(values) if each["kind"] == "PrometheusRule"]
    groups: dict[str, Any] = rule["spec"]
    return groups
