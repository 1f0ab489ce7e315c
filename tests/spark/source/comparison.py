"""The same reads by both sources; `SessionProcess.ask` runs them in a session with the jar of spark-sql-kafka."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from consumer_membership.spark import register
from tests.support.kafka import unique

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THEIRS, OURS = "kafka", "kafka-group"


def _options(source: str, options: Mapping[str, str]) -> dict[str, str]:
    """Add the options that only `kafka-group` has."""
    return {**options, "group.id": unique("group")} if source == OURS else dict(options)


def columns(spark: SparkSession, source: str, options: Mapping[str, str]) -> str:
    """The schema of a read."""
    register(spark)
    return spark.read.format(source).options(**_options(source, options)).load().schema.simpleString()


def batch_rows(spark: SparkSession, source: str, options: Mapping[str, str]) -> list[str]:
    """The rows of a batch read, as sorted texts."""
    register(spark)
    frame = spark.read.format(source).options(**_options(source, options)).load()
    return sorted(map(str, frame.collect()))


def stream_rows(
    spark: SparkSession, source: str, options: Mapping[str, str], folder: str | None = None
) -> list[list[str]]:
    """The rows of each batch of a query over the available records; it continues from the checkpoint folder."""
    register(spark)
    found: list[list[str]] = []

    def see(frame: DataFrame, _: int) -> None:
        found.append(sorted(map(str, frame.collect())))

    records = spark.readStream.format(source).options(**_options(source, options)).load()
    with tempfile.TemporaryDirectory() as scratch:
        writing = records.writeStream.foreachBatch(see).option("checkpointLocation", folder or scratch)
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
    return found


def counts_by_value(
    spark: SparkSession, source: str, options: Mapping[str, str], folder: str, *, is_failing: bool = False
) -> dict[str, int]:
    """A stateful query's count of each value that this run has read.

    With `is_failing` its sink raises, so that its next batch is planned but not completed.
    """
    register(spark)
    found: dict[str, int] = {}

    def see(frame: DataFrame, _: int) -> None:
        found.update({row["value"].decode(): row["count"] for row in frame.collect()})
        assert not is_failing, "the sink fails"

    records = spark.readStream.format(source).options(**options).load()
    writing = records.groupBy("value").count().writeStream.outputMode("update").foreachBatch(see)
    query = writing.option("checkpointLocation", folder).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as failed:  # the query's own error, of a class that depends on its kind
        if not is_failing or "the sink fails" not in str(failed):
            raise
    return found
