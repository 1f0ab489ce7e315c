"""Print records of a topic as a member of a consumer group: the smallest consumer.

    python examples/quickstart.py -b localhost:9092 -t orders

Compared with a program for confluent-kafka, only the import differs. The program ends after -n records, or after 10
seconds without a record. To fill the topic first, run examples/produce.py.
"""

import argparse
import os

from consumer_membership import Consumer, KafkaException

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

with Consumer(config) as consumer:  # the end of the block commits the printed records and leaves the group
    consumer.subscribe([options.topic])
    printed = 0
    while printed < options.records:
        message = consumer.poll(10)
        if message is None:
            print(f"no record for 10 s; the member waits for: {consumer.membership().waits_for_text or 'nothing'}")
            break
        if message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())
            print(f"error: {message.error()}")
            continue
        print(f"{message.topic()}[{message.partition()}]@{message.offset()} {message.value()!r}")
        printed += 1

    view = consumer.membership()
    print(f"{view.state}, member epoch {view.member_epoch}, {len(view.owned)} partitions")
