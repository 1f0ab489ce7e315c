"""Kill a static member with SIGKILL, start it again, and see how it continues with the same partitions.

    python examples/static_crash_recovery.py -b localhost:9092 -t orders

Two members run in their own processes, "member-0" and "member-1". member-0 is killed while it owns partitions. Its
replacement has the same group.instance.id and takes over its place: it receives the same partitions in a fraction of a
second, and member-1 sees no rebalance. On Kubernetes, the id is the name of the pod in a StatefulSet.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time

from consumer_membership import Consumer, KafkaException

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="static-crash-recovery")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--instance", help=argparse.SUPPRESS)
options = parser.parse_args()


def run_member() -> None:
    """Run one member until SIGTERM, and print its partitions whenever they change."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "group.instance.id": options.instance,
        "group.instance.id.conflict.policy": "takeover",  # the default; the other values are wait and fail
        "auto.offset.reset": "earliest",
    }
    with Consumer(config) as consumer:
        consumer.subscribe([options.topic])
        printed: list[int] = []
        while not stopping.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is not None and message.error().fatal():
                raise KafkaException(message.error())
            owned = sorted(partition.partition for partition in consumer.assignment())
            if owned != printed:
                print(owned, flush=True)
                printed = owned
        # A static member keeps its place when it closes; this one leaves the group, because it does not come back.
        consumer.close(membership="leave")


def start(instance: str) -> "subprocess.Popen[str]":
    """Start a member in its own process."""
    command = [sys.executable, __file__, "-b", options.bootstrap_servers, "-g", options.group, "-t", options.topic]
    return subprocess.Popen([*command, "--instance", instance], stdout=subprocess.PIPE, text=True)


def next_line(process: "subprocess.Popen[str]") -> str:
    """Return the partitions that the member prints next."""
    return process.stdout.readline().strip() if process.stdout is not None else ""


def main() -> None:
    """Start two members, kill the first, and start its replacement."""
    first = start("member-0")
    print(f"member-0 owns {next_line(first)}")
    second = start("member-1")
    kept, received = next_line(first), next_line(second)
    print(f"member-1 joined: member-0 owns {kept}, member-1 owns {received}")

    first.kill()
    first.wait()
    print("member-0 was killed")
    killed = time.monotonic()
    replacement = start("member-0")
    recovered = next_line(replacement)
    print(f"member-0 is back after {time.monotonic() - killed:.2f} s and owns {recovered}")
    print("the same partitions" if recovered == kept else "other partitions")

    second.terminate()
    later = [line.strip() for line in second.stdout or ()]
    print("member-1 saw no rebalance" if later in ([], ["[]"]) else f"member-1 saw {later}")
    replacement.terminate()
    replacement.wait()


if options.instance is not None:
    run_member()
else:
    main()
