"""Servers shared by several processes: the first user starts one, the last one out stops it.

Every user holds a shared lock on the lease's file for as long as it uses the server. The kernel
drops the lock when the user ends, however it ends, so a lease that nobody holds is known for
certain and `reap` can stop what a killed user left behind. A second lock, the gate, is held
only while a server is being started or stopped.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from testbed.paths import state_dir

Server = TypeVar("Server")


@contextmanager
def shared(
    name: str,
    *,
    start: Callable[[], Server],
    find: Callable[[], Server | None],
    stop: Callable[[], None],
) -> Iterator[Server]:
    """Use the server of this name together with others; `start` runs for the first of them.

    Whatever an earlier run left under the name is stopped first. After a failed start the lease
    is gone and the failed instance, with its log, stays until the next user.
    """
    path = _file(name, "lease")
    with exclusively(f"{name}.lease"):
        lease = path.open("a")
        try:
            server = _begin(lease, start, find, stop)
        except BaseException:
            if _alone(lease):
                path.unlink()
            lease.close()
            raise
    try:
        yield server
    finally:
        with lease, exclusively(f"{name}.lease"):
            if _alone(lease):
                stop()
                path.unlink()


def reap(prefix: str, stop: Callable[[str], None]) -> None:
    """Stop every leased server of this prefix that has no user left."""
    for path in state_dir("leases").glob(f"{prefix}*.lease"):
        with exclusively(path.name):
            if not path.exists():
                continue
            with path.open("a") as lease:
                if _alone(lease):
                    stop(path.stem)
                    path.unlink()


@contextmanager
def exclusively(name: str) -> Iterator[None]:
    """Let one process at a time in; the lock's file is gone when nobody needs it."""
    path = _file(name, "gate")
    while True:
        with path.open("a") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            if not _still_there(path, gate):
                continue
            try:
                yield
            finally:
                path.unlink()
            return


def _begin(
    lease: IO[str],
    start: Callable[[], Server],
    find: Callable[[], Server | None],
    stop: Callable[[], None],
) -> Server:
    first = _alone(lease)
    if first:
        stop()
    server = None if first else find()
    if server is None:
        server = start()
    fcntl.flock(lease, fcntl.LOCK_SH)
    return server


def _alone(lease: IO[str]) -> bool:
    """Tell whether no one else holds the lease. Ask only inside the gate."""
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _still_there(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _file(name: str, ending: str) -> Path:
    return state_dir("leases") / f"{name}.{ending}"
