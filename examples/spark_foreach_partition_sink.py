"""Write a topic to Parquet files from Spark's foreachPartition: each record once, also if tasks are killed.

    python examples/spark_foreach_partition_sink.py -b localhost:9092 -t orders -o /tmp/orders

Each partition of the DataFrame is a member of the group. If a task is killed, Spark starts it again: the new task takes
over the place in the group, and the sink skips the records that are already written. Start the program again: it
continues after the last record.
"""

import argparse
import os
import sys

from pyspark.sql import SparkSession

from consumer_membership.spark import ParquetSink, member_task

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="spark-foreach-partition")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-o", "--output", default="orders.parquet")
parser.add_argument("-n", "--instances", type=int, default=2)
options = parser.parse_args()

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master(f"local[{options.instances},4]").appName("foreach-partition-sink").getOrCreate()

config = {"bootstrap.servers": options.bootstrap_servers, "group.id": options.group}
task = member_task(config, [options.topic], ParquetSink(options.output), batch_format="arrow")
spark.range(options.instances).repartition(options.instances).foreachPartition(task)

written = spark.read.parquet(options.output)
for row in written.groupBy("partition").count().orderBy("partition").collect():
    print(f"{options.topic}[{row['partition']}]: {row['count']} records in {options.output}")
spark.stop()
