"""The same read by both sources, in a session that has spark-sql-kafka's jar: run there by `SessionProcess.ask`."""

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
    """What only ours has, ours is given."""
    return {**options, "group.id": unique("group")} if source == OURS else dict(options)


def columns(spark: SparkSession, source: str, options: Mapping[str, str]) -> str:
    """The schema of a read."""
    register(spark)
    return spark.read.format(source).options(**_options(source, options)).load().schema.simpleString()


def batch_rows(spark: SparkSession, source: str, options: Mapping[str, str]) -> list[str]:
    """The rows of a batch read, or why there are none."""
    register(spark)
    frame = spark.read.format(source).options(**_options(source, options)).load()
    return sorted(map(str, frame.collect()))


def stream_rows(
    spark: SparkSession, source: str, options: Mapping[str, str], folder: str | None = None
) -> list[list[str]]:
    """The rows of each batch of a query that reads what is there; it goes on from a checkpoint's folder."""
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
