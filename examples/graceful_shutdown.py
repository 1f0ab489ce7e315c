"""End a consumer on SIGTERM or Ctrl-C: finish the current record, commit it, leave the group, and exit with code 0.

    python examples/graceful_shutdown.py -b localhost:9092 -t orders

This works under systemd, Docker, supervisord and in a terminal. The process needs the time of its longest record, and
at most 15 seconds more if no broker responds. Under systemd:

    [Service]
    ExecStart=/srv/orders/.venv/bin/python /srv/orders/graceful_shutdown.py -b kafka:9092
    TimeoutStopSec=60
    Restart=on-failure

In a Dockerfile, use the form CMD ["python", "graceful_shutdown.py"]: a shell does not forward SIGTERM.
"""

import argparse
import logging
import os
import signal
import threading

from consumer_membership import Consumer, KafkaException, Message

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="graceful-shutdown")
parser.add_argument("-t", "--topic", default="orders")
options = parser.parse_args()

log = logging.getLogger("orders")
stopping = threading.Event()


def handle(message: Message) -> None:
    """Replace this with your work."""


def consume(consumer: Consumer) -> int:
    """Handle records until a signal arrives, and return their number."""
    handled = 0
    while not stopping.is_set():
        message = consumer.poll(1.0)  # with a timeout, so that the loop sees the event
        if message is None:
            continue
        if message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())  # exit code 1: the supervisor restarts the process
            log.warning("%s", message.error())
            continue
        handle(message)
        handled += 1
    return handled


def main() -> None:
    """Consume until a signal arrives."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # The signal handler only sets an event. It must not call `close`, because it interrupts the program at any line.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
    }
    with Consumer(config) as consumer:  # the end of the block commits and leaves the group
        consumer.subscribe([options.topic])
        handled = consume(consumer)
        log.info("stopping after %d records", handled)


main()
