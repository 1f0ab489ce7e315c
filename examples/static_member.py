"""Restart without a rebalance: a static member receives the partitions that it had before.

    python examples/static_member.py -b localhost:9092 -t orders --instance-id worker-1

A member with a group.instance.id keeps its partitions when it closes. The group reserves them until the session ends
(45 s by default). This program opens a consumer, closes it, opens it again, and compares the partitions.
"""

import argparse
import os
import sys
import time

from consumer_membership import Consumer, KafkaException

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="static-member")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--instance-id", default="worker-1")
parser.add_argument("--timeout", type=float, default=30, metavar="SECONDS", help="how long to wait for partitions")
options = parser.parse_args()

config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "group.instance.id": options.instance_id,
    "auto.offset.reset": "earliest",
}


def join() -> set[int]:
    """Join, wait for partitions, and return them. `close` keeps the static member's partitions reserved."""
    with Consumer(config) as consumer:
        consumer.subscribe([options.topic])
        started = time.monotonic()
        while not consumer.membership().owned:
            if time.monotonic() - started > options.timeout:
                sys.exit(f"no partitions after {options.timeout:g} s; waits for {consumer.membership().waits_for_text}")
            message = consumer.poll(0.1)
            if message is not None and message.error() is not None and message.error().fatal():
                raise KafkaException(message.error())
        view = consumer.membership()
        owned = {partition for _, partition in view.owned}
        print(f"{options.instance_id} owns {sorted(owned)} at epoch {view.member_epoch}")
        print(f"  {time.monotonic() - started:.2f} s after it subscribed")
        return owned


before = join()
after = join()
print("the same partitions" if after == before else "other partitions")
