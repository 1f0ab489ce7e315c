"""Kill a static member with -9, start it again at once, and see it go on where it was.

    python examples/static_crash_recovery.py -b localhost:9092 -t orders

Two members run as processes of their own, "member-0" and "member-1". member-0 is killed while it holds partitions. Its
replacement has the same group.instance.id, so it takes the dead member's place: the same partitions, in a fraction of a
second, and member-1 sees nothing of it. On Kubernetes the id is the pod's name in a StatefulSet.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

from consumer_membership import Consumer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="static-crash-recovery")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--instance", help=argparse.SUPPRESS)
options = parser.parse_args()


def be_a_member() -> None:
    """One member: says what it owns whenever that changes, until SIGTERM."""
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap_servers,
            "group.id": options.group,
            "group.instance.id": options.instance,
            "group.instance.id.conflict.policy": "takeover",  # the default; the others are wait and fail
            "auto.offset.reset": "earliest",
        }
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.close(membership="leave"))
    consumer.subscribe([options.topic])
    told: list[int] = []
    while True:
        try:
            consumer.poll(0.05)
            owned = sorted(partition.partition for partition in consumer.assignment())
        except RuntimeError:  # closed by the signal
            return
        if owned != told:
            print(owned, flush=True)
            told = owned


def start(instance: str) -> "subprocess.Popen[str]":
    """A member in a process of its own."""
    words = [sys.executable, __file__, "-b", options.bootstrap_servers, "-g", options.group, "-t", options.topic]
    return subprocess.Popen([*words, "--instance", instance], stdout=subprocess.PIPE, text=True)


def owns(process: "subprocess.Popen[str]") -> str:
    """What the member says next."""
    return process.stdout.readline().strip() if process.stdout is not None else ""


if options.instance is not None:
    be_a_member()
    sys.exit()

first = start("member-0")
everything = owns(first)
print(f"member-0 owns {everything}")
second = start("member-1")
kept, given = owns(first), owns(second)
print(f"member-1 came: member-0 owns {kept}, member-1 owns {given}")

first.send_signal(signal.SIGKILL)
first.wait()
print("member-0 was killed")
began = time.monotonic()
again = start("member-0")
recovered = owns(again)
print(f"member-0 is back after {time.monotonic() - began:.2f} s and owns {recovered}")
print("the same partitions" if recovered == kept else "other partitions")

second.terminate()
told = [line.strip() for line in second.stdout or ()]
print(f"member-1 {'saw nothing of it' if told in ([], ['[]']) else f'saw {told}'}")
again.terminate()
again.wait()
