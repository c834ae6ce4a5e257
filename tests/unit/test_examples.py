"""Every example is valid, says what it is for, and compiles for every broker."""

from pathlib import Path

import pytest

from namedqueue import topology
from namedqueue.topology import NEWEST, NOTHING, OLDEST, Broker
from namedqueue_cli.manifests import check, load_queues

ROOT = Path(__file__).parents[2]


def _has_a_queue(file: Path) -> bool:
    return any(found.model is not None for found in check([str(file)]))


EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
QUEUES = [file for file in EXAMPLES if _has_a_queue(file)]


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", EXAMPLES, ids=_name)
def test_an_example_is_valid(file: Path) -> None:
    findings = [finding for found in check([str(file)]) for finding in found.findings]
    assert [str(finding) for finding in findings if finding.verdict == "invalid"] == []


@pytest.mark.parametrize("file", QUEUES, ids=_name)
def test_an_example_begins_with_what_it_is_for(file: Path) -> None:
    assert file.read_text().startswith("# ")


@pytest.mark.parametrize("file", QUEUES, ids=_name)
def test_an_example_compiles_for_the_oldest_and_the_newest_broker(file: Path) -> None:
    for queue in load_queues([file]):
        for version in (OLDEST, NEWEST):
            made = topology.compile(queue, Broker(version=version))
            assert topology.diff(NOTHING, made)


def test_the_examples_show_every_kind_of_queue() -> None:
    specs = [queue.spec for queue in load_queues(QUEUES)]
    assert {spec.type for spec in specs} == {"durable", "ephemeral", "stream"}
    assert {spec.durable_or_default.storage for spec in specs} == {"quorum", "classic"}
    assert any(spec.durable_or_default.fifo for spec in specs)
