"""The reference of the metrics in `docs/reference/`, read off the collectors themselves."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

from prometheus_client.metrics import MetricWrapperBase

import namedqueue_operator
import namedqueue_sidecar

_INTRO = """\
<!-- Made by `make generate` from the collectors of operator and sidecar. Do not edit. -->

# Metrics

Beside these there are what Prometheus's client for Python tells of its process: `process_…` and
`python_…`. The labels `namespace` and `queue` say whose jobs a figure is about; scrape with
`honorLabels`, as the chart's monitors do. The [dashboard](../dashboard.md) and the
[alerts](../runbooks/) are made of nothing else.
"""
_ROOMS = {
    "From the operator, at `:8080/metrics`": namedqueue_operator,
    "From each sidecar, at `:3551/metrics`": namedqueue_sidecar,
}


class Metric(NamedTuple):
    """A metric as it is scraped, with the names of all its series."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    series: tuple[str, ...]


def files() -> dict[str, str]:
    """Return one page for both rooms."""
    sections = (
        line for title, room in _ROOMS.items() for line in _section(title, list(measured(room)))
    )
    return {"docs/reference/metrics.md": "\n".join([_INTRO, *sections])}


def measured(room: ModuleType) -> Iterator[Metric]:
    """Find the collectors in all modules of a room."""
    for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        if found.name.endswith(".__main__"):
            continue
        for each in vars(importlib.import_module(found.name)).values():
            if isinstance(each, MetricWrapperBase):
                yield _metric(each)


def everything() -> dict[str, tuple[str, ...]]:
    """Return the names of all series of ours, each with its labels."""
    return {
        series: metric.labels
        for room in _ROOMS.values()
        for metric in measured(room)
        for series in metric.series
    }


def _metric(collector: MetricWrapperBase) -> Metric:
    [family] = collector.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    endings = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
    # Nothing public tells the labels of a metric that has no series yet.
    labels = tuple(collector._labelnames)  # noqa: SLF001
    series = tuple(f"{name}{ending}" for ending in endings)
    return Metric(name, family.type, labels, family.documentation, series)


def _section(title: str, metrics: list[Metric]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| metric | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for each in sorted(set(metrics)):
        labels = ", ".join(f"`{label}`" for label in each.labels)
        yield f"| `{each.name}` | {each.kind} | {labels} | {each.meaning} |"
    yield ""
