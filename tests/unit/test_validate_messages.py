"""Twenty and more broken manifests, each with the one sentence that a person gets."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from namedqueue_cli.main import nq

FOLDER = Path(__file__).with_name("broken")
FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_broken_manifest_gives_one_clear_sentence(
    file: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    result = CliRunner().invoke(nq, ["validate", file.name])
    problems = [line for line in result.output.splitlines() if not line.endswith("is valid")]
    assert result.exit_code == 1
    assert len(problems) == 1
    assert problems[0] == snapshot


def test_there_are_at_least_twenty() -> None:
    assert len(FILES) >= 20
