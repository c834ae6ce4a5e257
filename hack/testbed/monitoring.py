"""The kinds of the Prometheus operator: its CRDs, out of its own Go module.

The chart's monitors and alert rules are objects of these kinds, and only their schemas can tell
whether an API server that has them would take ours.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed.processes import run

_MODULE = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
_GROUP = "monitoring.coreos.com"
_KINDS = ("podmonitors", "prometheusrules", "servicemonitors")


def crds() -> list[Mapping[str, Any]]:
    """Return the CRDs of monitors and rules."""
    told = run(["go", "mod", "download", "-json", _MODULE], what=f"go mod download {_MODULE}")
    folder = Path(json.loads(told)["Dir"]) / "example" / "prometheus-operator-crd"
    return [yaml.safe_load((folder / f"{_GROUP}_{kind}.yaml").read_text()) for kind in _KINDS]
