"""A DataFrame becomes jobs, every row once, whatever Spark and the queue do to its tasks."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import expr

from spark.conftest import Ledger, Plane, Serve
from testbed.ports import free_ports

ROWS = 1_000


def orders(spark: SparkSession, rows: int = ROWS, partitions: int = 4) -> DataFrame:
    return spark.range(0, rows, 1, partitions).selectExpr(
        "id", "concat('c-', id % 7) as customer", "cast(id / 100 as decimal(10, 2)) as price"
    )


def write(frame: DataFrame, plane: Plane, **options: str) -> None:
    given = {"queue": "orders", "endpoint": plane.endpoint} | options
    frame.write.format("namedqueue").options(**given).mode("append").save()


def dying(frame: DataFrame, plane: Plane, others: int) -> DataFrame:
    """Let the first run of the first task die, as a process does, when rows of it are confirmed.

    It waits until the queue holds more than `others`, which is all that the other tasks send.
    """
    address = f"{plane.endpoint}/v1/queues/orders"

    def die(rows: Iterable[Row]) -> Iterator[Row]:
        context = TaskContext.get()
        assert context is not None
        doomed = context.partitionId() == 0 and context.attemptNumber() == 0
        for number, row in enumerate(rows):
            while doomed and number == 90:
                if json.load(urlopen(address))["depth"]["ready"] > others:  # noqa: S310  # ours
                    os._exit(1)
                time.sleep(0.1)
            yield row

    # Rows this long pass the buffers between Spark and the writer, so that they are sent.
    long = frame.withColumn("note", expr("repeat('x', 4000)"))
    return frame.sparkSession.createDataFrame(long.rdd.mapPartitions(die), long.schema)


@pytest.mark.parametrize("arrow", ["true", "false"])
def test_every_row_is_one_job(spark: SparkSession, on_either: Serve, arrow: str) -> None:
    with Ledger().open() as ledger:
        plane = on_either(orders={"worker": {"port": ledger.port}})
        write(orders(spark), plane, arrow=arrow)
        plane.work_off()
    assert set(ledger.times.values()) == {1}
    assert sorted(each["id"] for each in ledger.payloads.values()) == list(range(ROWS))
    first = next(each for each in ledger.payloads.values() if each["id"] == 150)
    assert first == {"id": 150, "customer": "c-3", "price": "1.50"}


def test_a_topic_gives_every_row_to_each_queue_that_subscribes(
    spark: SparkSession, serve: Serve
) -> None:
    plane = serve(
        mail={"subscriptions": [{"topic": "order/+/created"}]},
        audit={"subscriptions": [{"topic": "order/#"}]},
    )
    frame = orders(spark, 100, 2).write.format("namedqueue").option("endpoint", plane.endpoint)
    frame.option("topic", "order/eu/created").mode("append").save()
    assert [plane.depth(each)["ready"] for each in ("mail", "audit")] == [100, 100]
    with pytest.raises(PySparkException, match=r"topic a/b takes nothing.*NO_SUBSCRIBER"):
        frame.option("topic", "a/b").mode("append").save()


def test_rows_of_a_task_that_died_were_sent_twice_and_are_processed_once(
    spark: SparkSession, on_either: Serve
) -> None:
    tasks, rows = 20, 2_000
    ledger = Ledger()
    [ledger.port] = free_ports(1)
    plane = on_either(orders={"worker": {"port": ledger.port}, "idempotency": {"key": "messageId"}})
    frame = dying(orders(spark, rows, tasks), plane, others=rows - rows // tasks)
    write(frame, plane, batchRows="10")
    sent = plane.depth("orders")["ready"]
    assert rows < sent <= rows + rows // tasks, "one task in twenty died with rows confirmed"

    with ledger.open():
        plane.work_off()
    assert set(ledger.times.values()) == {1}
    assert sorted(each["id"] for each in ledger.payloads.values()) == list(range(rows))


def test_a_full_queue_makes_tasks_wait_and_not_fail(spark: SparkSession, serve: Serve) -> None:
    with Ledger().open() as ledger:
        worker = {"port": ledger.port, "concurrency": 5}
        plane = serve(orders={"worker": worker, "durable": {"maxLength": 50}})
        write(orders(spark, 1_000), plane, batchRows="100")
        plane.work_off()
    assert len(ledger.times) == 1_000


def test_a_queue_that_stays_full_fails_the_write_with_the_reason(
    spark: SparkSession, serve: Serve
) -> None:
    plane = serve(orders={"durable": {"maxLength": 10}})
    with pytest.raises(PySparkException, match=r"took nothing for 1 s, the option patience.*FULL"):
        write(orders(spark, 100, 1), plane, patience="1s")


def test_an_unknown_queue_fails_at_once(spark: SparkSession, serve: Serve) -> None:
    plane = serve("--no-allow-ephemeral", orders={})
    began = time.monotonic()
    with pytest.raises(PySparkException, match=r"queue nowhere takes nothing.*UNKNOWN_QUEUE"):
        write(orders(spark, 10, 1), plane, queue="nowhere")
    assert time.monotonic() - began < 60


def test_a_wrong_option_is_named_before_anything_runs(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="option batchRows is 'all', not a number"):
        write(orders(spark), Plane(1), batchRows="all")


SCHEMA = {"type": "object", "properties": {"id": {"not": {"multipleOf": 100}}}}


def test_a_row_against_the_schema_fails_the_write_with_the_row(
    spark: SparkSession, serve: Serve
) -> None:
    plane = serve(orders={"schema": SCHEMA})
    with pytest.raises(PySparkException, match=r"refuses a row: SCHEMA_VIOLATION.*the row is"):
        write(orders(spark, 100, 1), plane)


def test_rows_against_the_schema_are_set_aside_once_in_spite_of_retries(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    aside, invalid = tmp_path / "aside", range(0, 400, 100)
    plane = serve(orders={"schema": SCHEMA})
    frame = dying(orders(spark, 400), plane, others=300 - len(invalid) + 1)
    write(frame, plane, onInvalid=str(aside), batchRows="20")
    assert plane.depth("orders")["ready"] > 400 - len(invalid)
    lines = [line for file in aside.glob("*.ndjson") for line in file.read_text().splitlines()]
    assert sorted(rejected(line) for line in lines) == list(invalid)


def rejected(line: str) -> int:
    document: dict[str, Any] = json.loads(line)
    assert document["code"] == "SCHEMA_VIOLATION"
    return int(json.loads(document["row"])["payload"]["id"])


def test_a_query_that_is_restarted_sends_a_batch_again_under_the_same_ids(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    orders(spark, 200, 2).write.json(str(source))
    with Ledger().open() as ledger:
        plane = serve(orders={"worker": {"port": ledger.port}})
        run_once(spark, plane, source, checkpoint)
        for commit in (checkpoint / "commits").glob("*"):
            commit.unlink()  # as if the driver had died before it wrote this down
        run_once(spark, plane, source, checkpoint)
        plane.work_off()
    assert len(ledger.times) == 200
    assert set(ledger.times.values()) == {2}


def run_once(spark: SparkSession, plane: Plane, source: Path, checkpoint: Path) -> None:
    """Write what is there and stop."""
    frame = spark.readStream.schema("id long, customer string, price double").json(str(source))
    query = (
        frame.writeStream.format("namedqueue")
        .options(queue="orders", endpoint=plane.endpoint, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
