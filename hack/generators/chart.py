"""The chart's CRDs, and the reference of its values.

Helm never upgrades what lies in a chart's `crds/`, so the CRDs are templates, behind a value. They
are written as text: a template engine that read them would write large numbers as fractions.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from generators import crds

_CHART = Path(__file__).parents[2] / "charts/namedqueue"
_METADATA = """\
  labels: {{- include "namedqueue.labels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations: {helm.sh/resource-policy: keep}
  {{- end }}
"""
_PAGE = """\
<!-- Made by `make generate` from charts/namedqueue/values.yaml. Do not edit. -->

# Values of the chart

A value that is not in this list is refused by name.

| value | default | meaning |
|---|---|---|
"""


def files() -> dict[str, str]:
    """Return a template for each CRD, and the page of values."""
    templates = {
        f"charts/namedqueue/templates/crd-{Path(path).name}": _template(text)
        for path, text in crds.files().items()
    }
    values = (_CHART / "values.yaml").read_text()
    rows = "".join(f"| {' | '.join(row)} |\n" for row in _rows(values))
    return {**templates, "docs/reference/values.md": _PAGE + rows}


def _template(crd: str) -> str:
    """Put a CRD's text behind `crds.enabled`, with the chart's metadata after its name."""
    if "{{" in crd:
        raise ValueError("a CRD has {{ in it, which Helm would read; write it in another way")
    head, _, tail = crd.partition("\nspec:\n")
    return f"{{{{- if .Values.crds.enabled }}}}\n{head}\n{_METADATA}spec:\n{tail}{{{{- end }}}}\n"


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Read off each value that has a comment: its path, its default, the comment."""
    defaults = yaml.safe_load(text)
    path: list[str] = []
    said: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("#"):
            said.append(words.removeprefix("#").strip())
            continue
        key, colon, _ = words.partition(":")
        if colon:
            path[(len(line) - len(line.lstrip())) // 2 :] = [key]
            if said:
                yield _row(path, defaults, " ".join(said))
        said = []


def _row(path: list[str], defaults: Any, said: str) -> tuple[str, str, str]:
    value = defaults
    for key in path:
        value = value[key]
    shown = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000)
    shown = shown.removesuffix("...\n").strip()
    return f"`{'.'.join(path)}`", f"`{shown}`", said
