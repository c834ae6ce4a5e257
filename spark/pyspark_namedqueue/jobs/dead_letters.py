"""Dead letters to Parquet, with a report of the reasons over time.

    python -m pyspark_namedqueue.jobs.dead_letters '*' s3://lake/dead-letters --report report.html

The table has the columns of `nq dlq export`. Nothing is taken out of a queue. Letters that come
while this runs may or may not be in it; run it again later with `--since`.
"""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_namedqueue import places
from pyspark_namedqueue.jobs.report import Count, page, step_for

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def letters(
    spark: SparkSession, queues: str, endpoint: str | None, since: str | None, until: str | None
) -> DataFrame:
    """Return the dead letters of these queues, of a stretch of time if one is given."""
    spark.conf.set(_PUSHDOWN, "true")  # what a reader with filters needs, by Spark's own rule
    reader = spark.read.format("namedqueue").option("deadLetters", queues)
    frame = (reader if endpoint is None else reader.option("endpoint", endpoint)).load()
    return frame.filter(within(since, until))


def within(since: str | None, until: str | None) -> Column:
    """Return the condition that a letter is of this stretch of time."""
    at, condition = f.col("deadLetteredAt"), f.lit(True)
    if since is not None:
        condition &= at >= f.lit(moment(since))
    if until is not None:
        condition &= at < f.lit(moment(until))
    return condition


def moment(text: str) -> datetime:
    """Read a moment; one without a zone is in UTC, whatever the machine's zone is."""
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def counted(table: DataFrame) -> tuple[Sequence[Count], timedelta]:
    """Count letters by reason and time, in stretches that suit the time they span."""
    at = f.col("deadLetteredAt")
    first, last = table.agg(f.unix_micros(f.min(at)), f.unix_micros(f.max(at))).collect()[0]
    if first is None:
        return [], timedelta(hours=1)
    step = step_for(_at(first), _at(last))
    width = step // timedelta(microseconds=1)
    begins = f.floor(f.unix_micros(at) / width) * width
    found = table.groupBy(begins.alias("begins"), "terminalReasonCode").count().collect()
    return [Count(_at(each[0]), each[1], each[2]) for each in found], step


def _at(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(microseconds))


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    spark = SparkSession.builder.appName("dead letters to Parquet").getOrCreate()
    frame = letters(spark, given.queues, given.endpoint, given.since, given.until)
    frame.write.mode(given.mode).parquet(given.table)
    table = spark.read.parquet(given.table)
    counts, step = counted(table)
    print(f"{sum(each.letters for each in counts)} dead letters in {given.table}")  # noqa: T201
    if given.report is not None:
        title = f"Dead letters of {'all queues' if given.queues == '*' else given.queues}"
        places.write(given.report, page(title, counts, step).encode())
        print(f"the report is in {given.report}")  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("queues", help="as in orders,payments; * for all")
    parser.add_argument("table", help="the Parquet table's path")
    parser.add_argument("--report", help="where to write the page of reasons over time")
    parser.add_argument("--since", help="dead-lettered then or later, as in 2026-11-18T06:00:00Z")
    parser.add_argument("--until", help="dead-lettered before")
    parser.add_argument("--mode", default="error", choices=("error", "append", "overwrite"))
    parser.add_argument("--endpoint", help="the API; by default the sidecar beside")
    return parser


if __name__ == "__main__":
    main()
