"""Call a function for each uncommitted record of a group in Spark tasks, with retries and dead letters, then end.

    python examples/spark_handler.py -b localhost:9092 -t orders

Records of one key run one after the other, different keys at the same time. A record that fails is tried again; after
the last attempt it goes to the dead-letter topic, and the job continues. A value that begins with "fail" fails each
time.

    consumer-membership dead-letters orders.dlq list -b localhost:9092
"""

import argparse
import os
import sys

import tenacity
from pyspark.sql import SparkSession

from consumer_membership import KafkaException, Message
from consumer_membership.admin import AdminClient, NewTopic
from consumer_membership.spark import HandlerSink, SinkHandlerContext, check, drain

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="spark-handler")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-n", "--instances", type=int, default=2)
options = parser.parse_args()

DEAD_LETTERS = f"{options.topic}.dlq"


def handle(record: Message, context: SinkHandlerContext) -> None:
    """Replace this with your work. Several threads of a task call it at the same time."""
    if (record.value() or b"").startswith(b"fail"):
        raise ValueError(f"record {record.offset()} cannot be handled, attempt {context.attempt}")


def create_dead_letter_topic() -> None:
    """Create the topic with the broker's defaults, unless it exists."""
    admin = AdminClient({"bootstrap.servers": options.bootstrap_servers})
    if DEAD_LETTERS not in admin.list_topics(timeout=30).topics:
        try:
            admin.create_topics([NewTopic(DEAD_LETTERS)])[DEAD_LETTERS].result(timeout=30)
        except KafkaException as error:  # another process may have created it in the meantime
            sys.stderr.write(f"{DEAD_LETTERS}: {error.args[0].str()}\n")


create_dead_letter_topic()
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master(f"local[{options.instances},4]").appName("handler").getOrCreate()

config = {"bootstrap.servers": options.bootstrap_servers}
retry = tenacity.Retrying(
    wait=tenacity.wait_random_exponential(multiplier=0.1, max=5), stop=tenacity.stop_after_attempt(3)
)
sink = HandlerSink(handle, concurrency=16, retry=retry, dead_letter=DEAD_LETTERS)
# Reports problems before the job starts, such as a dead-letter topic that may not be written.
check(spark, config, [options.topic], options.group, instances=options.instances, sink=sink).raise_for_errors()
result = drain(spark, config, [options.topic], options.group, sink, options.instances)

print(f"{result.records} records")
spark.stop()
