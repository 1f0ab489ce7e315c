"""At least once with automatic commits: store the offset of each record after your code has handled it.

    python examples/store_offsets.py -b localhost:9092 -t orders

The consumer commits stored offsets only: every 5 seconds, before a partition is revoked, and when it closes. If
`handle` raises, the program ends and the record is not committed, so the group receives it again. The program ends
after -n records, or after 10 seconds without a record.
"""

import argparse
import os

from consumer_membership import Consumer, KafkaException, Message

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="store-offsets")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-n", "--records", type=int, default=100)
parser.add_argument("--fail-at", type=int, metavar="OFFSET", help="raise at this offset, to see that nothing is lost")
options = parser.parse_args()


def handle(message: Message) -> None:
    """Replace this with your work."""
    if message.offset() == options.fail_at:
        raise ValueError(f"cannot handle offset {options.fail_at}")
    print(f"{message.topic()}[{message.partition()}]@{message.offset()} {message.value()!r}")


config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "auto.offset.reset": "earliest",
    "enable.auto.offset.store": False,
}

with Consumer(config) as consumer:
    consumer.subscribe([options.topic])
    handled = 0
    while handled < options.records:
        message = consumer.poll(10)
        if message is None:
            print("no record for 10 s")
            break
        if message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())
            print(f"error: {message.error()}")
            continue
        handle(message)
        handled += 1
        try:
            consumer.store_offsets(message)
        except (
            KafkaException
        ) as error:  # the partition was lost while the record was handled; its next owner repeats it
            print(f"not stored: {error}")
