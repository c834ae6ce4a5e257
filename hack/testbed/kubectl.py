"""kubectl on one cluster, for code that wants answers as values and refusals as errors."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.processes import TestbedError, run, wait_until

_REQUEST_SECONDS = 5


@dataclass(frozen=True)
class Kubectl:
    """The program, the cluster it speaks to, and the namespace it works in."""

    program: Path
    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *arguments: str, document: object | None = None) -> str:
        """Run it, with a document on its standard input if given; return what it prints."""
        return run(
            self.command(*arguments),
            what=f"kubectl {' '.join(arguments)}",
            stdin=None if document is None else json.dumps(document),
        )

    def succeeds(self, *arguments: str) -> bool:
        """Run it without patience; tell whether it worked."""
        command = self.command(f"--request-timeout={_REQUEST_SECONDS}s", *arguments)
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Create or change these objects."""
        every = {"apiVersion": "v1", "kind": "List", "items": documents}
        self("apply", "--filename=-", document=every)

    def establish(self, *crds: Path) -> None:
        """Apply CRDs, and wait until the API server lists and serves their kinds."""
        files = [f"--filename={path}" for path in crds]
        made = self("apply", "--server-side", "--force-conflicts", "--output=name", *files)
        kinds = [name.partition("/")[2] for name in made.split()]
        # Not for the condition: it is null for a moment, and discovery lags behind it.
        wait_until(
            lambda: self.succeeds("get", ",".join(kinds)), what=f"{', '.join(kinds)} are served"
        )

    def make_namespace(self, name: str) -> "Kubectl":
        """Create a namespace, wait until pods can be made in it, and return kubectl within it."""
        self("create", "namespace", name)
        here = self.within(name)
        wait_until(
            lambda: here.succeeds("get", "serviceaccount", "default"),
            what=f"namespace {name} has its service account",
        )
        return here

    def refusal(self, document: Mapping[str, Any]) -> str:
        """Apply what must be refused; return the API server's words."""
        try:
            self.apply(document)
        except TestbedError as error:
            return str(error)
        raise AssertionError(f"this was accepted: {json.dumps(document)}")

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object."""
        answer: dict[str, Any] = json.loads(self("get", kind, name, "--output=json"))
        return answer

    def within(self, namespace: str) -> "Kubectl":
        """Return the same for another namespace."""
        return replace(self, namespace=namespace)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line, for a caller that runs it in its own way."""
        program = [str(self.program), f"--kubeconfig={self.kubeconfig}"]
        return [*program, f"--namespace={self.namespace}", *arguments]
