"""A Spark job that writes so many rows to the queue `orders`, and asks the test in each task.

A task asks after its first rows went to the writer, and goes on when the test answers.
"""

import http.client
import json
import os
import sys
from collections.abc import Iterable, Iterator

from pyspark import TaskContext
from pyspark.sql import Row, SparkSession

ROWS, TASKS, DIRECTOR = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ASKED = 90


def asking(rows: Iterable[Row]) -> Iterator[Row]:
    context = TaskContext.get()
    for number, row in enumerate(rows):
        if number == ASKED and context is not None:
            connection = http.client.HTTPConnection(DIRECTOR)
            document = {
                "pod": os.environ["HOSTNAME"],
                "id": str(context.partitionId()),
                "attempt": context.attemptNumber() + 1,
                "most": 4,
                "payload": None,
            }
            connection.request("POST", "/job", json.dumps(document))
            connection.getresponse().read()
            connection.close()
        yield row


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    # Rows this long pass the buffers between Spark and the writer, so that they are sent.
    frame = spark.range(0, ROWS, 1, TASKS).selectExpr("id", "repeat('x', 4000) note")
    held = spark.createDataFrame(frame.rdd.mapPartitions(asking), frame.schema)
    options = {"queue": "orders", "batchRows": "10"}
    held.write.format("namedqueue").options(**options).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
