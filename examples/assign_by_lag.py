"""A custom assignor: each member receives about the same lag instead of the same number of partitions.

    python examples/assign_by_lag.py -b localhost:9092

The program creates a topic whose partitions have different lags, lets three members join, and prints the lag of each
member. A group with a custom assignor uses the classic protocol. The lag is read once in each rebalance.
"""

import argparse
import logging
import os
import time
from collections.abc import Iterator, Mapping
from itertools import accumulate

from consumer_membership import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    MemberState,
    MemberSubscription,
    Producer,
    RebalanceProtocol,
    TopicPartition,
    Topics,
)
from consumer_membership.admin import AdminClient, NewTopic, OffsetSpec

LOG = logging.getLogger("by_lag")
Partition = tuple[str, int]
Plan = dict[str, list[Partition]]

#: The weight of a partition in addition to its lag. Partitions without lag are therefore shared by number, and a small
#: lag moves no partition.
BASE = 100
#: No partition moves as long as the loads are within this fraction of the mean load of the most even plan.
TOLERANCE = 0.1


class ByLag:
    """Pass an instance to `partition.assignment.strategy`: the assignor needs the cluster and the group."""

    name = "by-lag"  # the members agree on an assignor by its name
    # COOPERATIVE: members continue to fetch the partitions that they keep. EAGER: the assignor may also be listed
    # together with eager assignors, for example while a group changes its assignor.
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self, bootstrap_servers: str, group: str, *, reset: str = "latest", timeout_s: float = 3) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
        self.group, self.reset, self.timeout_s = group, reset, timeout_s

    def user_data(self, topics: frozenset[str], owned: frozenset[Partition], generation: int) -> None:
        """Send no data: subscriptions contain the owned partitions, and the leader reads the lag."""

    def assign(self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Plan:
        """Assign all partitions. The leader calls this in a thread of its own, and the whole group waits for it."""
        wanted = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        lags: dict[Partition, int] = dict.fromkeys((p for topic in wanted for p in topics.of(topic)), 0)
        try:
            lags = self.lags(list(lags)) if lags else lags
        except (KafkaException, TimeoutError) as error:
            LOG.warning(
                "Group %s: partitions are shared by number because its lag could not be read: %r", self.group, error
            )
        return share(lags, subscriptions)

    def lags(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return for each partition the number of records that the group has not committed."""
        admin, timeout_s = self.admin, self.timeout_s
        wanted, ends_at = [TopicPartition(*partition) for partition in partitions], time.monotonic() + timeout_s
        group = ConsumerGroupTopicPartitions(self.group, wanted)
        committed = admin.list_consumer_group_offsets([group], request_timeout=timeout_s)[self.group]
        first = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.earliest()), request_timeout=timeout_s)
        end = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.latest()), request_timeout=timeout_s)
        lags = {}
        for partition in committed.result(max(0, ends_at - time.monotonic())).topic_partitions:
            if partition.error is not None:
                raise KafkaException(partition.error)
            lowest, highest = (
                offsets[partition].result(max(0, ends_at - time.monotonic())).offset for offsets in (first, end)
            )
            # Without a committed offset, the partition starts as auto.offset.reset defines. Records that retention has
            # deleted are not lag.
            start = partition.offset if partition.offset >= 0 or self.reset == "earliest" else highest
            lags[partition.topic, partition.partition] = max(0, highest - max(start, lowest))
        return lags


def share(lags: Mapping[Partition, int], subscriptions: Mapping[str, MemberSubscription]) -> Plan:
    """Return the assignment of this rebalance: the most even plan, or the current one if it is about as even."""
    owners: dict[Partition, str] = {p: member for member in subscriptions for p in subscriptions[member].owned}
    members_of = {topic: sorted(m for m, s in subscriptions.items() if topic in s.topics) for topic, _ in lags}
    # Partitions with few subscribers come first, then the heaviest: the light ones level the loads at the end.
    weights = {p: lags[p] + BASE for p in sorted(lags, key=lambda p: (len(members_of[p[0]]), -lags[p], p))}

    def plan(kept: Mapping[Partition, str]) -> Plan:
        """Give each partition to the member with the least load, preferably its owner; `kept` are placed already."""
        plan: Plan = {member: [] for member in subscriptions}
        load = dict.fromkeys(subscriptions, 0)
        for p in sorted(weights, key=lambda p: p not in kept):  # the sort is stable: otherwise the order of `weights`
            member = kept.get(p) or min(members_of[p[0]], key=lambda m: (load[m], owners.get(p) != m))
            plan[member].append(p)
            load[member] += weights[p]
        return plan

    def lowest_loads(plan: Plan) -> Iterator[int]:
        """Yield the load of the member with the least, of the two members with the least, and so on.

        The higher these sums are, the more even is the plan.
        """
        return accumulate(sorted(sum(weights[p] for p in some) for some in plan.values()))

    even, sticky = plan({}), plan({p: m for p, m in owners.items() if m in members_of.get(p[0], ())})
    tolerance = TOLERANCE * sum(weights.values()) / max(1, len(subscriptions))
    loads = zip(lowest_loads(sticky), lowest_loads(even), strict=True)
    best = sticky if all(kept >= most - tolerance for kept, most in loads) else even
    # A partition that moves is left out: its owner revokes it and rejoins, and the next rebalance assigns it (KIP-429).
    return {member: [p for p in some if owners.get(p, member) == member] for member, some in best.items()}


RECORDS = (6000, 4000, 3000, 2000, 1500, 1000, 500, 0)  # in each partition


def is_settled(consumers: list[Consumer], partitions: int) -> bool:
    """Return whether all consumers are in one generation and own all partitions together."""
    views = [consumer.membership() for consumer in consumers]
    are_stable = all(view.state is MemberState.STABLE for view in views) and len({v.member_epoch for v in views}) == 1
    return are_stable and sum(len(view.owned) for view in views) == partitions


def main() -> None:
    """Run three members in one process, which polls them in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    parser.add_argument("-b", "--bootstrap-servers", default=servers)
    parser.add_argument("-g", "--group", default="assign-by-lag")
    parser.add_argument("-t", "--topic", default=f"uneven-{time.time_ns()}", help="the topic that is created")
    options = parser.parse_args()
    assignor = ByLag(options.bootstrap_servers, options.group, reset="earliest", timeout_s=15)
    assignor.admin.create_topics([NewTopic(options.topic, len(RECORDS))])[options.topic].result()
    producer = Producer({"bootstrap.servers": options.bootstrap_servers})
    for partition, records in enumerate(RECORDS):
        for number in range(records):
            producer.produce(options.topic, str(number), partition=partition)
    producer.flush()
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # so that the lag does not change
        "partition.assignment.strategy": assignor,
    }
    consumers = [Consumer(config) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe([options.topic])
    end = time.monotonic() + 30
    while not is_settled(consumers, len(RECORDS)) and time.monotonic() < end:
        for consumer in consumers:
            consumer.poll(0.02)
    lags = assignor.lags([(options.topic, number) for number in range(len(RECORDS))])
    print("   lag  partitions")
    for consumer in consumers:
        owned = consumer.membership().owned
        print(f"{sum(lags[p] for p in owned):6}  {sorted(number for _, number in owned)}")
        consumer.close()


if __name__ == "__main__":
    main()
