"""Read, process and write exactly once from Kafka to Kafka, also if processes are killed.

    python examples/exactly_once.py -b localhost:9092 -t orders -o invoices

Start as many processes as you like, each with its own --instance or all without. The results of a batch and its offsets
are one transaction: consumers with isolation.level=read_committed see both or neither. A process that was suspended
while other processes took over its partitions cannot finish its transaction, because the group coordinator rejects its
offsets. The program ends after some seconds without a record, or with Ctrl-C or SIGTERM after the current transaction.
"""

import argparse
import os
import signal
import threading
import time
import uuid

from consumer_membership import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from consumer_membership.admin import AdminClient, NewTopic

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="exactly-once")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-o", "--out", default="invoices", help="the output topic; created if it does not exist")
parser.add_argument("-i", "--instance", help="group.instance.id: a killed process continues at once when it restarts")
parser.add_argument("--batch", type=int, default=100, help="records in one transaction")
parser.add_argument("--idle", type=float, default=10, help="end after this many seconds without a record")
parser.add_argument(
    "--transaction-timeout",
    type=float,
    default=10,
    help="seconds until the brokers abort the transaction of a killed process",
)
options = parser.parse_args()

stopping = threading.Event()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stopping.set())

# Each process needs its own id. With an instance id, the next process has the same id and ends the transaction that
# this process left open.
transactional_id = f"{options.group}-{options.instance or uuid.uuid4()}"


class Transactions:
    """A transactional producer that is replaced before a delayed request could end a later transaction (KIP-890).

    librdkafka resends such requests automatically, and only its log shows it: a connection failed or a request timed
    out.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Create a producer. `init_transactions` first ends the transaction of the previous producer."""
        self.may_be_late = False
        config = {
            "bootstrap.servers": options.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(options.transaction_timeout * 1000),
        }
        self.producer = Producer(config, logger=self)
        self.producer.init_transactions()

    def log(self, _level: int, _text: str, kind: str, *_line: str) -> None:
        """Receive a line of librdkafka's log."""
        if kind in ("FAIL", "REQTMOUT"):
            self.may_be_late = True

    def begin(self) -> Producer:
        """Begin the next transaction."""
        self.producer.poll(0)  # receives the log lines
        if self.may_be_late:
            self.start()
        self.producer.begin_transaction()
        return self.producer

    def abort(self) -> None:
        """Abort the transaction. If that fails, its result is unknown, and a new producer ends it."""
        try:
            self.producer.abort_transaction()
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            self.start()


def process(message: Message) -> bytes:
    """Replace this with your work."""
    return b"invoice for " + (message.value() or b"nothing")


def write(producer: Producer, consumer: Consumer, records: list[Message]) -> None:
    """Write one transaction: the results of the records, and the offsets after them."""
    offsets: dict[tuple[str, int], int] = {}
    for message in records:
        producer.produce(options.out, process(message), message.key())
        offsets[message.topic(), message.partition()] = message.offset() + 1
    metadata = consumer.consumer_group_metadata()
    if consumer.generation() < 0:
        # A group without members would accept offsets without a member id.
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "not a member of the group"))
    producer.send_offsets_to_transaction([TopicPartition(*key, offset) for key, offset in offsets.items()], metadata)
    producer.commit_transaction()


def seek_to_committed(consumer: Consumer, records: list[Message]) -> None:
    """Read the records again, from the committed offsets. Partitions that were lost need no seek."""
    first = {(message.topic(), message.partition()): message.offset() for message in reversed(records)}
    for partition in consumer.committed([TopicPartition(*key) for key in first], timeout=60):
        if partition.error is not None:
            raise KafkaException(partition.error)
        if partition in consumer.assignment():
            offset = partition.offset if partition.offset >= 0 else first[partition.topic, partition.partition]
            consumer.seek(TopicPartition(partition.topic, partition.partition, offset))


def create_output_topic() -> None:
    """Create the output topic with the broker's defaults, unless it exists. Without it, each transaction would fail."""
    admin = AdminClient({"bootstrap.servers": options.bootstrap_servers})
    if options.out in admin.list_topics(timeout=30).topics:
        return
    try:
        admin.create_topics([NewTopic(options.out)])[options.out].result(timeout=30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process has just created it
            raise


def without_errors(messages: list[Message]) -> list[Message]:
    """Return the records; print errors, and raise fatal ones."""
    for message in messages:
        if message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())
            print(f"error: {message.error()}")
    return [message for message in messages if message.error() is None]


def main() -> None:
    """Process records until a signal arrives or there are no records for a while."""
    create_output_topic()
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
            records = without_errors(consumer.consume(options.batch, timeout=1))
            if not records:
                if time.monotonic() > ends_at:
                    break
                continue
            ends_at = time.monotonic() + options.idle
            producer = transactions.begin()
            try:
                write(producer, consumer, records)
            except KafkaException as error:
                print(f"not written, {len(records)} records: {error.args[0].str()}")
                if error.args[0].fatal():
                    raise  # another process has the transactional.id, or this process exceeded the transaction timeout
                transactions.abort()
                seek_to_committed(consumer, records)
            else:
                print(f"{len(records)} records")


main()
