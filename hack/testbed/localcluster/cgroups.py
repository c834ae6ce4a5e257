"""A control group per node, on cgroup v1 and v2, made before its kubelet and removed after it."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from testbed.processes import TestbedError, wait_until

_MOUNT = Path("/sys/fs/cgroup")
_CONTROLLERS = "+cpu +cpuset +memory +pids +io"


def make(name: str) -> None:
    """Make the group in every hierarchy."""
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(parents=True, exist_ok=True)
        if _is_unified(hierarchy):
            _delegate(hierarchy, name)


def remove(name: str) -> None:
    """Remove the group with all below it, and the parents that are empty then."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        wait_until(partial(_try_remove, group), what=f"{group} is empty", deadline=20)
        with contextlib.suppress(OSError):
            group.parent.rmdir()


def _try_remove(group: Path) -> bool:
    """Remove a tree of groups; one whose processes are still dying refuses, so try again."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
    except FileNotFoundError:
        return not group.exists()
    except OSError:
        return False
    return True


def _hierarchies() -> Iterator[Path]:
    if not _MOUNT.is_dir():
        raise TestbedError("no cgroups are mounted at /sys/fs/cgroup; a node cannot run here")
    if _is_unified(_MOUNT):
        yield _MOUNT
        return
    seen = set()
    for entry in sorted(_MOUNT.iterdir()):
        real = entry.resolve()
        if real.is_dir() and real not in seen:
            seen.add(real)
            yield real


def _is_unified(hierarchy: Path) -> bool:
    return (hierarchy / "cgroup.controllers").exists()


def _delegate(hierarchy: Path, name: str) -> None:
    """Let the group's children have controllers, where the machine has them."""
    available = (hierarchy / "cgroup.controllers").read_text().split()
    wanted = " ".join(each for each in _CONTROLLERS.split() if each[1:] in available)
    if not wanted:
        return
    folder = hierarchy
    for part in ("", *Path(name).parts):
        folder /= part
        (folder / "cgroup.subtree_control").write_text(wanted)
