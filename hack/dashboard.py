"""The chart's dashboard without Grafana: its own queries asked of a Prometheus, and drawn.

Each panel keeps its title, its place and its unit. `make docs` draws the picture in the docs from a
release that the tests in pods install, use and upgrade.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from testbed.helm import CHART
from testbed.prometheus import Prometheus

_VARIABLES: Final = {"$namespace": ".*", "$queue": ".*", "$__rate_interval": "15s"}
_POINTS: Final = 120
_COLUMNS, _MANY = 24, 4
_WIDTH, _HEIGHT = 15.0, 0.3
_UNITS: Final = {
    "s": "seconds",
    "ops": "a second",
    "percentunit": "part",
    "bool_yes_no": "1 is yes",
}
_COLOURS: Final = ("#0b6e4f", "#c1440e", "#33658a", "#c9b458", "#7b4b94", "#8a8a8a")


@dataclass(frozen=True)
class Line:
    """A series of a panel under its legend: when, in seconds, and how much, or NaN."""

    legend: str
    points: tuple[tuple[float, float], ...]

    @property
    def most(self) -> float | None:
        """Return the largest number of it; None if it has none."""
        return max((value for _, value in self.points if math.isfinite(value)), default=None)


@dataclass(frozen=True)
class Panel:
    """A question of the dashboard, or the title of a row of them."""

    title: str
    place: Mapping[str, int]
    unit: str
    targets: tuple[tuple[str, str], ...]

    @property
    def is_row(self) -> bool:
        return not self.targets


def panels() -> list[Panel]:
    """Return the dashboard's panels, from top to bottom."""
    document = json.loads((CHART / "files/dashboard.json").read_text())
    return [_panel(each) for each in document["panels"]]


def _panel(described: Mapping[str, Any]) -> Panel:
    targets = [
        (_filled(each["expr"]), each["legendFormat"]) for each in described.get("targets", [])
    ]
    unit = described.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
    return Panel(described["title"], described["gridPos"], unit, tuple(targets))


def _filled(query: str) -> str:
    """Put in what Grafana would: every namespace, every queue."""
    for variable, value in _VARIABLES.items():
        query = query.replace(variable, value)
    return query


def ask(prometheus: Prometheus, panel: Panel, start: float, end: float) -> list[Line]:
    """Return what a panel shows of a stretch of time."""
    step = max(1.0, (end - start) / _POINTS)
    return [
        Line(_legend(legend, labels), tuple((at - start, value) for at, value in values))
        for query, legend in panel.targets
        for labels, values in prometheus.series(query, start, end, step)
    ]


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)


def draw(answers: Sequence[tuple[Panel, Sequence[Line]]], seconds: float, picture: Path) -> None:
    """Draw all panels where the dashboard has them, over a stretch of time."""
    mpl.rcParams.update({"svg.hashsalt": "namedqueue", "svg.fonttype": "none", "font.size": 8})
    height = max(panel.place["y"] + panel.place["h"] for panel, _ in answers)
    figure = plt.figure(figsize=(_WIDTH, height * _HEIGHT), facecolor="#f4f5f5")
    for panel, lines in answers:
        place = panel.place
        left, top = place["x"] / _COLUMNS, 1 - place["y"] / height
        if panel.is_row:
            middle = top - 0.5 / height
            figure.text(0.01, middle, panel.title, fontsize=11, weight="bold", va="center")
            continue
        # Inside the panel's own place there is room for its title and the numbers of its axes.
        box = (left + 0.03, top - (place["h"] - 1.2) / height)
        size = (place["w"] / _COLUMNS - 0.04, (place["h"] - 2.6) / height)
        axes = figure.add_axes((*box, *size))
        axes.set_xlim(0, seconds)
        _draw_panel(axes, panel, lines)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, metadata={"Date": None})
    plt.close(figure)


def _draw_panel(axes: Axes, panel: Panel, lines: Sequence[Line]) -> None:
    unit = _UNITS.get(panel.unit)
    axes.set_title(f"{panel.title}{f' ({unit})' if unit else ''}", fontsize=9, loc="left")
    for number, line in enumerate(lines):
        times, values = zip(*line.points, strict=True) if line.points else ((), ())
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(times, values, color=colour, linewidth=1.2, label=line.legend)
    # There is room for the legend above the highest line.
    axes.set_ylim(0, 1.4 * (max((line.most or 0 for line in lines), default=0) or 1))
    axes.grid(visible=True, color="#e4e5e6")
    if lines:
        columns = 1 if len(lines) < _MANY else 2
        axes.legend(fontsize=7, framealpha=0.6, edgecolor="none", loc="upper left", ncols=columns)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
