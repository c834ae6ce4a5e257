"""Shared servers: one start for all users, one stop after the last, nothing left of the dead."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from testbed import leases
from testbed.processes import TestbedError


class Recorder:
    """Stands in for a server: remembers what was asked of it."""

    def __init__(self) -> None:
        self.starts = 0
        self.running = False

    def start(self) -> str:
        self.starts += 1
        self.running = True
        return "server"

    def find(self) -> str | None:
        return "server" if self.running else None

    def stop(self) -> None:
        self.running = False

    def use(self) -> AbstractContextManager[str]:
        return leases.shared("it", start=self.start, find=self.find, stop=self.stop)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def test_the_first_user_starts_the_server_and_the_last_one_stops_it(state_home: Path) -> None:
    server = Recorder()
    with server.use() as outer:
        with server.use() as inner:
            assert (outer, inner, server.starts) == ("server", "server", 1)
        assert server.find(), "one user is left"
    assert server.find() is None
    assert files_in(state_home) == []


def test_a_server_that_died_under_its_users_is_started_for_the_next_one() -> None:
    server = Recorder()
    with server.use():
        server.running = False
        with server.use():
            assert server.starts == 2


def test_a_failing_user_still_gives_the_server_back() -> None:
    server = Recorder()
    with pytest.raises(ZeroDivisionError), server.use():
        raise ZeroDivisionError
    assert server.find() is None


def test_reaping_spares_a_server_in_use_and_stops_an_abandoned_one(state_home: Path) -> None:
    server = Recorder()
    reaped: list[str] = []
    with server.use():
        leases.reap("i", reaped.append)
        assert reaped == []
    (state_home / "namedqueue" / "leases" / "it-1.0.lease").touch()
    leases.reap("i", reaped.append)
    assert reaped == ["it-1.0"]
    assert files_in(state_home) == []


def test_a_failed_start_leaves_no_lease_so_that_its_log_is_not_reaped(state_home: Path) -> None:
    server = Recorder()

    def fail() -> str:
        raise TestbedError("no")

    with (
        pytest.raises(TestbedError, match="no"),
        leases.shared("it", start=fail, find=server.find, stop=server.stop),
    ):
        pass
    assert files_in(state_home) == []
