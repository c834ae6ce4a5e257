"""The page on Spark, followed block by block; so the jobs and the pipeline do what it says.

Its Python runs in the tests' own Spark, and so do its commands, with the arguments as written. That
`spark-submit` itself works is shown on the cluster.
"""

import re
import runpy
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fixtures.pages import ROOT, Block, Reader, blocks
from testbed.processes import wait_until

PAGE = (ROOT / "docs" / "how-to" / "spark.md").read_text()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Give a way to run a command line in this process; return what it says."""

    def go(line: str, *more: str) -> str:
        words = [*shlex.split(line), *more]
        module = words[:2] == ["python", "-m"]
        name, arguments = (words[2], words[3:]) if module else (words[1], words[2:])
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with suppress(SystemExit):
            (runpy.run_module if module else runpy.run_path)(name, run_name="__main__")
        return capsys.readouterr().out

    return go


def test_the_page_writes_reads_reconciles_reports_and_replays(
    spark: SparkSession,
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = tmp_path / "lake"  # by its whole path: the tests' Spark has a folder of its own
    page = PAGE.replace("lake/", f"{lake}/")
    serve, commands = blocks(page, "sh")
    write, letters, stream, query = blocks(page, "python")
    reader, names = Reader(tmp_path), dict[str, Any](spark=spark)
    monkeypatch.chdir(tmp_path)
    with reader.running(serve.text.strip(), app=True):
        follow(reader, write, names)
        dead_letters(reader, 1)
        follow(reader, letters, names)
        assert names["letters"].select("eventId").collect()[0][0] == "S-21"

        send, reconcile, export, dry, replay = commands.text.splitlines()
        endpoint = f"--endpoint={reader.rewritten('http://127.0.0.1:3550')}"
        run(send, endpoint)
        dead_letters(reader, 2)
        said = ""

        def reconciled() -> bool:
            nonlocal said
            said = run(reconcile, endpoint)
            return "missing 0" in said

        wait_until(reconciled, what="all sales are processed or dead", deadline=60)
        assert said == "sent 8, processed 7, dead 1, missing 0\n"

        follow(reader, stream, names)
        assert names["receipts"].count() == 8
        follow(reader, query, names)
        assert spark.read.parquet(str(lake / "receipts")).count() == 8

        assert f"2 dead letters in {lake}/letters" in run(export, endpoint)
        report = (lake / "letters.html").read_text()
        assert re.search(r"NO_RATE: 2</title>|NO_RATE: 1</title>", report)
        assert run(dry, endpoint) == "bookings  NO_RATE  2\n2 would be sent to bookings\n"
        dead_letters(reader, 2)
        run(replay, endpoint)
        dead_letters(reader, 4)
        ids = re.findall(r'"eventId": "([^"]*)"', reader.sh("nq dlq ls bookings -o json"))
        assert sorted(ids) == ["S-21", "S-21.replay", "S-7", "S-7.replay"]


def follow(reader: Reader, block: Block, names: dict[str, Any]) -> None:
    exec(compile(reader.rewritten(block.text), "spark.md", "exec"), names)  # noqa: S102  # our page


def dead_letters(reader: Reader, count: int) -> None:
    def are_there() -> bool:
        said = reader.sh("nq queues -o json")
        return re.search(rf'"dead": {count}\b', said) is not None

    wait_until(are_there, what=f"{count} jobs are dead", deadline=60)
