"""Commit each batch after it was handled: at least once, with a tag that identifies late writes.

    python examples/manual_commit.py -b localhost:9092 -t orders

Kill the program at any point and start it again: it continues after the last committed batch. Some records may be
handled twice, and none is skipped. Each output line has the member epoch at which the member received the partition.
If two members wrote results of the same record, the higher epoch is the current owner's.
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
    """Replace this with your work."""
    print(f"epoch {epoch}: {message.topic()}[{message.partition()}]@{message.offset()} {message.value()!r}")


def without_errors(messages: list[Message]) -> list[Message]:
    """Return the records; print errors, and raise fatal ones."""
    for message in messages:
        if message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())
            print(f"error: {message.error()}")
    return [message for message in messages if message.error() is None]


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
        messages = consumer.consume(min(options.batch, options.records - handled), timeout=10)
        records = without_errors(messages)
        if not messages:
            print("no record for 10 s")
            break
        if not records:
            continue
        for message in records:
            since = consumer.owned_since(TopicPartition(message.topic(), message.partition()))
            handle(message, since if since is not None else consumer.generation())
        handled += len(records)
        try:
            committed = consumer.commit(asynchronous=False)
        except KafkaException as error:
            # Usually the partitions belong to another member now. That member handles these records again.
            print(f"not committed: {error}")
        else:
            # Partitions with nothing to commit have a negative offset.
            print(
                "committed", ", ".join(f"{at.topic}[{at.partition}]@{at.offset}" for at in committed if at.offset >= 0)
            )
