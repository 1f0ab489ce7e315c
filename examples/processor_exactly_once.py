"""Read, process and write exactly once from Kafka to Kafka, with keys in parallel.

    python examples/processor_exactly_once.py -b localhost:9092 -t orders -o invoices

The handler returns the records to write. The processor writes them in one transaction with the offsets of the records
that they were made from: consumers with isolation.level=read_committed see each result once, also if processes are
killed. Start as many processes as you like. Ctrl-C or SIGTERM finishes the records in work and commits.
"""

import argparse
import os
import time

from consumer_membership import KafkaException, Message
from consumer_membership.admin import AdminClient, NewTopic
from consumer_membership.processing import OutputRecord, Processor

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="processor-exactly-once")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-o", "--out", default="invoices", help="the output topic; created if it does not exist")
parser.add_argument("-i", "--instance", help="group.instance.id: a killed process continues at once when it restarts")
parser.add_argument("--concurrency", type=int, default=16, help="records in work at the same time")
options = parser.parse_args()


def handle(record: Message) -> OutputRecord:
    """Replace this with your work; return None, one record, or several records."""
    time.sleep(0.01)
    return OutputRecord(options.out, b"invoice for " + (record.value() or b"nothing"), record.key())


def create_output_topic() -> None:
    """Create the output topic with the broker's defaults, unless it exists."""
    admin = AdminClient({"bootstrap.servers": options.bootstrap_servers})
    if options.out not in admin.list_topics(timeout=30).topics:
        try:
            admin.create_topics([NewTopic(options.out)])[options.out].result(timeout=30)
        except KafkaException as error:  # another process may have created it in the meantime
            print(f"{options.out}: {error.args[0].str()}")


def main() -> None:
    """Process records until a signal arrives."""
    create_output_topic()
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
    }
    if options.instance is not None:
        config["group.instance.id"] = options.instance
    with Processor(
        config,
        [options.topic],
        handle,
        concurrency=options.concurrency,
        transactional=True,
    ) as processor:
        processor.run()
        handlers = processor.metrics().handlers
        if handlers is not None:
            print(f"{handlers.finished} records")


main()
