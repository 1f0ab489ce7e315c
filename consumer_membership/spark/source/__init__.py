"""`format("kafka-group")`: a source for Structured Streaming and batch reads, with a group in the usual Kafka tools.

A member in the process that Spark keeps for the query owns the group's partitions and commits the offsets of finished
batches. The tasks are not members and read fixed ranges. A query continues from its checkpoint, never from the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_membership.spark.arguments import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("kafka-group")` in a session, for `spark.read` and `spark.readStream`.

    The driver's host and the executors need this package. No connection is opened before a query starts.

    Raises:
        ConfigurationError: the argument is not a session, or the session was stopped.
    """
    context_of(spark)
    from consumer_membership.spark.source.data_source import KafkaGroupSource

    spark.dataSource.register(KafkaGroupSource)
