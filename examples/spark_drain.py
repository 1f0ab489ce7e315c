"""Handle all uncommitted records of a group in Spark tasks, then end: for Airflow, cron and similar schedulers.

    python examples/spark_drain.py -b localhost:9092 -t orders

The job reads up to the end offsets at its start. Start it again: it handles the records that were produced since then.
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
    """Replace this with your work. It runs in a task; the batch is committed after it returns."""
    lengths = Counter(len(message.value() or b"") for message in batch)
    longest = max(lengths, default=0)
    sys.stderr.write(f"task {context.instance}: {len(batch)} records, the longest has {longest} bytes\n")


os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master(f"local[{options.instances},4]").appName("drain").getOrCreate()

config = {"bootstrap.servers": options.bootstrap_servers}
arguments = (config, [options.topic], options.group)
# Reports problems before the job starts: too few slots, another Python version, a missing ACL.
check(spark, *arguments, instances=options.instances, sink=handle).raise_for_errors()
result = drain(spark, *arguments, handle, options.instances)

for part in result.partitions:
    print(f"{part.topic}[{part.partition}]: offsets {part.first} to {part.next_offset}, {part.records} records")
print(f"{result.records} records")
spark.stop()
