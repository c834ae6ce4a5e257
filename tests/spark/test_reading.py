"""Dead letters and streams are tables, and a query follows a stream without losing a message."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark.conftest import Ledger, Plane, Serve
from testbed.processes import wait_until


def table(spark: SparkSession, plane: Plane, **options: str) -> DataFrame:
    return spark.read.format("namedqueue").options(endpoint=plane.endpoint, **options).load()


def send(spark: SparkSession, plane: Plane, queue: str, start: int, end: int) -> None:
    numbers = spark.range(start, end, 1, 2)
    given = {"queue": queue, "endpoint": plane.endpoint}
    numbers.write.format("namedqueue").options(**given).mode("append").save()


def by_number(payload: Any) -> int:
    """Answer as an app would that knows only some of its orders."""
    number = payload["id"]
    return 204 if number % 4 else 422 if number % 8 else 410


def test_dead_letters_are_a_table_and_filters_ask_for_no_more_than_is_wanted(
    spark: SparkSession, on_either: Serve
) -> None:
    with Ledger(by_number).open() as ledger:
        worker = {"worker": {"port": ledger.port}}
        plane = on_either(orders=worker, refunds=worker, events={"type": "stream"})
        for queue in ("orders", "refunds"):
            send(spark, plane, queue, 0, 40)
        wait_until(
            lambda: [plane.depth(each)["dead"] for each in ("orders", "refunds")] == [10, 10],
            what="a quarter is dead",
            deadline=120,
        )
    letters = table(spark, plane, deadLetters="*")
    found = {(each.queue, each.payloadSnapshot): each for each in letters.collect()}
    assert set(found) == {
        (queue, f'{{"id": {number}}}')
        for queue in ("orders", "refunds")
        for number in range(0, 40, 4)
    }
    one = found["orders", '{"id": 4}']
    assert (one.terminalReasonCode, one.attemptCount, one.state) == ("HTTP_422", 1, "pending")
    assert '"errorCode": "HTTP_422"' in one.attemptHistory

    gone = letters.filter("queue = 'orders' and terminalReasonCode in ('HTTP_410', 'HTTP_503')")
    assert gone.rdd.getNumPartitions() == 2, "a partition a reason, of one queue"
    assert gone.count() == 5
    times = sorted(each.deadLetteredAt for each in found.values())
    early, late = times[3], times[-3]
    between = (col("deadLetteredAt") >= lit(early)) & (col("deadLetteredAt") < lit(late))
    assert letters.filter(between).count() == sum(early <= at < late for at in times)


def offsets(frame: DataFrame) -> list[int]:
    return sorted(each.offset for each in frame.select("offset").collect())


def test_a_stretch_of_a_stream_is_a_table_in_as_many_parts_as_it_needs(
    spark: SparkSession, on_either: Serve
) -> None:
    plane = on_either(events={"type": "stream"})
    send(spark, plane, "events", 0, 100)
    rows = table(spark, plane, stream="events", partitionRows="30")
    assert rows.rdd.getNumPartitions() == 4
    assert sorted(each.payload for each in rows.collect()) == sorted(
        f'{{"id": {number}}}' for number in range(100)
    )
    assert offsets(rows) == list(range(100))
    some = table(spark, plane, stream="events", startingOffset="20", endingOffset="90")
    assert offsets(some) == list(range(20, 90))
    assert offsets(table(spark, plane, stream="events", startingOffset="last")) == [99]
    assert offsets(table(spark, plane, stream="events", startingOffset="next")) == []


def copying(spark: SparkSession, plane: Plane, folder: Path, **options: str) -> DataStreamWriter:
    """Return a query that copies a stream into files, where each of its batches counts once."""
    given = {"stream": "events", "endpoint": plane.endpoint, "maxRowsPerBatch": "100"}
    frame = spark.readStream.format("namedqueue").options(**given, **options).load()
    return (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
    )


def finish(query: DataStreamWriter) -> None:
    """Copy what there is by now."""
    assert query.trigger(availableNow=True).start().awaitTermination(120)


def begun(folder: Path) -> set[str]:
    """Name the batches that were begun and not committed."""
    logs = [folder / "checkpoint" / name for name in ("offsets", "commits")]
    every, done = ({each.name for each in log.glob("[0-9]*")} for log in logs)
    return every - done


def test_a_query_killed_in_the_middle_of_a_batch_goes_on_and_loses_and_doubles_nothing(
    spark: SparkSession, on_either: Serve, tmp_path: Path
) -> None:
    plane = on_either(events={"type": "stream"})
    send(spark, plane, "events", 0, 300)
    with victim(plane, tmp_path, stuck=250):
        wait_until((tmp_path / "stuck").exists, what="it is in a batch", deadline=120)
    assert begun(tmp_path) == {"2"}

    send(spark, plane, "events", 300, 350)
    finish(copying(spark, plane, tmp_path))
    assert begun(tmp_path) == set()
    assert offsets(spark.read.parquet(str(tmp_path / "out"))) == list(range(350))


@contextmanager
def victim(plane: Plane, folder: Path, stuck: int) -> Iterator[None]:
    """Run a query in a driver of its own, which stays in the batch of an offset until killed."""
    script = Path(__file__).with_name("query_victim.py")
    with (folder / "victim.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, script, plane.endpoint, folder, str(stuck)],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
        assert process.poll() is None, (folder / "victim.log").read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_query_shows_its_place_by_its_group_which_also_keeps_where_it_began(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    plane = serve(events={"type": "stream"})
    send(spark, plane, "events", 0, 50)
    query = copying(spark, plane, tmp_path, group="lake", startingOffset="next").start()
    wait_until(lambda: cursor(plane) == 50, what="the group stands at the end", deadline=120)
    send(spark, plane, "events", 50, 250)
    wait_until(lambda: cursor(plane) == 150, what="the group is a batch behind", deadline=120)
    query.processAllAvailable()
    query.stop()
    assert offsets(spark.read.parquet(str(tmp_path / "out"))) == list(range(50, 250))


def cursor(plane: Plane) -> int | None:
    found = plane.get("streams/events/groups")["items"]
    return next((int(each["cursor"]) for each in found if each["group"] == "lake"), None)


def test_messages_that_retention_removed_are_missed_aloud(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    plane = serve(events={"type": "stream", "stream": {"maxMessages": 100}})
    send(spark, plane, "events", 0, 80)
    finish(copying(spark, plane, tmp_path))
    send(spark, plane, "events", 80, 250)
    with pytest.raises(PySparkException, match="begins at offset 150 by now, and 80 was to be"):
        finish(copying(spark, plane, tmp_path))
    finish(copying(spark, plane, tmp_path, failOnDataLoss="false"))
    copied = offsets(spark.read.parquet(str(tmp_path / "out")))
    assert copied == [*range(80), *range(150, 250)]
    with pytest.raises(PySparkException, match="begins at offset 150"):
        table(spark, plane, stream="events", startingOffset="10").count()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "give option deadLetters or option stream"),
        ({"deadLetters": "a", "stream": "b"}, "and not both"),
        ({"deadLetters": "a,,b"}, "option deadLetters is 'a,,b', neither queues"),
        ({"deadLetters": "a", "state": "new"}, "option state is 'new', not one of pending"),
        ({"stream": "a", "from": "first"}, "there is no option from; there is stream"),
    ],
    ids=str,
)
def test_a_wrong_option_of_a_read_is_named(
    spark: SparkSession, options: dict[str, str], says: str
) -> None:
    with pytest.raises(PySparkException, match=says):
        table(spark, Plane(1), **options).count()
