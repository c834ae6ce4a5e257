"""The report shows every letter once, in bars whose time and height are right."""

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from pyspark_namedqueue.jobs.report import Count, page, step_for

BEGIN = datetime(2026, 11, 18, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


def bars(text: str) -> list[dict[str, str]]:
    found = re.search(r"<svg.*</svg>", text, re.DOTALL)
    assert found is not None
    return [dict(each.attrib) for each in ET.fromstring(found[0]).iter("rect")]  # noqa: S314  # ours


def test_bars_of_one_time_stand_on_each_other_and_the_highest_fills_the_picture() -> None:
    counts = [
        Count(BEGIN, "HTTP_422", 30),
        Count(BEGIN, "TIMEOUT", 10),
        Count(BEGIN + HOUR, "TIMEOUT", 20),
    ]
    low, high, late = bars(page("Orders", counts, HOUR))
    assert float(low["y"]) == pytest.approx(float(high["y"]) + float(high["height"]))
    assert float(high["y"]) == pytest.approx(0)
    assert float(late["height"]) == pytest.approx(
        (float(low["height"]) + float(high["height"])) / 2
    )
    assert float(late["x"]) > float(low["x"]) == float(high["x"])
    assert high["fill"] == late["fill"] != low["fill"]


def test_the_table_adds_up_and_what_the_app_said_is_only_text() -> None:
    counts = [Count(BEGIN, "<b>&", 2), Count(BEGIN + HOUR, "<b>&", 3)]
    text = page("Orders <&>", counts, HOUR)
    assert "5 dead letters; a bar is one hour" in text
    assert "<td>&lt;b&gt;&amp;</td>" in text
    assert "<b>" not in text
    assert "<td>2026-11-18 06:00</td><td>2026-11-18 07:00</td>" in text


def test_a_report_of_nothing_says_so() -> None:
    assert "Nothing failed." in page("Orders", [], HOUR)


@pytest.mark.parametrize(
    ("span", "step"),
    [
        (timedelta(minutes=10), timedelta(minutes=1)),
        (timedelta(days=1), timedelta(minutes=15)),
        (timedelta(days=90), timedelta(hours=12)),
        (timedelta(days=4000), timedelta(days=7)),
    ],
)
def test_a_longer_time_has_longer_bars(span: timedelta, step: timedelta) -> None:
    assert step_for(BEGIN, BEGIN + span) == step
