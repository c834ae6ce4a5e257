"""Named instances of a server: one folder each, with what is needed to find it again.

The record of an instance holds its ports and its password, so only the owner may read it. An
instance that did not come up keeps its folder, and with it the log, until it is removed.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.paths import state_dir
from testbed.processes import TestbedError

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")


def folder(kind: str, name: str) -> Path:
    """Return where an instance lives, whether it does yet or not."""
    if not _NAME.fullmatch(name):
        raise TestbedError(f"{name!r} is no instance name: use a-z, 0-9, dot and dash")
    return state_dir(kind) / name


def names(kind: str) -> list[str]:
    """Return the names of all instances of a kind, running or not."""
    return sorted(entry.name for entry in state_dir(kind).iterdir() if entry.is_dir())


def save(state: Path, record: Mapping[str, Any]) -> None:
    write_private(state / "instance.json", json.dumps(record))


def load(state: Path) -> dict[str, Any] | None:
    """Return the record of an instance; None if there is no complete one."""
    try:
        record: dict[str, Any] = json.loads((state / "instance.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return record


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody but the owner can read, not even for a moment."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def remove(state: Path) -> None:
    """Delete an instance's folder; an instance that was never there is fine."""
    if state.exists():
        shutil.rmtree(state)
