"""Restart without a rebalance: a static member comes back to the partitions that it had.

    python examples/static_member.py -b localhost:9092 -t orders --instance-id worker-1

A member with an instance id does not give its partitions up when it closes: they wait for it, for as long as the
broker's session timeout says (45 s by default). This one opens, closes and opens again, and compares.
"""

import argparse
import os
import time

from consumer_membership import Consumer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="static-member")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--instance-id", default="worker-1")
parser.add_argument("--patience", type=float, default=30, metavar="SECONDS")
options = parser.parse_args()

config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "group.instance.id": options.instance_id,
    "auto.offset.reset": "earliest",
}


def partitions_after_joining() -> set[int]:
    """Join, wait until partitions are owned, and close: the static member keeps its place."""
    with Consumer(config) as consumer:
        consumer.subscribe([options.topic])
        began = time.monotonic()
        while not consumer.membership().owned and time.monotonic() - began < options.patience:
            consumer.poll(0.1)
        view = consumer.membership()
        owned = {partition for _, partition in view.owned}
        print(f"{options.instance_id} owns {sorted(owned)} at epoch {view.member_epoch}")
        print(f"  {time.monotonic() - began:.2f} s after it subscribed")
        return owned


before = partitions_after_joining()
after = partitions_after_joining()
print("the same partitions" if before and after == before else "other partitions")
