"""`nq run` as a person uses it: a real process, a real app, the other commands beside it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.ports import accepts, free_ports
from testbed.processes import wait_until
from testbed.rabbitmq import Broker

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
APP = ROOT / "examples" / "orders" / "app.py"
GOOD = json.dumps({"order": "A-1", "amount": 42, "currency": "EUR", "card": "4242"})
DECLINED = json.dumps({"order": "A-2", "amount": 42, "currency": "EUR", "card": "4000"})


class Shop:
    """A folder with a manifest, and the ports it uses."""

    def __init__(self, folder: Path) -> None:
        self.manifest = folder / "queue.yaml"
        self.api_port, self.app_port = free_ports(2)
        self.env = {**os.environ, "NQ_URL": f"http://127.0.0.1:{self.api_port}"}
        self.write(max_attempts=5)

    def write(self, max_attempts: int) -> None:
        self.manifest.write_text(
            "apiVersion: namedqueue.io/v1alpha1\n"
            "kind: NamedQueue\n"
            "metadata: {name: orders, namespace: shop}\n"
            f"spec: {{retry: {{delay: 250ms, maxAttempts: {max_attempts}}}, "
            f"worker: {{port: {self.app_port}, path: /orders}}}}\n"
        )

    def nq(self, *arguments: str) -> str:
        """Run another command and return what it says."""
        done = subprocess.run(
            [BIN / "nq", *arguments], env=self.env, check=True, capture_output=True, text=True
        )
        return done.stdout

    @contextmanager
    def running(self, *options: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Run the shop until the block ends; Ctrl-C must end it well unless it was killed."""
        app: list[str | Path] = [sys.executable, APP, "--port", str(self.app_port)]
        run: list[str | Path] = [BIN / "nq", "run", *options, f"--port={self.api_port}"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*run, self.manifest, "--", *app],
                env=self.env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                wait_until(
                    lambda: accepts(self.api_port) and accepts(self.app_port),
                    what="nq run serves and its app answers",
                    deadline=90,
                )
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    assert process.wait(timeout=90) == 0, log.read_text()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def dead_letters(shop: Shop) -> list[str]:
    found = json.loads(shop.nq("dlq", "ls", "orders", "-o", "json"))
    return [letter["payloadSnapshot"]["order"] for letter in found]


def depth(shop: Shop) -> dict[str, int]:
    [queue] = json.loads(shop.nq("queues", "-o", "json"))
    return dict(queue["depth"])


def work_off_two_orders(shop: Shop) -> None:
    shop.nq("enqueue", "orders", GOOD)
    shop.nq("enqueue", "orders", DECLINED)
    wait_until(lambda: dead_letters(shop) == ["A-2"], what="the declined order is a dead letter")
    wait_until(
        lambda: depth(shop) == {"ready": 0, "inFlight": 0, "waiting": 0, "dead": 1},
        what="the other order is done",
    )


def test_jobs_go_through_the_app_and_failed_ones_can_be_seen(shop: Shop, tmp_path: Path) -> None:
    with shop.running(log=tmp_path / "log"):
        work_off_two_orders(shop)


def test_the_same_manifest_runs_on_a_rabbitmq(
    shop: Shop, broker: Broker, vhost: str, tmp_path: Path
) -> None:
    options = (f"--broker={broker.amqp_url(vhost)}", f"--management={broker.management_url}")
    log = tmp_path / "log"
    with shop.running(*options, log=log):
        work_off_two_orders(shop)
    assert broker.password not in log.read_text()


def test_a_second_run_goes_on_where_the_first_was_killed(shop: Shop, tmp_path: Path) -> None:
    data, log = f"--data={tmp_path / 'jobs'}", tmp_path / "log"
    with shop.running(data, log=log) as first:
        work_off_two_orders(shop)
        first.kill()
        first.wait()
    wait_until(lambda: not accepts(shop.api_port), what="the first run is gone")
    stop_orphan(shop)
    with shop.running(data, log=log):
        assert dead_letters(shop) == ["A-2"]
        assert json.loads(shop.nq("dlq", "redrive", "orders"))["redriven"] == 1


def stop_orphan(shop: Shop) -> None:
    """End the app that a killed `nq run` could not take along."""
    needle = f"--port\0{shop.app_port}\0".encode()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            ours = needle in entry.read_bytes()
        except OSError:
            continue
        if ours:
            os.kill(int(entry.parent.name), signal.SIGKILL)
    wait_until(lambda: not accepts(shop.app_port), what="the orphaned app is gone")


def test_a_changed_manifest_is_applied_and_a_broken_one_is_not(shop: Shop, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with shop.running(log=log):
        shop.write(max_attempts=4)
        wait_until(lambda: "are applied" in log.read_text(), what="the change is applied")
        shop.write(max_attempts=-1)
        wait_until(lambda: "are not applied" in log.read_text(), what="the error is told")
        work_off_two_orders(shop)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--broker=http://x"], "a broker's address begins with amqp:// or amqps://"),
        (["--broker=amqp://127.0.0.1:1", "--data=x"], "--data is for the builtin broker"),
        (["--once"], "--once needs a COMMAND after --"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_sentence(
    shop: Shop, options: list[str], says: str
) -> None:
    done = subprocess.run(
        [BIN / "nq", "run", *options, shop.manifest],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert says in done.stderr


def test_a_stream_is_pushed_looked_into_and_replayed(shop: Shop, tmp_path: Path) -> None:
    shop.manifest.write_text(
        "apiVersion: namedqueue.io/v1alpha1\n"
        "kind: NamedQueue\n"
        "metadata: {name: orders, namespace: shop}\n"
        "spec: {type: stream, stream: {consumers: [{group: audit, onError: skip}]}, "
        f"worker: {{port: {shop.app_port}, path: /orders}}}}\n"
    )
    log = tmp_path / "log"

    def at(cursor: int) -> bool:
        groups = json.loads(shop.nq("streams", "groups", "orders", "-o", "json"))
        return [(each["group"], each["cursor"]) for each in groups] == [("audit", cursor)]

    with shop.running(log=log):
        for payload in (GOOD, DECLINED, GOOD):
            shop.nq("enqueue", "orders", payload)
        wait_until(lambda: at(3), what="the group has read all", deadline=60)
        read = json.loads(shop.nq("streams", "read", "orders", "--from", "1", "-o", "json"))
        assert [(each["offset"], each["payload"]["order"]) for each in read] == [
            (1, "A-2"),
            (2, "A-1"),
        ]
        assert json.loads(shop.nq("streams", "seek", "orders", "audit", "first"))["cursor"] == 0
        wait_until(lambda: at(3), what="the group has read all again", deadline=60)
        assert "orders: ready=3" in log.read_text()
