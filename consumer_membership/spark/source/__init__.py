"""`format("kafka-group")`: a source of Structured Streaming, and of batch reads, whose group everybody can see.

A member in the process that Spark keeps for the query holds the group's partitions and commits what finished batches
have read; the tasks are no members and read fixed ranges. Where a query goes on is in its checkpoint, never in the
group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_membership.spark.arguments import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("kafka-group")` known to a session: for `spark.read` and `spark.readStream`.

    The driver's host and the executors need this package; nothing is connected before a query begins.

    Raises:
        ConfigurationError: it is no session, or a stopped one.
    """
    context_of(spark)
    from consumer_membership.spark.source.data_source import KafkaGroupSource

    spark.dataSource.register(KafkaGroupSource)
