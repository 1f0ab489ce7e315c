"""Handle the records of a topic in a Kubernetes pod: `statefulset.yaml` and `deployment.yaml` run this program.

All settings come from the environment: CONSUMER_MEMBERSHIP_GROUP_ID is `group.id`, and
CONSUMER_MEMBERSHIP_HEALTH_HTTP_ADDRESS is the address of the probes. SIGTERM ends the program after the current record.
It commits the handled records; then a dynamic member leaves the group, and a static member keeps its partitions, unless
MEMBERSHIP_AT_STOP is "leave" (the manifests of `examples/keda`, where a pod that was removed does not return).
"""

import logging
import os
import signal
import threading

from consumer_membership import Consumer, KafkaException, Message

LOG = logging.getLogger("orders")
STOPPING = threading.Event()


def handle(message: Message) -> None:
    """Replace this with your work. It must take less than `max.poll.interval.ms`, and can receive a record twice."""
    LOG.info("%s-%d@%d", message.topic(), message.partition(), message.offset())


def consume(consumer: Consumer) -> None:
    """Handle records until SIGTERM."""
    while not STOPPING.is_set():
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
            # A restart would not help: another process has this instance id, or an ACL is missing. If the process
            # ended, Kubernetes would restart it forever, and two processes could take the id from each other. So it
            # stays alive and not ready until an operator has found the cause.
            LOG.error("%s", error.str())
            STOPPING.wait()


def main() -> None:
    """Consume until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: STOPPING.set())
    with Consumer({}) as consumer:
        consumer.subscribe([os.environ["TOPIC"]])
        consume(consumer)
        if os.environ.get("MEMBERSHIP_AT_STOP") == "leave":
            consumer.close(membership="leave")


if __name__ == "__main__":
    main()
