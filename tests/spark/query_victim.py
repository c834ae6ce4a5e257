"""A query that a test kills: it copies a stream, and never gets past one of its messages."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

ENDPOINT, FOLDER, STUCK = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])


def stay(offset: int) -> int:
    if offset == STUCK:
        (FOLDER / "stuck").touch()
        time.sleep(600)
    return offset


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    frame = (
        spark.readStream.format("namedqueue")
        .options(stream="events", endpoint=ENDPOINT, maxRowsPerBatch="100", partitionRows="40")
        .load()
    )
    query = (
        frame.withColumn("offset", udf(stay, "bigint")("offset"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(FOLDER / "checkpoint"))
        .option("path", str(FOLDER / "out"))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
