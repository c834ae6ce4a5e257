"""Starting servers, and stopping exactly those.

A started process is known by its pid together with its start time, written to a file in the
instance's state folder. So a later call, even after a crash of the caller, stops what it began
and never a stranger that got the same pid.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class TestbedError(Exception):
    """A part of the test bed could not do what was asked; the text says what to do."""

    __test__ = False


@dataclass(frozen=True)
class Started:
    """A process that this test bed began."""

    name: str
    pid: int
    started_at: int
    log: Path

    @property
    def alive(self) -> bool:
        return _start_time(self.pid) == self.started_at


def start(
    name: str,
    command: Sequence[str | Path],
    state: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Started:
    """Run `command` in a session of its own, its output in `<state>/<name>.log`."""
    log = state / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    # It may outlive this program: without a return code Python would warn about that.
    process.returncode = 0
    started_at = _start_time(process.pid)
    if started_at is None:
        raise TestbedError(f"{name} ended at once; see {log}")
    started = Started(name, process.pid, started_at, log)
    _pid_file(state, name).write_text(
        json.dumps({"pid": started.pid, "started_at": started.started_at})
    )
    return started


def find(name: str, state: Path) -> Started | None:
    """Return the process that was started under this name, if it still runs."""
    try:
        known = json.loads(_pid_file(state, name).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    started = Started(name, known["pid"], known["started_at"], state / f"{name}.log")
    return started if started.alive else None


def stop(
    name: str,
    state: Path,
    *,
    grace: float = 20.0,
    by: signal.Signals = signal.SIGTERM,
) -> None:
    """End the process started under this name: politely, then by SIGKILL after `grace` seconds."""
    started = find(name, state)
    if started is not None:
        _end([started], ((by, grace), (signal.SIGKILL, 10.0)))
    _pid_file(state, name).unlink(missing_ok=True)


def kill(name: str, state: Path) -> None:
    """End the process started under this name and all its descendants at once, by SIGKILL."""
    started = find(name, state)
    if started is not None:
        _end([started, *_descendants(started)], ((signal.SIGKILL, 10.0),))
    _pid_file(state, name).unlink(missing_ok=True)


def send(name: str, state: Path, sign: signal.Signals) -> None:
    """Send a signal to the process started under this name."""
    started = find(name, state)
    if started is None:
        raise TestbedError(f"{name} does not run, so it cannot get {sign.name}")
    os.kill(started.pid, sign)


def freeze(name: str, state: Path) -> None:
    """Stop a process in its tracks by SIGSTOP; return when every thread of it stands still."""
    send(name, state, signal.SIGSTOP)
    started = find(name, state)
    if started is not None:
        wait_until(lambda: _stands_still(started.pid), what=f"{name} is frozen")


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    deadline: float = 60.0,
    watching: Started | None = None,
) -> None:
    """Wait for a condition; give up at the deadline, or as soon as `watching` has died."""
    until = time.monotonic() + deadline
    while not condition():
        if watching is not None and not watching.alive:
            raise TestbedError(f"{watching.name} ended before {what}; its log: {tail(watching)}")
        if time.monotonic() > until:
            seen = "" if watching is None else f"; its log: {tail(watching)}"
            raise TestbedError(f"{what}: not within {deadline:.0f} s{seen}")
        time.sleep(0.05)


def tail(started: Started, lines: int = 15) -> str:
    """Return where the log is and its last lines, for an error message."""
    text = started.log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([str(started.log), *text])


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
) -> str:
    """Run a short command and return what it printed; on failure raise with its own words."""
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        text=True,
        capture_output=True,
        env=None if env is None else dict(env),
        cwd=cwd,
        input=stdin,
    )
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise TestbedError(f"{what} failed (exit {done.returncode}): {words}")
    return done.stdout


def _end(targets: Sequence[Started], efforts: Sequence[tuple[signal.Signals, float]]) -> None:
    alive = list(targets)
    for sign, patience in efforts:
        for target in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(target.pid, sign)
        until = time.monotonic() + patience
        while alive and time.monotonic() < until:
            time.sleep(0.02)
            alive = [target for target in alive if target.alive]
        if not alive:
            for target in targets:
                _reap(target.pid)
            return
    left = ", ".join(f"{target.name} (pid {target.pid})" for target in alive)
    raise TestbedError(f"{left} does not end, not even by SIGKILL")


def _descendants(ancestor: Started) -> list[Started]:
    """Find what a process began, and what those began, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        stat = _stat(int(entry.name))
        if stat is not None:
            children.setdefault(stat.parent, []).append(int(entry.name))
    family: list[Started] = []
    unseen = list(children.get(ancestor.pid, ()))
    while unseen:
        pid = unseen.pop()
        unseen += children.get(pid, ())
        started_at = _start_time(pid)
        if started_at is not None:
            family.append(Started(f"{ancestor.name}'s child", pid, started_at, ancestor.log))
    return family


def _reap(pid: int) -> None:
    """Take a dead child's exit status: it is fully gone, its ports free, only then."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    started_at: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], parent=int(fields[1]), started_at=int(fields[19]))


def _stands_still(pid: int) -> bool:
    threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    stats = [_stat(thread) for thread in threads]
    return all(stat is None or stat.state == "T" for stat in stats)


def _start_time(pid: int) -> int | None:
    """Read when a process started, in clock ticks since boot; None for a gone or dead one."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else stat.started_at


def _pid_file(state: Path, name: str) -> Path:
    return state / f"{name}.pid"
