"""A query of Spark's own Kafka source with a mirror: `python -m tests.spark.mirrored_query SERVERS TOPIC GROUP JARS`.

Prints what is committed when so many records are (300, then the number on stdin), and ends with stdin.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from time import monotonic, sleep

from pyspark.sql import SparkSession

from consumer_membership.spark import OffsetMirror

_PATIENCE_S = 200.0


def _say_when(mirror: OffsetMirror, count: int) -> None:
    ends = monotonic() + _PATIENCE_S
    while sum(mirror.state("mirrored").committed.values()) < count:
        sleep(0.05)
        assert monotonic() < ends, mirror.state("mirrored")
    committed = mirror.state("mirrored").committed
    print(json.dumps({f"{topic}-{number}": offset for (topic, number), offset in committed.items()}), flush=True)


def _main(servers: str, topic: str, group: str, jars: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    records = read.option("subscribe", topic).option("startingOffsets", "earliest").load()
    with (
        tempfile.TemporaryDirectory() as folder,
        OffsetMirror(spark, group_ids={"mirrored": group}, config={"bootstrap.servers": servers}) as mirror,
    ):
        writing = records.writeStream.queryName("mirrored").format("noop").option("checkpointLocation", folder)
        query = writing.trigger(processingTime="200 milliseconds").start()
        _say_when(mirror, 300)
        for line in sys.stdin:
            _say_when(mirror, int(line))
        query.stop()
    spark.stop()


if __name__ == "__main__":
    _main(*sys.argv[1:])
