"""On-call reads in the log why attempts fail, once a minute for each code."""

import logging
from typing import Any

import pytest

from namedqueue_sidecar.consuming.complaints import Complaints


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, Any]]:
    fields = [vars(record) for record in caplog.records]
    caplog.clear()
    return [(each["code"], each["attempts"]) for each in fields]


def test_a_code_is_told_at_once_and_then_as_a_count_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    now = 0.0
    complaints = Complaints("shop", "orders", clock=lambda: now)
    for _ in range(5):
        complaints.add("HTTP_503")
    complaints.add("TIMEOUT")
    assert told(caplog) == [("HTTP_503", 1), ("TIMEOUT", 1)]
    now = 59.9
    complaints.add("HTTP_503")
    assert told(caplog) == []
    now = 60.0
    complaints.add("HTTP_503")
    assert told(caplog) == [("HTTP_503", 6)]


def test_an_app_that_makes_up_codes_fills_neither_log_nor_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    complaints = Complaints("shop", "orders", clock=lambda: 0.0)
    for number in range(10_000):
        complaints.add(f"ODD_{number}")
    assert [code for code, _ in told(caplog)] == [*(f"ODD_{n}" for n in range(50)), "others"]
