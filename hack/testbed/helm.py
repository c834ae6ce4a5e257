"""The chart as Helm renders it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.processes import TestbedError, run

CHART = Path(__file__).parents[2] / "charts/namedqueue"
_KUBERNETES = "--kube-version=1.34"


@dataclass(frozen=True)
class Helm:
    """The program."""

    program: Path

    def render(
        self, values: Mapping[str, Any], *, release: str = "namedqueue", namespace: str = "default"
    ) -> list[dict[str, Any]]:
        """Return the objects that an installation with these values would consist of."""
        text = run(
            [self.program, "template", release, CHART, *_options(namespace)],
            what="helm template",
            stdin=json.dumps(values),
        )
        return [document for document in yaml.safe_load_all(text) if document]

    def refusal(self, values: Mapping[str, Any]) -> str:
        """Render what must be refused; return Helm's words."""
        try:
            self.render(values)
        except TestbedError as error:
            return str(error)
        raise AssertionError(f"this was accepted: {json.dumps(values)}")

    def notes(self, values: Mapping[str, Any], *, kubeconfig: Path, namespace: str) -> str:
        """Return what a person would read after an installation with these values."""
        where = [f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"]
        text = run(
            [
                self.program,
                "install",
                "namedqueue",
                CHART,
                *where,
                "--values=-",
                "--dry-run=server",
            ],
            what="helm install",
            stdin=json.dumps(values),
        )
        return text.partition("NOTES:\n")[2]


def _options(namespace: str) -> list[str]:
    return [f"--namespace={namespace}", _KUBERNETES, "--values=-"]
