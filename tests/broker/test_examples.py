"""Each example with a README, followed on the builtin broker as a reader would."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.pages import ROOT, Reader, steps
from testbed.processes import wait_until

EXAMPLES = ROOT / "examples"
NAMES = sorted(page.parent.name for page in EXAMPLES.glob("*/README.md"))
COURIER, LAZY = "courier", "lazy"


@contextmanager
def followed(example: str, folder: Path) -> Iterator[Reader]:
    """Do all that an example's page says, and leave it running for the block."""
    first, *rest = steps((EXAMPLES / example / "README.md").read_text())
    reader = Reader(folder)
    with reader.running(first.commands.strip(), app=" -- " in first.commands):
        for step in rest:
            reader.follow(step)
        yield reader


def test_there_is_an_example_for_each_document_that_the_product_grew_from() -> None:
    assert NAMES == [COURIER, LAZY, "orders", "queue-types", "retry"]


@pytest.mark.parametrize("example", NAMES)
def test_a_page_is_short_and_shows_what_its_commands_print(example: str) -> None:
    text = (EXAMPLES / example / "README.md").read_text()
    assert len(text.splitlines()) <= 40
    assert any(step.shown for step in steps(text))


@pytest.mark.parametrize("example", [name for name in NAMES if name not in {COURIER, LAZY}])
def test_an_example_does_what_its_page_shows(example: str, tmp_path: Path) -> None:
    with followed(example, tmp_path):
        pass


def test_a_lazy_queue_keeps_its_jobs_when_its_mode_is_switched(tmp_path: Path) -> None:
    with followed(LAZY, tmp_path) as reader:
        applied = "the manifests changed and are applied"
        wait_until(lambda: applied in reader.log(), what="the new mode is applied")
        [queue] = json.loads(reader.sh("nq queues -o json"))
        assert queue["depth"] == {"ready": 1000, "inFlight": 1, "waiting": 0, "dead": 0}


def test_the_courier_gateway_tries_five_times_and_records_how_its_events_are_reviewed(
    tmp_path: Path,
) -> None:
    with followed(COURIER, tmp_path) as reader:
        [letter] = json.loads(reader.sh("nq dlq ls courier-events --state replayed -o json"))
        assert letter["eventId"] == "evt_124"
        assert [each["errorCode"] for each in letter["attemptHistory"]] == ["ETIMEDOUT"] * 5
        [closed] = json.loads(reader.sh("nq dlq ls courier-events --state closed -o json"))
        assert closed["eventId"] == "evt_125"
