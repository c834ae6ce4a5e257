"""A pipeline from end to end: sales are read, converted to euros, and enqueued as bookings.

    spark-submit examples/spark/pipeline.py send examples/spark/sales.csv
    spark-submit examples/spark/pipeline.py reconcile examples/spark/sales.csv

`send` may be repeated: a sale's number is its job's id. `reconcile` holds what was sent against the
receipts in the stream and against the dead letters, and fails while a sale is in neither.
"""

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

RATES = {"EUR": 1.0, "USD": 0.9, "NOK": 0.085}


def bookings(spark: SparkSession, path: str) -> DataFrame:
    """Read the sales, and give each its amount in euros; null where there is no rate."""
    schema = "sale string, customer string, amount decimal(12,2), currency string"
    sales = spark.read.csv(path, header=True, schema=schema)
    rates = spark.createDataFrame(list(RATES.items()), "currency string, rate double")
    return sales.join(f.broadcast(rates), "currency", "left").select(
        "sale", "customer", f.round(f.col("amount") * f.col("rate"), 2).alias("euros")
    )


def send(frame: DataFrame, endpoint: str) -> None:
    options = {"queue": "bookings", "endpoint": endpoint, "id": "sale"}
    frame.write.format("namedqueue").options(**options).mode("append").save()


def reconcile(spark: SparkSession, sent: DataFrame, endpoint: str) -> dict[str, int]:
    """Count what became of each sale that was sent."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    source = spark.read.format("namedqueue").option("endpoint", endpoint)
    receipts = source.option("stream", "receipts").load()
    paid = receipts.select(f.get_json_object("payload", "$.sale").alias("sale")).distinct()
    source = spark.read.format("namedqueue").option("endpoint", endpoint)
    letters = source.option("deadLetters", "bookings").load()
    dead = letters.select(f.col("eventId").alias("sale")).distinct()
    became = (
        sent.select("sale")
        .join(paid.withColumn("paid", f.lit(1)), "sale", "left")
        .join(dead.withColumn("dead", f.lit(1)), "sale", "left")
    )
    missing = f.col("paid").isNull() & f.col("dead").isNull()
    counts = became.agg(
        f.count("*").alias("sent"),
        f.count("paid").alias("processed"),
        f.count("dead").alias("dead"),
        f.count_if(missing).alias("missing"),
    )
    return counts.collect()[0].asDict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("step", choices=("send", "reconcile"))
    parser.add_argument("sales", help="a CSV file or a folder of them")
    parser.add_argument("--endpoint", default="http://127.0.0.1:3550")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("bookings").getOrCreate()
    frame = bookings(spark, given.sales)
    if given.step == "send":
        send(frame, given.endpoint)
        return
    counts = reconcile(spark, frame, given.endpoint)
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    sys.exit(1 if counts["missing"] else 0)


if __name__ == "__main__":
    main()
