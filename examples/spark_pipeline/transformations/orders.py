"""Tables of the pipeline: every record of the topic, and how many there are by partition."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from consumer_membership.spark import register

spark = SparkSession.active()
register(spark)


@dp.table
def orders() -> DataFrame:
    """What was read, appended: a run goes on where the last one was."""
    return (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
        .option("subscribe", os.environ.get("KAFKA_TOPIC", "orders"))
        .option("group.id", os.environ.get("KAFKA_GROUP", "orders-pipeline"))
        .option("startingOffsets", "earliest")
        .load()
    )


@dp.materialized_view
def orders_by_partition() -> DataFrame:
    """Made of all of `orders`."""
    return spark.read.table("orders").groupBy("partition").count()
