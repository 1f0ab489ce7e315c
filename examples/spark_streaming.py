"""A query of Structured Streaming whose group everybody sees: no jar, offsets in a checkpoint, lag in every tool.

    python examples/spark_streaming.py -b localhost:9092 -t orders --checkpoint /tmp/orders-by-length

It reads what is there, and ends; start it again with the same checkpoint for what came since. With --follow it goes on.
"""

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession

from consumer_membership.spark import register

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="spark-streaming")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--checkpoint", required=True, help="the folder where the query keeps where it is")
parser.add_argument("--follow", action="store_true", help="go on until it is interrupted")
options = parser.parse_args()

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2,4]").appName("streaming").getOrCreate()
register(spark)

records = (
    spark.readStream.format("kafka-group")
    .option("kafka.bootstrap.servers", options.bootstrap_servers)
    .option("subscribe", options.topic)
    .option("group.id", options.group)
    .option("startingOffsets", "earliest")  # of a query that has no checkpoint yet
    .load()
)


def handle(batch: DataFrame, number: int) -> None:
    """Do what the application is for: `batch` is a DataFrame; `number` stays the same when it is repeated."""
    for row in batch.groupBy("partition").count().orderBy("partition").collect():
        print(f"batch {number}, partition {row['partition']}: {row['count']} records")


writing = records.writeStream.foreachBatch(handle).option("checkpointLocation", options.checkpoint)
query = (writing if options.follow else writing.trigger(availableNow=True)).start()
try:
    query.awaitTermination()
except KeyboardInterrupt:
    query.stop()
spark.stop()
