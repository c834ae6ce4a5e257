"""Each alert fires on the series of its trouble, and is quiet on those of a good day.

Debian's promtool runs the rules as an installation gets them. Every alert has a runbook.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.processes import run

RUNBOOKS = Path(__file__).parents[2] / "docs/runbooks"
_QUEUE = {"namespace": "shop", "queue": "orders"}
_ORDERS = 'namespace="shop", queue="orders"'
_OPERATOR = 'pod="operator-0", namespace="shop", queue="orders"'
_OTHER = 'pod="operator-1", namespace="shop", queue="orders"'


@dataclass(frozen=True)
class Case:
    """An alert, series that make it fire at a time, and series that do not."""

    alert: str
    at: str
    trouble: dict[str, str]
    calm: dict[str, str]
    labels: dict[str, str] = field(default_factory=lambda: dict(_QUEUE))


CASES = [
    Case(
        "NamedQueueDeadLettersGrowing",
        "20m",
        {f'namedqueue_jobs{{{_OPERATOR}, stage="dead"}}': "7x10 9x10"},
        {
            f'namedqueue_jobs{{{_OPERATOR}, stage="dead"}}': "7x10 5x10",
            f'namedqueue_jobs{{{_OPERATOR}, stage="ready"}}': "0+10x20",
        },
    ),
    Case(
        "NamedQueueBacklogOld",
        "20m",
        {f"namedqueue_oldest_job_age_seconds{{{_OPERATOR}}}": "0+60x20"},
        {f"namedqueue_oldest_job_age_seconds{{{_OPERATOR}}}": "0+60x9 0+60x10"},
    ),
    Case(
        "NamedQueueLadderStuck",
        "130m",
        {f'namedqueue_jobs{{{_OPERATOR}, stage="waiting"}}': "3x130"},
        {
            f'namedqueue_jobs{{{_OPERATOR}, stage="waiting"}}': "3x60 4x70",
            f'namedqueue_jobs{{{_OTHER}, stage="waiting"}}': "0x130",
        },
    ),
    Case(
        "NamedQueueWorkersAtMaximum",
        "20m",
        {
            f"namedqueue_replicas{{{_OPERATOR}}}": "20x20",
            f"namedqueue_max_replicas{{{_OPERATOR}}}": "20x20",
            f'namedqueue_jobs{{{_OPERATOR}, stage="ready"}}': "50x20",
        },
        {
            f"namedqueue_replicas{{{_OPERATOR}}}": "20x20",
            f"namedqueue_max_replicas{{{_OPERATOR}}}": "20x20",
            f'namedqueue_jobs{{{_OPERATOR}, stage="ready"}}': "50x10 0x10",
        },
    ),
    Case(
        "NamedQueueBrokerUnreachable",
        "10m",
        {'namedqueue_broker_reachable{pod="operator-0", secret="shop/rabbit"}': "1x5 0x5"},
        {
            'namedqueue_broker_reachable{pod="operator-0", secret="shop/rabbit"}': "1x5 0 1x4",
            'namedqueue_broker_reachable{pod="operator-0", secret="operator"}': "1x10",
        },
        {"secret": "shop/rabbit"},
    ),
    Case(
        "NamedQueueOperatorNotTicking",
        "10m",
        {
            'namedqueue_operator_last_tick_timestamp_seconds{pod="operator-0"}': "0+60x5 300x5",
            'namedqueue_operator_last_tick_timestamp_seconds{pod="operator-1"}': "0x10",
        },
        {
            'namedqueue_operator_last_tick_timestamp_seconds{pod="operator-0"}': "0+60x10",
            'namedqueue_operator_last_tick_timestamp_seconds{pod="operator-1"}': "0x10",
        },
        {},
    ),
    Case(
        "NamedQueueRetryStorm",
        "15m",
        {
            f'namedqueue_deliveries_total{{{_ORDERS}, outcome="transient"}}': "0+120x15",
            f'namedqueue_deliveries_total{{{_ORDERS}, outcome="processed"}}': "0+60x15",
        },
        {
            f'namedqueue_deliveries_total{{{_ORDERS}, outcome="transient"}}': "0+60x15",
            f'namedqueue_deliveries_total{{{_ORDERS}, outcome="processed"}}': "0+120x15",
        },
    ),
    Case(
        "NamedQueueRedriveFailed",
        "5m",
        {f'namedqueue_redrives{{{_OPERATOR}, phase="Failed"}}': "1x5"},
        {f'namedqueue_redrives{{{_OPERATOR}, phase="Succeeded"}}': "1x5"},
    ),
]
_each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)


def _promtool(promtool: Path, folder: Path, rules: dict[str, Any], *tests: Any) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    written = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": list(tests)}
    (folder / "tests.yaml").write_text(yaml.safe_dump(written))
    run([promtool, "test", "rules", "tests.yaml"], what="promtool", cwd=folder)


def _rule(rules: dict[str, Any], alert: str) -> dict[str, Any]:
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    return next(dict(rule) for rule in every if rule["alert"] == alert)


@_each
def test_it_fires_on_trouble_and_is_quiet_without(
    case: Case, rules: dict[str, Any], promtool: Path, tmp_path: Path
) -> None:
    rule = _rule(rules, case.alert)
    # Only who is meant: the sentences are for people, and would have to be written twice.
    bare = {"groups": [{"name": "one", "rules": [{**rule, "annotations": {}}]}]}
    fired = [{"exp_labels": {**rule["labels"], **case.labels}}]
    _promtool(
        promtool,
        tmp_path,
        bare,
        _test(case, case.trouble, fired),
        _test(case, case.calm, []),
    )


def _test(case: Case, series: dict[str, str], expected: list[Any]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected}
        ],
    }


def test_an_operator_that_is_not_scraped_at_all_is_not_ticking(
    rules: dict[str, Any], promtool: Path, tmp_path: Path
) -> None:
    case = next(case for case in CASES if case.alert == "NamedQueueOperatorNotTicking")
    rule = _rule(rules, case.alert)
    bare = {"groups": [{"name": "one", "rules": [{**rule, "annotations": {}}]}]}
    fired = [{"exp_labels": rule["labels"]}]
    _promtool(promtool, tmp_path, bare, _test(case, {"up": "1x10"}, fired))


def test_the_sentences_of_the_alerts_can_be_filled_in(
    rules: dict[str, Any], promtool: Path, tmp_path: Path
) -> None:
    case = next(case for case in CASES if case.alert == "NamedQueueBacklogOld")
    sentences = {
        "summary": "Jobs of shop/orders wait too long",
        "description": "Jobs have been ready without a break for 20m 0s; the objective is 600 s.",
        "runbook_url": "docs/runbooks/NamedQueueBacklogOld.md",
    }
    labels = {**_rule(rules, case.alert)["labels"], **case.labels}
    fired = [{"exp_labels": labels, "exp_annotations": sentences}]
    _promtool(promtool, tmp_path, rules, _test(case, case.trouble, fired))


def test_every_alert_is_tested_and_has_a_runbook(rules: dict[str, Any]) -> None:
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert alerts == {case.alert for case in CASES}
    assert alerts == {page.stem for page in RUNBOOKS.glob("NamedQueue*.md")}
    for group in rules["groups"]:
        for rule in group["rules"]:
            name = f"docs/runbooks/{rule['alert']}.md"
            assert rule["annotations"]["runbook_url"] == name
            assert "%" not in rule["expr"]
