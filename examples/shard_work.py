"""Distribute work that is not in Kafka over processes: each partition of a topic stands for one shard.

Run it in several terminals, stop one with Ctrl-C, and watch its shards move:

    python examples/shard_work.py localhost:9092 crawlers shards

The topic must exist, with one partition for each shard; no record is ever written to it.
"""

from __future__ import annotations

import signal
import sys
import threading

from consumer_membership import GroupMember, TopicPartition


class Shards:
    """The shards that this process owns, and their progress."""

    def __init__(self) -> None:
        self.pages: dict[int, int] = {}

    def taken(self, member: GroupMember, partitions: list[TopicPartition]) -> None:
        """Continue each shard where its former owner committed."""
        for found in member.committed(partitions, timeout=10) if partitions else ():
            self.pages[found.partition] = max(found.offset, 0)
            print(f"shard {found.partition}: continues at page {self.pages[found.partition]}", flush=True)

    def released(self, member: GroupMember, partitions: list[TopicPartition]) -> None:
        """Commit the progress; the shards move when this returns."""
        member.commit([TopicPartition(one.topic, one.partition, self.pages.pop(one.partition)) for one in partitions])
        print(f"released {[one.partition for one in partitions]}", flush=True)

    def lost(self, _: GroupMember, partitions: list[TopicPartition]) -> None:
        """Stop at once: another process may already work on these shards."""
        for one in partitions:
            self.pages.pop(one.partition, None)
        print(f"lost {[one.partition for one in partitions]}", flush=True)

    def work(self) -> None:
        """Process one page of each shard."""
        for shard in self.pages:
            self.pages[shard] += 1


def main(servers: str, group: str, topic: str) -> None:
    """Work on the assigned shards until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    shards = Shards()
    config = {"bootstrap.servers": servers, "group.id": group, "rebalance.callbacks": "incremental"}
    with GroupMember(config) as member:
        member.subscribe([topic], on_assign=shards.taken, on_revoke=shards.released, on_lost=shards.lost)
        while not stop.is_set():
            member.poll(0.5)
            shards.work()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["localhost:9092", "crawlers", "shards"]))
