"""Commit by hand, batch by batch: a record is committed after it was handled, and never before.

    python examples/manual_commit.py -b localhost:9092 -t orders

Kill it at any point and start it again: it goes on behind the last batch that it committed, so some records may be
handled twice and none is skipped. What it writes it tags with the member epoch: whoever reads the tags can tell what a
member wrote that had lost its partitions to a later one.
"""

import argparse
import os

from consumer_membership import Consumer, KafkaException, Message, TopicPartition

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="manual-commit")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-n", "--records", type=int, default=100)
parser.add_argument("--batch", type=int, default=25)
options = parser.parse_args()


def handle(message: Message, epoch: int) -> None:
    """Do what the application is for; here: print."""
    print(f"epoch {epoch}: {message.topic()}[{message.partition()}]@{message.offset()} {message.value()!r}")


config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}

with Consumer(config) as consumer:
    consumer.subscribe([options.topic])
    handled = 0
    while handled < options.records:
        batch = consumer.consume(min(options.batch, options.records - handled), timeout=10)
        records = [message for message in batch if message.error() is None]
        if not records:
            print(f"error: {batch[0].error()}" if batch else "no record for 10 s")
            break
        for message in records:
            since = consumer.owned_since(TopicPartition(message.topic(), message.partition()))
            handle(message, since if since is not None else consumer.generation())
        handled += len(records)
        try:
            committed = consumer.commit(asynchronous=False)
        except KafkaException as refused:
            # Most likely the partitions belong to another member by now, which handles these records again.
            print(f"not committed: {refused}")
        else:
            print("committed " + ", ".join(f"{place.topic}[{place.partition}]@{place.offset}" for place in committed))
