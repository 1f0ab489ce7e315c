"""Handle what a group has not handled yet, in Spark's tasks, and end: for Airflow, cron and the like.

    python examples/spark_drain.py -b localhost:9092 -t orders

The ends of the topic are taken at the start. Start it again: it handles what came since, or has nothing to do.
"""

import argparse
import os
import sys
from collections import Counter

from pyspark.sql import SparkSession

from consumer_membership import Message
from consumer_membership.spark import SinkContext, check, drain

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="spark-drain")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-n", "--instances", type=int, default=2)
options = parser.parse_args()


def handle(batch: list[Message], context: SinkContext) -> None:
    """Do what the application is for, in a task; here: count. What is committed when it returns is done."""
    lengths = Counter(len(message.value() or b"") for message in batch)
    longest = max(lengths, default=0)
    sys.stderr.write(f"task {context.instance}: {len(batch)} records, the longest has {longest} bytes\n")


os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master(f"local[{options.instances},4]").appName("drain").getOrCreate()

config = {"bootstrap.servers": options.bootstrap_servers}
asked = (config, [options.topic], options.group)
# Names what would break, before anything runs: too few slots, another interpreter, a missing right.
check(spark, *asked, instances=options.instances, sink=handle).raise_for_errors()
result = drain(spark, *asked, handle, options.instances)

for part in result.partitions:
    print(f"{part.topic}[{part.partition}]: offsets {part.first} to {part.next_offset}, {part.records} records")
print(f"{result.records} records")
spark.stop()
