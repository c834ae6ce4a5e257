"""Bulk replay: dead letters from Parquet become new jobs of a queue.

    python -m pyspark_namedqueue.jobs.replay s3://lake/dead-letters payments --dry-run

For letters that are no longer in their queue, or that another queue shall work off; those that
are still there are better sent back by a redrive, which also takes them out. A replayed job has
the letter's payload, headers and idempotency key. Its id is the letter's with the replay's name
behind, so a replay that is run again sends the same ids, and another name sends all once more.

A table holds payloads as people read them. What was no JSON is there as text or in base64, and
whether it was is no longer to be seen: such letters are counted and left out.
"""

import argparse
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_namedqueue.jobs.dead_letters import within

_NOT_JSON = r'^("|\{"base64": "[A-Za-z0-9+/=]*"\}$)'


def chosen(table: DataFrame, given: argparse.Namespace) -> DataFrame:
    """Return the letters that are meant, each job's newest once, and whether it can be replayed."""
    frame = table.filter(within(given.since, given.until))
    if given.of:
        frame = frame.filter(f.col("queue") == given.of)
    if given.reason:
        frame = frame.filter(f.col("terminalReasonCode").isin(given.reason))
    newest = frame.groupBy("queue", "eventId").agg(
        f.max_by(f.struct(*frame.columns), "deadLetteredAt").alias("letter")
    )
    fit = ~f.col("payloadSnapshot").rlike(_NOT_JSON)
    return newest.select("letter.*").withColumn("fit", fit)


def show(letters: DataFrame) -> int:
    """Print the letters by queue and reason; return how many can be replayed."""
    counts = (
        letters.groupBy("queue", "terminalReasonCode")
        .agg(f.count_if("fit").alias("fit"), f.count_if(~f.col("fit")).alias("unfit"))
        .orderBy(f.desc("fit"))
        .collect()
    )
    for each in counts:
        left_out = f", {each.unfit} without a JSON payload left out" if each.unfit else ""
        print(f"{each.queue}  {each.terminalReasonCode}  {each.fit}{left_out}")  # noqa: T201
    return sum(each.fit for each in counts)


def send(letters: DataFrame, queue: str, name: str, endpoint: str | None) -> None:
    """Write the letters into a queue as new jobs."""
    jobs = letters.filter("fit").select(
        f.concat_ws(".", "eventId", f.lit(name)).alias("id"),
        *("idempotencyKey", "headers", "payloadSnapshot"),
    )
    columns = {"id": "id", "key": "idempotencyKey", "headers": "headers"}
    writer = jobs.write.format("namedqueue").options(
        queue=queue, payload="payloadSnapshot", **columns
    )
    (writer if endpoint is None else writer.option("endpoint", endpoint)).mode("append").save()


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parser().parse_args(arguments)
    spark = SparkSession.builder.appName(f"replay into {given.queue}").getOrCreate()
    letters = chosen(spark.read.parquet(given.table), given).persist()
    fit = show(letters)
    if given.dry_run:
        print(f"{fit} would be sent to {given.queue}")  # noqa: T201
        return
    send(letters, given.queue, given.name, given.endpoint)
    print(f"{fit} were sent to {given.queue}")  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", help="the Parquet table's path")
    parser.add_argument("queue", help="where the jobs go")
    parser.add_argument("--of", help="only letters of this queue")
    parser.add_argument("--reason", action="append", help="only of this reason; may be repeated")
    parser.add_argument("--since", help="dead-lettered then or later, as in 2026-11-18T06:00:00Z")
    parser.add_argument("--until", help="dead-lettered before")
    parser.add_argument("--name", default="replay", help="of this replay, part of the jobs' ids")
    parser.add_argument("--dry-run", action="store_true", help="say what would be sent")
    parser.add_argument("--endpoint", help="the API; by default the sidecar beside")
    return parser


if __name__ == "__main__":
    main()
