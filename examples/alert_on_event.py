"""Send an alert from the consumer's own process when its membership has a problem.

    python examples/alert_on_event.py -b localhost:9092 -t orders --instance worker-1 --webhook http://localhost:9000/

`on_event` reports a stuck partition, missing heartbeat responses, a fenced member and a fatal error, also while your
code does not poll. To see an alert, start the program a second time with the same --instance: the new process takes
over the place of the first, whose membership ends with a fatal error. Without --webhook, alerts are printed to stderr.
"""

import argparse
import json
import os
import signal
import sys
import threading
import urllib.request

from consumer_membership import Consumer, KafkaException, LifecycleEvent, LifecycleKind

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="alert-on-event")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--instance", help="group.instance.id")
parser.add_argument("--webhook", help="URL that receives each alert as JSON")
options = parser.parse_args()

PROBLEMS = {
    LifecycleKind.HEARTBEAT_SILENCE,
    LifecycleKind.STUCK,
    LifecycleKind.FENCED,
    LifecycleKind.LOST,
    LifecycleKind.FATAL,
}
RESOLVED = {LifecycleKind.HEARTBEATS_RESUMED, LifecycleKind.RECOVERED}


def alert(event: LifecycleEvent) -> None:
    """Send the event. The package calls this in a thread of its own, so it may wait; exceptions are logged."""
    if event.kind not in PROBLEMS | RESOLVED:
        return
    body = {
        "status": "resolved" if event.kind in RESOLVED else "firing",
        "event": event.kind.value,
        "group": event.group_id,
        "member": event.instance_id or event.member_id,
        "partitions": [f"{partition.topic}-{partition.partition}" for partition in event.partitions],
        "cause": event.cause,
    }
    text = json.dumps(body)
    if options.webhook is None:
        print(text, file=sys.stderr)
        return
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(options.webhook, text.encode(), headers)  # noqa: S310 - the operator's own URL
    # Raises for a status of 400 or more.
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - the operator's own URL


stopping = threading.Event()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stopping.set())

config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "auto.offset.reset": "earliest",
}
if options.instance is not None:
    config["group.instance.id"] = options.instance

with Consumer(config) as consumer:
    consumer.on_event(alert)
    consumer.subscribe([options.topic])
    while not stopping.is_set():
        message = consumer.poll(1.0)
        if message is not None and message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())
            print(f"error: {message.error()}")
