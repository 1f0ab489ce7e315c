"""Keep something per partition, and follow the partitions as they come and go.

    python examples/rebalance_callbacks.py -b localhost:9092 -t orders

Counts records per key, in memory, for the partitions that this member owns. Start it twice, in two terminals, and stop
one: the partitions move, and each is counted by one member only. Ends after some seconds, or by Ctrl-C.
"""

import argparse
import os
import time
from collections import Counter

from consumer_membership import Consumer, TopicPartition

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="rebalance-callbacks")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--seconds", type=float, default=30)
options = parser.parse_args()

counts: dict[int, Counter[bytes | None]] = {}


def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
    """Make room before the first record comes. Called with the new partitions only."""
    for place in partitions:
        counts[place.partition] = Counter()
    print("assigned", sorted(place.partition for place in partitions))


def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Finish: the next owner begins only after this returns. Everything that was polled is committed already."""
    for place in partitions:
        total = sum(counts.pop(place.partition).values())
        print(f"revoked {place.partition}: {total} records since epoch {consumer.owned_since(place)}")


def on_lost(_: Consumer, partitions: list[TopicPartition]) -> None:
    """Throw away: another member may own them already, and nothing can be committed any more."""
    for place in partitions:
        counts.pop(place.partition, None)
    print("lost", sorted(place.partition for place in partitions))


config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "auto.offset.reset": "earliest",
    # Without it on_revoke is told of everything, and on_assign of the whole, as confluent-kafka's default is.
    "rebalance.callbacks": "incremental",
}

with Consumer(config) as consumer:
    consumer.subscribe([options.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    end = time.monotonic() + options.seconds
    try:
        while time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                counts[message.partition()][message.key()] += 1
            elif message.error().fatal():
                print(f"error: {message.error()}")
                break
    except KeyboardInterrupt:
        print("leaving")
