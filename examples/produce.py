"""Produce records to try the other examples with, and report failed deliveries.

    python examples/produce.py -b localhost:9092 -t orders -n 100

Creates the topic if it does not exist. With --rate, the program produces that many records each second, so that you can
watch consumers while they rebalance. The keys are customer-0 to customer-9; records with one key go to one partition.
"""

import argparse
import os
import sys
import time

from consumer_membership import KafkaError, KafkaException, Message, Producer
from consumer_membership.admin import AdminClient, NewTopic

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-n", "--records", type=int, default=100)
parser.add_argument("--partitions", type=int, default=4, help="if the topic is created")
parser.add_argument("--rate", type=float, help="records per second; by default as fast as possible")
options = parser.parse_args()

delivered = 0
failures: list[KafkaError] = []


def create_topic() -> None:
    """Create the topic, unless it exists."""
    admin = AdminClient({"bootstrap.servers": options.bootstrap_servers})
    try:
        admin.create_topics([NewTopic(options.topic, options.partitions)])[options.topic].result(timeout=30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def on_delivery(error: KafkaError | None, _: Message) -> None:
    """Count one record. The producer has already retried before it reports an error."""
    global delivered  # noqa: PLW0603 - the callback of a script
    if error is None:
        delivered += 1
    else:
        failures.append(error)


create_topic()
producer = Producer({"bootstrap.servers": options.bootstrap_servers})
started = time.monotonic()
for number in range(options.records):
    while True:
        try:
            producer.produce(options.topic, f"order {number}", key=f"customer-{number % 10}", on_delivery=on_delivery)
            break
        except BufferError:  # the producer's queue is full: wait for deliveries
            producer.poll(1)
    producer.poll(0)  # calls on_delivery
    if options.rate is not None:
        time.sleep(max(0.0, started + (number + 1) / options.rate - time.monotonic()))
undelivered = producer.flush(30)
print(f"produced {delivered} records to {options.topic}")
if undelivered or failures:
    sys.exit(f"{undelivered} records were not delivered in 30 s; {len(failures)} failed {failures[:1]}")
