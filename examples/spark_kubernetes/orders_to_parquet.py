"""Write the records of a topic to Parquet files, as a service: members in Spark tasks, until SIGTERM.

    python examples/spark_kubernetes/orders_to_parquet.py

The settings come from the environment (`driver.yaml`): KAFKA_BOOTSTRAP_SERVERS, TOPIC, GROUP, FOLDER (a path that all
tasks share, or `s3://bucket/prefix`) and INSTANCES. Spark's own settings are in `spark-defaults.conf` in the folder
SPARK_CONF_DIR; without this variable, Spark runs in this process.
"""

import os
import signal
import sys
from types import FrameType

from pyspark.sql import SparkSession

from consumer_membership.spark import ParquetSink, check, run

instances = int(os.environ.get("INSTANCES", "2"))
config = {"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")}
arguments = (config, [os.environ.get("TOPIC", "orders")], os.environ.get("GROUP", "orders-to-parquet"))
sink = ParquetSink(os.environ.get("FOLDER", "orders-parquet"))


def end(_: int, __: FrameType | None) -> None:
    """Leave the `with` block below, which stops the members: they commit and leave the group."""
    raise SystemExit(0)


signal.signal(signal.SIGTERM, end)
builder = SparkSession.builder.appName("orders-to-parquet")
if "SPARK_CONF_DIR" not in os.environ:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.master(f"local[{instances},4]")
spark = builder.getOrCreate()
# Reports problems before the job starts: an address that executors cannot reach, another Python version, too few slots.
print(check(spark, *arguments, instances=instances, sink=sink))
with run(spark, *arguments, sink, instances, batch_format="arrow", batch_wait_s=5.0) as running:
    print("running", flush=True)
    running.wait()
