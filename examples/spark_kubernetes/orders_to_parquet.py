"""Records of a topic to Parquet files, as a service: members in Spark's tasks, until the pod is told to end.

    python examples/spark_kubernetes/orders_to_parquet.py

It is set up by the environment (`driver.yaml`): KAFKA_BOOTSTRAP_SERVERS, TOPIC, GROUP, FOLDER (a path that all tasks
share, or `s3://bucket/prefix`) and INSTANCES. Spark's own settings are in the `spark-defaults.conf` of SPARK_CONF_DIR;
without it Spark runs here.
"""

import os
import signal
import sys
from types import FrameType

from pyspark.sql import SparkSession

from consumer_membership.spark import ParquetSink, check, run

instances = int(os.environ.get("INSTANCES", "2"))
config = {"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")}
asked = (config, [os.environ.get("TOPIC", "orders")], os.environ.get("GROUP", "orders-to-parquet"))
sink = ParquetSink(os.environ.get("FOLDER", "orders-parquet"))


def end(_: int, __: FrameType | None) -> None:
    """The pod is to end: leave the block below, which stops the members in good order."""
    raise SystemExit(0)


signal.signal(signal.SIGTERM, end)
builder = SparkSession.builder.appName("orders-to-parquet")
if "SPARK_CONF_DIR" not in os.environ:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.master(f"local[{instances},4]")
spark = builder.getOrCreate()
# What would break is named before anything runs: an address that executors do not reach, another Python, no slots.
print(check(spark, *asked, instances=instances, sink=sink))
with run(spark, *asked, sink, instances, batch_format="arrow", batch_wait_s=5.0) as running:
    print("running", flush=True)
    running.wait()
