"""An assignor of one's own: each member gets about the same lag, not the same number of partitions.

    python examples/assign_by_lag.py -b localhost:9092

Makes a topic whose partitions are unevenly behind, lets three members join, and prints who got which lag. With an
assignor of one's own the group is a classic one. The lag is looked at when the group rebalances, not in between.
"""

import argparse
import logging
import os
import time
from collections.abc import Iterator, Mapping
from itertools import accumulate

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from consumer_membership import Consumer, MemberState, MemberSubscription, RebalanceProtocol, Topics

LOG = logging.getLogger("by_lag")
Partition = tuple[str, int]
Plan = dict[str, list[Partition]]

BASE = 100  # What a partition weighs beside its lag: those without lag are shared evenly, and a trickle moves nothing.
SLACK = 0.1  # As even as can be, up to this part of a mean share: then nothing moves.


class ByLag:
    """Give it to `partition.assignment.strategy` as an object: it has to know the cluster and the group."""

    name = "by-lag"  # by which the members agree on it
    # Cooperative, so that what stays is fetched throughout a rebalance. Eager too: beside eager assignors in the list.
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self, bootstrap_servers: str, group: str, *, reset: str = "latest", patience_s: float = 3) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
        self.group, self.reset, self.patience_s = group, reset, patience_s

    def user_data(self, topics: frozenset[str], owned: frozenset[Partition], generation: int) -> None:
        """Nothing: subscriptions say what is owned, and the lag is asked for."""

    def assign(self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Plan:
        """Called on the leader, on a thread of its own. The whole group waits for it, so it must not take long."""
        wanted = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        lags: dict[Partition, int] = dict.fromkeys((p for topic in wanted for p in topics.of(topic)), 0)
        try:
            lags = self.lags(list(lags)) if lags else lags
        except (KafkaException, TimeoutError) as error:
            LOG.warning("group %s is shared by number, for its lag cannot be had: %r", self.group, error)
        return share(lags, subscriptions)

    def lags(self, partitions: list[Partition]) -> dict[Partition, int]:
        """How many records the group has still to read."""
        admin, timeout_s = self.admin, self.patience_s
        places, ends_at = [TopicPartition(*partition) for partition in partitions], time.monotonic() + timeout_s
        group = ConsumerGroupTopicPartitions(self.group, places)
        committed = admin.list_consumer_group_offsets([group], request_timeout=timeout_s)[self.group]
        first = admin.list_offsets(dict.fromkeys(places, OffsetSpec.earliest()), request_timeout=timeout_s)
        end = admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), request_timeout=timeout_s)
        lags = {}
        for place in committed.result(max(0, ends_at - time.monotonic())).topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)
            lowest, highest = (told[place].result(max(0, ends_at - time.monotonic())).offset for told in (first, end))
            # Where nothing is committed auto.offset.reset says where it starts. What retention deleted is no lag.
            start = place.offset if place.offset >= 0 or self.reset == "earliest" else highest
            lags[place.topic, place.partition] = max(0, highest - max(start, lowest))
        return lags


def share(lags: Mapping[Partition, int], subscriptions: Mapping[str, MemberSubscription]) -> Plan:
    """Who gets what in this round: the most even plan, or the one that moves nothing if that is about as even."""
    owners: dict[Partition, str] = {p: member for member in subscriptions for p in subscriptions[member].owned}
    members_of = {topic: sorted(m for m, s in subscriptions.items() if topic in s.topics) for topic, _ in lags}
    # What few members subscribe to comes first, then what weighs most: the rest levels them.
    weights = {p: lags[p] + BASE for p in sorted(lags, key=lambda p: (len(members_of[p[0]]), -lags[p], p))}

    def plan(kept: Mapping[Partition, str]) -> Plan:
        """One after the other to who has least so far, to its owner among equals; `kept` have their place."""
        plan: Plan = {member: [] for member in subscriptions}
        load = dict.fromkeys(subscriptions, 0)
        for p in sorted(weights, key=lambda p: p not in kept):  # otherwise in their order
            member = kept.get(p) or min(members_of[p[0]], key=lambda m: (load[m], owners.get(p) != m))
            plan[member].append(p)
            load[member] += weights[p]
        return plan

    def poorest(plan: Plan) -> Iterator[int]:
        """What the poorest member has, the two poorest together, and so on. More of it is more even."""
        return accumulate(sorted(sum(weights[p] for p in some) for some in plan.values()))

    even, sticky = plan({}), plan({p: m for p, m in owners.items() if m in members_of.get(p[0], ())})
    slack = SLACK * sum(weights.values()) / max(1, len(subscriptions))
    best = sticky if all(s >= e - slack for s, e in zip(poorest(sticky), poorest(even), strict=True)) else even
    # What moves is left out: its owner gives it up and joins again, then the new one gets it.
    return {member: [p for p in some if owners.get(p, member) == member] for member, some in best.items()}


BEHIND = (6000, 4000, 3000, 2000, 1500, 1000, 500, 0)  # as many records are in each partition


def is_settled(consumers: list[Consumer], partitions: int) -> bool:
    """Whether all are in one generation, and have everything between them."""
    views = [consumer.membership() for consumer in consumers]
    are_stable = all(view.state is MemberState.STABLE for view in views) and len({v.member_epoch for v in views}) == 1
    return are_stable and sum(len(view.owned) for view in views) == partitions


def main() -> None:
    """Three members in one process, each to be polled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    parser.add_argument("-b", "--bootstrap-servers", default=servers)
    parser.add_argument("-g", "--group", default="assign-by-lag")
    parser.add_argument("-t", "--topic", default=f"uneven-{time.time_ns()}", help="a new one, which it makes")
    options = parser.parse_args()
    assignor = ByLag(options.bootstrap_servers, options.group, reset="earliest", patience_s=15)
    assignor.admin.create_topics([NewTopic(options.topic, len(BEHIND))])[options.topic].result()
    producer = Producer({"bootstrap.servers": options.bootstrap_servers})
    for partition, records in enumerate(BEHIND):
        for number in range(records):
            producer.produce(options.topic, str(number), partition=partition)
    producer.flush()
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # so that the lag stays as it is, to be looked at
        "partition.assignment.strategy": assignor,
    }
    consumers = [Consumer(config) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe([options.topic])
    end = time.monotonic() + 30
    while not is_settled(consumers, len(BEHIND)) and time.monotonic() < end:
        for consumer in consumers:
            consumer.poll(0.02)
    lags = assignor.lags([(options.topic, number) for number in range(len(BEHIND))])
    print("   lag  partitions")
    for consumer in consumers:
        owned = consumer.membership().owned
        print(f"{sum(lags[p] for p in owned):6}  {sorted(number for _, number in owned)}")
        consumer.close()


if __name__ == "__main__":
    main()
