"""Handle the records of a topic, as a pod of Kubernetes: `statefulset.yaml` and `deployment.yaml` run this.

Every setting comes from the environment: CONSUMER_MEMBERSHIP_GROUP_ID is `group.id`, and
CONSUMER_MEMBERSHIP_HEALTH_HTTP_ADDRESS has the probes answered. SIGTERM ends it after the record at hand: what was
handled is committed, and the member leaves its group, or keeps its place as a static one.
"""

import logging
import os
import signal
import threading

from consumer_membership import Consumer, KafkaException, Message

LOG = logging.getLogger("orders")
ENDS = threading.Event()


def handle(message: Message) -> None:
    """Do the work of one record: yours. It must take less than `max.poll.interval.ms`, and can be called again."""
    LOG.info("%s-%d@%d", message.topic(), message.partition(), message.offset())


def consume(consumer: Consumer) -> None:
    """Handle records until the pod is to end."""
    while not ENDS.is_set():
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            handle(message)
        elif not error.fatal():
            LOG.warning("%s", error.str())
        elif consumer.health().would_restart_help:
            raise KafkaException(error)
        else:
            # Another process would meet the same: its place is another's, or it lacks a right. To end would be to begin
            # again and again, and to take the place back from each other. So it stays, live and not ready, for somebody
            # to look at.
            LOG.error("%s", error.str())
            ENDS.wait()


def main() -> None:
    """Consume from the start to SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: ENDS.set())
    with Consumer({}) as consumer:
        consumer.subscribe([os.environ["TOPIC"]])
        consume(consumer)


if __name__ == "__main__":
    main()
