"""Spark runs a slow task a second time, beside the first: the jobs of both have the same ids.

Spark never copies a task to a host that it already runs on. So this is a Spark cluster of its own,
with two workers that stand for two hosts: 127.0.0.2 and 127.0.0.3.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from spark.conftest import Ledger, Serve
from testbed import processes
from testbed.ports import accepts, free_ports
from testbed.processes import wait_until

CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
WRITER = str(Path(__file__).with_name("slow_writer.py"))
HOSTS = ("127.0.0.2", "127.0.0.3")
ROWS, TASKS = 400, 4


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[str]:
    """Give the address of a Spark with two hosts of one core each."""
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    [port] = free_ports(1)
    address, deploy = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    names = {host: f"worker-{host}" for host in HOSTS}
    quiet = ("--webui-port", "0")
    try:
        master = [CLASS, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        started = processes.start("master", [*master, *quiet], tmp_path, env=env)
        what = "Spark's master listens"
        wait_until(lambda: accepts(port), what=what, deadline=120, watching=started)
        for host, name in names.items():
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / name))
            worker = [CLASS, f"{deploy}.worker.Worker", "--host", host, *size, *quiet, address]
            processes.start(name, worker, tmp_path, env=env)
        yield address
    finally:
        for name in (*names.values(), "master"):
            processes.kill(name, tmp_path)


@pytest.mark.timeout(600)
def test_a_task_that_was_copied_sends_its_rows_twice_and_they_are_processed_once(
    spark_cluster: str, serve: Serve
) -> None:
    ledger = Ledger()
    [ledger.port] = free_ports(1)
    plane = serve(orders={"worker": {"port": ledger.port}, "idempotency": {"key": "messageId"}})
    command = [sys.executable, WRITER, spark_cluster, plane.endpoint, str(ROWS), str(TASKS)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, env=env, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-5000:]
    sent = plane.depth("orders")["ready"]
    assert ROWS < sent < ROWS + ROWS // TASKS, "the copy sent all, the straggler a part"

    with ledger.open():
        plane.work_off()
    assert set(ledger.times.values()) == {1}
    assert sorted(each["id"] for each in ledger.payloads.values()) == list(range(ROWS))
