"""A Structured Streaming query that is visible as a consumer group: no jar, and lag in every Kafka tool.

    python examples/spark_streaming.py -b localhost:9092 -t orders --checkpoint /tmp/orders-by-length

The query reads all available records and ends. Start it again with the same checkpoint to read the records that were
produced since then. With --follow it does not end.
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
parser.add_argument("--checkpoint", required=True, help="the folder for the progress of the query")
parser.add_argument("--follow", action="store_true", help="continue until Ctrl-C")
options = parser.parse_args()

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2,4]").appName("streaming").getOrCreate()
register(spark)

records = (
    spark.readStream.format("kafka-group")
    .option("kafka.bootstrap.servers", options.bootstrap_servers)
    .option("subscribe", options.topic)
    .option("group.id", options.group)
    .option("startingOffsets", "earliest")  # used only if the query has no checkpoint yet
    .load()
)


def handle(batch: DataFrame, number: int) -> None:
    """Replace this with your work. A batch that is repeated has the same `number`."""
    for row in batch.groupBy("partition").count().orderBy("partition").collect():
        print(f"batch {number}, partition {row['partition']}: {row['count']} records")


writing = records.writeStream.foreachBatch(handle).option("checkpointLocation", options.checkpoint)
query = (writing if options.follow else writing.trigger(availableNow=True)).start()
try:
    query.awaitTermination()
except KeyboardInterrupt:
    query.stop()
spark.stop()
