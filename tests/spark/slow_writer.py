"""A write with one straggler: the first run of its first task stops in the middle, for good."""

import sys
import time
from collections.abc import Iterable, Iterator

from pyspark import TaskContext
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import expr

MASTER, ENDPOINT, ROWS, TASKS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
LONGER_THAN_THE_TEST = 600


def straggle(rows: Iterable[Row]) -> Iterator[Row]:
    context = TaskContext.get()
    assert context is not None
    slow = context.partitionId() == 0 and context.attemptNumber() == 0
    for number, row in enumerate(rows):
        if slow and number == ROWS // TASKS - 1:
            time.sleep(LONGER_THAN_THE_TEST)
        yield row


def main() -> None:
    spark = (
        SparkSession.builder.master(MASTER)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        .config("spark.speculation", "true")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.interval", "200ms")
        .getOrCreate()
    )
    # Rows this long pass the buffers between Spark and the writer, so that they are sent.
    frame = spark.range(0, ROWS, 1, TASKS).withColumn("note", expr("repeat('x', 4000)"))
    slow = spark.createDataFrame(frame.rdd.mapPartitions(straggle), frame.schema)
    options = {"queue": "orders", "endpoint": ENDPOINT, "batchRows": "10"}
    slow.write.format("namedqueue").options(**options).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
