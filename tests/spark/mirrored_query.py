"""A query over Spark's own Kafka source with a mirror: `mirrored_query SERVERS TOPIC GROUP JARS MASTER` as a module.

Prints the committed offsets when 300 records are committed, and again for each number of records that it reads from
stdin. It ends when stdin is closed.
"""

from __future__ import annotations

import json
import sys
import tempfile

from consumer_membership.spark import OffsetMirror
from tests.spark.clusters import SPARK_S, session_of
from tests.support.waiting import wait_until


def _say_when(mirror: OffsetMirror, count: int) -> None:
    wait_until(
        lambda: sum(mirror.state("mirrored").committed.values()) >= count,
        f"{count} committed records",
        SPARK_S,
        seen=lambda: mirror.state("mirrored"),
    )
    committed = mirror.state("mirrored").committed
    print(json.dumps({f"{topic}-{number}": offset for (topic, number), offset in committed.items()}), flush=True)


def _main(servers: str, topic: str, group: str, jars: str, master: str) -> None:
    spark = session_of(master, {"spark.jars": jars})
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
