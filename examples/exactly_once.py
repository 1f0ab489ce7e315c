"""Read, process, write: the result of each record is there exactly once, whichever process dies when.

    python examples/exactly_once.py -b localhost:9092 -t orders -o invoices

Start it as often as you like, each with an --instance of its own or all without. What is written and how far was read
are one transaction: readers with isolation.level=read_committed see both or nothing. A process that stood still while
others took its partitions over cannot finish what it began: the group's coordinator refuses its offsets. Ends after
some seconds without a record, or by Ctrl-C.
"""

import argparse
import os
import signal
import threading
import time
import uuid

from confluent_kafka import Producer

from consumer_membership import Consumer, KafkaError, KafkaException, Message, TopicPartition

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="exactly-once")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-o", "--out", default="invoices")
parser.add_argument("-i", "--instance", help="group.instance.id: who is killed and started again goes on at once")
parser.add_argument("--batch", type=int, default=100, help="records in one transaction")
parser.add_argument("--idle", type=float, default=10, help="seconds without a record after which it ends")
parser.add_argument("--transaction-timeout", type=float, default=10, help="seconds; what the killed leave waits for it")
options = parser.parse_args()

stopping = threading.Event()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stopping.set())  # between two transactions

# Of this process alone. With an instance id the next process has it, too, and ends what this one has left.
transactional_id = f"{options.group}-{options.instance or uuid.uuid4()}"


class Transactions:
    """A producer, replaced before a request that is late on its way could end a later transaction (KIP-890).

    librdkafka sends such requests again by itself. Only its log says when: a connection failed, an answer did not come.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Make a new producer; afterwards what the one before has left is over, committed or aborted."""
        self.may_be_late = False
        config = {
            "bootstrap.servers": options.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(options.transaction_timeout * 1000),
        }
        self.producer = Producer(config, logger=self)
        self.producer.init_transactions()

    def log(self, _level: int, _text: str, kind: str, *_line: str) -> None:
        """Take a line of librdkafka's log."""
        if kind in ("FAIL", "REQTMOUT"):
            self.may_be_late = True

    def begin(self) -> Producer:
        """Begin the next transaction."""
        self.producer.poll(0)  # what librdkafka has logged
        if self.may_be_late:
            self.start()
        self.producer.begin_transaction()
        return self.producer

    def abort(self) -> None:
        """End the transaction, unless it is committed without our knowing it."""
        try:
            self.producer.abort_transaction()
        except KafkaException as refused:
            if refused.args[0].fatal():
                raise
            self.start()


def process(message: Message) -> bytes:
    """Do what the application is for."""
    return b"invoice for " + (message.value() or b"nothing")


def write(producer: Producer, consumer: Consumer, records: list[Message]) -> None:
    """One transaction: the results, and the offsets behind what they were made of."""
    behind: dict[tuple[str, int], int] = {}
    for message in records:
        producer.produce(options.out, process(message), message.key())
        behind[message.topic(), message.partition()] = message.offset() + 1
    membership = consumer.consumer_group_metadata()
    if consumer.generation() < 0:
        # Offsets of nobody would be taken where the group has no members.
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "no member any more"))
    producer.send_offsets_to_transaction([TopicPartition(*place, at) for place, at in behind.items()], membership)
    producer.commit_transaction()


def go_back(consumer: Consumer, records: list[Message]) -> None:
    """Read again from what is committed. Whoever has lost the partitions does so anyway, when it has some again."""
    first = {(message.topic(), message.partition()): message.offset() for message in reversed(records)}
    for place in consumer.committed([TopicPartition(*place) for place in first], timeout=60):
        if place.error is not None:
            raise KafkaException(place.error)
        if place in consumer.assignment():
            at = place.offset if place.offset >= 0 else first[place.topic, place.partition]
            consumer.seek(TopicPartition(place.topic, place.partition, at))


def main() -> None:
    """Copy until there is nothing for a while."""
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if options.instance is not None:
        config["group.instance.id"] = options.instance
    with Consumer(config) as consumer:
        consumer.subscribe([options.topic])
        transactions = Transactions()
        ends_at = time.monotonic() + options.idle
        while not stopping.is_set():
            batch = consumer.consume(options.batch, timeout=1)
            records = [message for message in batch if message.error() is None]
            if not records:
                if batch:
                    print(f"error: {batch[0].error()}")
                if time.monotonic() > ends_at or (batch and batch[0].error().fatal()):
                    break
                continue
            ends_at = time.monotonic() + options.idle
            producer = transactions.begin()
            try:
                write(producer, consumer, records)
            except KafkaException as refused:
                print(f"not written, {len(records)} records: {refused.args[0].str()}")
                if refused.args[0].fatal():
                    raise  # another process has the transactional.id, or this one was too slow for the brokers
                transactions.abort()
                go_back(consumer, records)
            else:
                print(f"{len(records)} records")


main()
