"""The functions that sessions on other hosts run in their own process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.spark import register
from consumer_membership.spark.doctor import check
from consumer_membership.spark.group_read import read_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str) -> Counter[tuple[int, int]]:
    """How often each record was read as a DataFrame and committed."""
    with read_group(spark, config, [topic], group) as rows:
        return _counted(rows)


def sourced(spark: SparkSession, /, bootstrap: str, topic: str) -> Counter[tuple[int, int]]:
    """How often the source's batch read returned each record."""
    register(spark)
    source = spark.read.format("kafka-group").option("kafka.bootstrap.servers", bootstrap)
    return _counted(source.option("subscribe", topic).load())


def streamed(spark: SparkSession, /, bootstrap: str, topic: str, group: str, folder: str) -> Counter[tuple[int, int]]:
    """How often a query over the available records returned each record."""
    register(spark)
    source = spark.readStream.format("kafka-group").option("kafka.bootstrap.servers", bootstrap)
    rows = source.option("subscribe", topic).option("group.id", group).option("startingOffsets", "earliest").load()
    chosen = rows.select("partition", "offset").writeStream.format("parquet")
    query = chosen.option("path", f"{folder}/rows").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    return _counted(spark.read.parquet(f"{folder}/rows"))


def checked(spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str) -> list[tuple[str, str, str]]:
    """Severity, subject and text of each finding."""
    found = check(spark, config, [topic], group, instances=2, timeout_s=60.0).findings
    return [(one.severity.value, one.subject, one.found) for one in found]


def networks_of_tasks(spark: SparkSession, /, tasks: int) -> set[str]:
    """The networks in which tasks run."""
    return set(spark.sparkContext.parallelize(range(tasks), tasks).map(_network).collect())


def _network(_: int) -> str:
    return str(Path("/proc/self/ns/net").readlink())


def _counted(rows: DataFrame) -> Counter[tuple[int, int]]:
    return Counter((row.partition, row.offset) for row in rows.select("partition", "offset").collect())
