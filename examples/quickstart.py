"""Print records of a topic as a member of a group: the smallest consumer.

    python examples/quickstart.py -b localhost:9092 -t orders

Only the import differs from a program for confluent-kafka. Ends after -n records, or after a few seconds without any.
"""

import argparse
import os

from consumer_membership import Consumer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="quickstart")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-n", "--records", type=int, default=10)
options = parser.parse_args()

config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "auto.offset.reset": "earliest",
}

with Consumer(config) as consumer:
    consumer.subscribe([options.topic])
    for _ in range(options.records):
        message = consumer.poll(10)
        if message is None:
            print(f"no record for 10 s; the member waits for {consumer.membership().waits_for_text or 'nothing'}")
            break
        if message.error() is not None:
            print(f"error: {message.error()}")
            if message.error().fatal():
                break
            continue
        print(f"{message.topic()}[{message.partition()}]@{message.offset()} {message.value()!r}")

    view = consumer.membership()
    print(f"{view.state}, member epoch {view.member_epoch}, {len(view.owned)} partitions")
# The context's end committed what was printed, and left the group.
