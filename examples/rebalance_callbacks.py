"""Keep state for each partition, and update it when partitions are assigned, revoked or lost.

    python examples/rebalance_callbacks.py -b localhost:9092 -t orders

Counts records by key, in memory, for the partitions that this member owns. Start the program in two terminals and stop
one of them: its partitions move, and each partition is counted by one member only. The program ends after --seconds, or
with Ctrl-C.
"""

import argparse
import os
import signal
import threading
import time
from collections import Counter

from consumer_membership import Consumer, KafkaException, TopicPartition

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="rebalance-callbacks")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--seconds", type=float, default=30)
options = parser.parse_args()

counts: dict[int, Counter[bytes | None]] = {}


def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
    """Create the state of the new partitions. Their first record is returned after this callback."""
    for partition in partitions:
        counts[partition.partition] = Counter()
    print("assigned", sorted(partition.partition for partition in partitions))


def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Finish the work of these partitions: the next owner starts only after this returns."""
    for partition in partitions:
        total = sum(counts.pop(partition.partition).values())
        print(f"revoked {partition.partition}: {total} records since epoch {consumer.owned_since(partition)}")


def on_lost(_: Consumer, partitions: list[TopicPartition]) -> None:
    """Discard the state: another member may already own the partitions, and commits would be rejected."""
    for partition in partitions:
        counts.pop(partition.partition, None)
    print("lost", sorted(partition.partition for partition in partitions))


stopping = threading.Event()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stopping.set())

config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "auto.offset.reset": "earliest",
    # Callbacks receive only the partitions that change. The default is confluent-kafka's: in each rebalance, on_revoke
    # receives all partitions, and on_assign the whole new assignment.
    "rebalance.callbacks": "incremental",
}

with Consumer(config) as consumer:
    consumer.subscribe([options.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end and not stopping.is_set():
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())
            print(f"error: {message.error()}")
            continue
        counts[message.partition()][message.key()] += 1
    print("leaving")
