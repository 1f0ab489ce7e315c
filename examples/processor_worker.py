"""A worker without a web framework: records of different keys in parallel, retries, and a dead-letter topic.

    python examples/processor_worker.py -b localhost:9092 -t orders

Records of one key run one after the other. A record that fails is tried again, which delays only its key; after the
last attempt it goes to the dead-letter topic. SIGTERM or Ctrl-C finishes the records in work, commits, and leaves the
group; a second signal ends the process at once. A value that begins with "fail" fails each time.

    consumer-membership dead-letters orders.dlq list -b localhost:9092
"""

import argparse
import os
import threading
import time

import tenacity

from consumer_membership import KafkaException, Message
from consumer_membership.admin import AdminClient, NewTopic
from consumer_membership.processing import HandlerContext, Processor

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="processor-worker")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--concurrency", type=int, default=16, help="records in work at the same time")
parser.add_argument("--attempts", type=int, default=3)
options = parser.parse_args()

DEAD_LETTERS = f"{options.topic}.dlq"


class InvalidOrderError(Exception):
    """The record cannot be handled now; another attempt may succeed."""


def handle(record: Message, context: HandlerContext) -> None:
    """Replace this with your work. Several threads call it at the same time."""
    if (record.value() or b"").startswith(b"fail"):
        raise InvalidOrderError(f"attempt {context.attempt}")
    time.sleep(0.01)


def create_dead_letter_topic() -> None:
    """Create the topic with the broker's defaults, unless it exists. The processor checks it when it is created."""
    admin = AdminClient({"bootstrap.servers": options.bootstrap_servers})
    if DEAD_LETTERS not in admin.list_topics(timeout=30).topics:
        try:
            admin.create_topics([NewTopic(DEAD_LETTERS)])[DEAD_LETTERS].result(timeout=30)
        except KafkaException as error:  # another process may have created it in the meantime
            print(f"{DEAD_LETTERS}: {error.args[0].str()}")


def print_progress(processor: Processor, is_over: threading.Event) -> None:
    """Print the progress every second."""
    before = processor.progress()
    while not is_over.wait(1.0):
        progress = processor.progress()
        print(progress.line(before), flush=True)
        before = progress


def main() -> None:
    """Handle records until a signal arrives."""
    create_dead_letter_topic()
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
    }
    retry = tenacity.retry(
        retry=tenacity.retry_if_exception_type(InvalidOrderError),  # other exceptions are not tried again
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=5),
        stop=tenacity.stop_after_attempt(options.attempts),
    )
    is_over = threading.Event()
    with Processor(
        config,
        [options.topic],
        handle,
        concurrency=options.concurrency,
        retry=retry,
        dead_letter=DEAD_LETTERS,
    ) as processor:
        threading.Thread(target=print_progress, args=[processor, is_over]).start()
        try:
            processor.run()
        finally:
            is_over.set()
        handlers = processor.metrics().handlers
        if handlers is not None:
            print(f"finished {handlers.finished}, retries {handlers.retries}, dead letters {handlers.dead_letters}")


main()
