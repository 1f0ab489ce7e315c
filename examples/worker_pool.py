"""Handle records in a pool of threads: pause partitions while the workers are busy, and commit finished work only.

    python examples/worker_pool.py -b localhost:9092 -t orders

The main thread polls without a break, so that the member stays in its group even if a record takes longer than
max.poll.interval.ms. Records of one partition are handled concurrently; an offset is stored when its record and all
records before it are finished. The program ends with Ctrl-C or SIGTERM, after the workers have finished.
"""

import argparse
import os
import signal
import threading
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor

from consumer_membership import Consumer, KafkaException, Message, TopicPartition

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="worker-pool")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--high", type=int, default=20, help="pause at this number of records in work")
parser.add_argument("--low", type=int, default=10, help="resume at this number of records in work")
options = parser.parse_args()

Key = tuple[str, int]
in_work: dict[Key, list[tuple[int, Future[None]]]] = defaultdict(list)  # in the order of the partition


def handle(message: Message) -> None:
    """Replace this with your work. Several threads call it at the same time."""
    time.sleep(len(message.value() or b"") / 500)


def store_finished(consumer: Consumer, partitions: list[Key]) -> None:
    """Store for each partition the offset before which all records are finished; stop at a record that failed."""
    for topic, partition in partitions:
        records = in_work[topic, partition]
        next_offset = None
        while records and records[0][1].done() and records[0][1].exception() is None:
            offset, _ = records.pop(0)
            next_offset = offset + 1
        if next_offset is not None:
            consumer.store_offsets(offsets=[TopicPartition(topic, partition, next_offset)])


def raise_failure() -> None:
    """Raise what `handle` raised. The record is not committed, so the group receives it again."""
    for records in in_work.values():
        if records and records[0][1].done():
            records[0][1].result()


def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Finish the records of the revoked partitions: the next owner starts only after this returns."""
    keys = [(partition.topic, partition.partition) for partition in partitions]
    for key in keys:
        for _, future in in_work[key]:
            future.exception()  # waits
    store_finished(consumer, keys)
    for key in keys:
        del in_work[key]


def on_lost(_: Consumer, partitions: list[TopicPartition]) -> None:
    """Forget the records of lost partitions: another member may already own them, and commits would be rejected."""
    for partition in partitions:
        for _, future in in_work.pop((partition.topic, partition.partition), []):
            future.cancel()


def main() -> None:
    """Poll until a signal arrives."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,  # automatic commits contain stored offsets only
        "rebalance.callbacks": "incremental",  # on_revoke receives only the partitions that move
    }
    is_paused = False
    with ThreadPoolExecutor(options.workers) as pool, Consumer(config) as consumer:
        consumer.subscribe([options.topic], on_revoke=on_revoke, on_lost=on_lost)
        while not stopping.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                future = pool.submit(handle, message)
                in_work[message.topic(), message.partition()].append((message.offset(), future))
            elif message is not None:
                if message.error().fatal():
                    raise KafkaException(message.error())
                print(f"error: {message.error()}", flush=True)

            store_finished(consumer, list(in_work))
            raise_failure()
            count = sum(len(records) for records in in_work.values())
            if count >= options.high and not is_paused:
                is_paused = True
                print(f"paused: {count} records in work", flush=True)
            elif count <= options.low and is_paused:
                is_paused = False
                consumer.resume(consumer.assignment())
                print(f"resumed: {count} records in work", flush=True)
            if is_paused:
                consumer.pause(consumer.assignment())  # in each iteration, for partitions that have just been assigned
    print("left the group")


main()
