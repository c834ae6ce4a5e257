"""The dashboard and the alerts ask only for what the operator and the sidecar measure."""

import json
import re
from typing import Any

from generators.metrics import everything
from testbed.helm import CHART

_DASHBOARD = json.loads((CHART / "files/dashboard.json").read_text())


def _queries() -> list[str]:
    panels = [panel for panel in _DASHBOARD["panels"] if panel["type"] != "row"]
    variables = [each["query"] for each in _DASHBOARD["templating"]["list"]]
    return [target["expr"] for panel in panels for target in panel["targets"]] + variables


def _asked(query: str) -> dict[str, set[str]]:
    """Return the metrics that a query asks for, with the labels it selects them by."""
    pattern = r"(namedqueue_[a-z_]+)(?:\{([^}]*)\})?"
    return {
        name: set(re.findall(r"([a-z_]+)=", selector))
        for name, selector in re.findall(pattern, query)
    }


def _check(query: str) -> None:
    measured = everything()
    for name, labels in _asked(query).items():
        assert name in measured, query
        assert labels <= set(measured[name]), query


def test_every_panel_asks_for_what_is_measured() -> None:
    queries = _queries()
    assert len(queries) > 20
    for query in queries:
        _check(query)


def test_every_alert_asks_for_what_is_measured(rules: dict[str, Any]) -> None:
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert _asked(rule["expr"])
            _check(rule["expr"])


def test_each_row_is_a_question_with_panels_that_answer_it() -> None:
    rows = [panel for panel in _DASHBOARD["panels"] if panel["type"] == "row"]
    assert all(row["title"].endswith("?") for row in rows)
    places = {panel["gridPos"]["y"] for panel in _DASHBOARD["panels"] if panel["type"] != "row"}
    assert {row["gridPos"]["y"] + 1 for row in rows} == places
