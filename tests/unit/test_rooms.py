"""The folders keep their promises."""

import collections
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("crds", "operator", "sidecar", "spark", "cli")


def test_no_room_is_itself_a_package() -> None:
    """`operator/__init__.py` would shadow the standard library and break the interpreter."""
    assert [room for room in ROOMS if (ROOT / room / "__init__.py").exists()] == []


def test_the_standard_operator_module_wins_from_the_repository_root() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.__file__)"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(found.stdout.strip()).parent == Path(collections.__file__).parents[1]


def test_every_package_is_typed() -> None:
    packages = {path.parent for room in ROOMS for path in ROOT.glob(f"{room}/*/__init__.py")}
    assert {package.name for package in packages if not (package / "py.typed").exists()} == set()
