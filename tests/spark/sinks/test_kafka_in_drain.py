"""A drain into Kafka with killed workers: committed batches count, and other batches are redelivered."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer as Reader
from confluent_kafka import KafkaError, Message, TopicPartition
from pyspark.sql import SparkSession

from consumer_membership.devbroker import Broker
from consumer_membership.spark import SinkContext, drain
from consumer_membership.spark.sinks import KafkaSink, OutRecord
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS, PARTITIONS, BATCH = 4000, 4, 100
#: The batches of a process before its kill: its first transactions are committed by then, and more must follow.
BATCHES = 4


class Killed:
    """A sink that copies records to another topic and kills the first process that has this number of batches.

    The kill occurs within a transaction if `inside`, otherwise after the commit and before the report of it.
    """

    commits_offsets = True

    def __init__(self, servers: str, out: str, folder: Path, *, inside: bool) -> None:
        self._sink = KafkaSink({"bootstrap.servers": servers}, self.copied)
        self._out = out
        self._mark = folder / "killed"
        self._is_inside = inside
        self._batches = self._records = 0

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Write, and kill the process at the point."""
        self._batches += 1
        self._sink(batch, context)
        if self._batches >= BATCHES and not self._is_inside:
            self.end()

    def prepare(self, instance: int, instance_id: str) -> None:
        """Prepare the wrapped sink."""
        self._sink.prepare(instance, instance_id)

    def close(self) -> None:
        """Close the wrapped sink."""
        self._sink.close()

    def copied(self, message: Message) -> list[OutRecord]:
        """The same value, with its origin as the key."""
        if self._batches >= BATCHES and self._is_inside:
            self.end()
        return [OutRecord(topic=self._out, key=f"{message.partition()}:{message.offset()}", value=message.value())]

    def end(self) -> None:
        """Kill this process unless another process was killed before."""
        try:
            self._mark.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def read(servers: str, topic: str) -> Counter[bytes]:
    """The keys of the committed records in a topic."""
    reader = Reader(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found: Counter[bytes] = Counter()

    def is_at_end() -> bool:
        for message in reader.consume(500, 0.1):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return True
            key = message.key()
            assert isinstance(key, bytes)
            found[key] += 1
        return False

    wait_until(is_at_end, "the end of the topic")
    reader.close()
    return found


@pytest.mark.parametrize("inside", [False, True])
def test_drain_result_counts_records_committed_by_a_killed_attempt(
    spark: SparkSession, kafka: Broker, tmp_path: Path, *, inside: bool
) -> None:
    """The counts are part of the sink's transactions, so each record is written once and counted once."""
    servers = kafka.bootstrap_servers
    topic = create_topic(servers, unique("in"), PARTITIONS)
    out = create_topic(servers, unique("out"), 1)
    produce(servers, topic, RECORDS)
    sink = Killed(servers, out, tmp_path, inside=inside)
    config: dict[str, object] = {"bootstrap.servers": servers}
    result = drain(spark, config, [topic], unique("g"), sink, 2, batch_size=BATCH, show_progress=False, timeout_s=120)
    assert (tmp_path / "killed").exists()
    each = RECORDS // PARTITIONS
    assert [(part.first, part.next_offset, part.records) for part in result.partitions] == [
        (0, each, each)
    ] * PARTITIONS
    written = {f"{number}:{offset}".encode() for number in range(PARTITIONS) for offset in range(each)}
    assert read(servers, out) == Counter(written)
