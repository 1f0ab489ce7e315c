"""The tables of the pipeline: all records of the topic, and their number by partition."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from consumer_membership.spark import register

spark = SparkSession.active()
register(spark)


@dp.table
def orders() -> DataFrame:
    """Append the new records. Each run continues after the previous one."""
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
    """Count all records of `orders`."""
    return spark.read.table("orders").groupBy("partition").count()
