"""The README's blocks, run as a reader would copy them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.ports import accepts
from testbed.processes import wait_until

ROOT = Path(__file__).parents[2]
API_PORT, APP_PORT = 3550, 8080


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-euc", script],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def running() -> Iterator[None]:
    """Run the last line of the second block until the test is over."""
    busy = [port for port in (API_PORT, APP_PORT) if accepts(port)]
    assert not busy, f"the README's ports {busy} are taken on this machine; free them"
    command = blocks()[1].splitlines()[-1]
    process = subprocess.Popen(
        ["sh", "-euc", f"exec {command}"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(
            lambda: accepts(API_PORT) and accepts(APP_PORT), what="nq run serves", deadline=60
        )
        yield
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def test_the_readme_leads_with_exactly_two_commands() -> None:
    assert blocks()[0].split("\n") == ["make demo", "make test", ""]


def test_the_offline_commands_of_the_first_minute_work() -> None:
    offline = blocks()[1].splitlines()[1:-1]
    said = shell("\n".join(offline)).stdout
    assert "NamedQueue shop/orders is valid" in said
    assert "nq.shop.orders.dlq" in said


@pytest.mark.usefixtures("running")
def test_the_second_terminal_sees_a_dead_letter_and_sends_it_back() -> None:
    *first, groups, redrive = blocks()[2].splitlines()
    assert "orders" in shell("\n".join(first)).stdout
    wait_until(
        lambda: "CARD_DECLINED" in shell(groups).stdout, what="the declined card is a dead letter"
    )
    assert shell(redrive).stdout == '{"queue": "orders", "redriven": 1}\n'
