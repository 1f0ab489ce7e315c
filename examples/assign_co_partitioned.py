"""An assignor of one's own: a number of several topics, orders-3 and payments-3, always goes to the same member.

    python examples/assign_co_partitioned.py -b localhost:9092

Whoever joins topics by key needs that. Makes two topics with equally many partitions; a member that wants only one of
them joins, then two that want both; and prints who got what. With an assignor of one's own the group is a classic one.

`range` does it, too, but only where all members subscribe to the same topics: it cuts each topic into ranges for the
members that subscribe to it, in the order of their ids. Let one member subscribe to orders only, and orders is cut in
three where payments is cut in two: orders-3 is with another member than payments-3. And it is not sticky: ids are
random, so that a member that comes may shift all the cuts.
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from confluent_kafka.admin import AdminClient, NewTopic

from consumer_membership import Consumer, MemberState, MemberSubscription, RebalanceProtocol, Topics

Partition = tuple[str, int]
Plan = dict[str, list[Partition]]


class CoPartitioned:
    """Give it to `partition.assignment.strategy` as a class, or as an import path: "package.module:CoPartitioned"."""

    name = "co-partitioned"  # by which the members agree on it
    # Cooperative, so that what stays is fetched throughout a rebalance. Eager too: beside eager assignors in the list.
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[Partition], generation: int) -> None:
        """Nothing: subscriptions say what is owned."""

    def assign(self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Plan:
        """Called on the leader. Everything that members subscribe to has to be given to somebody, and once."""
        owners: dict[Partition, str] = {
            p: member for member in sorted(subscriptions) for p in subscriptions[member].owned
        }
        result: Plan = {member: [] for member in subscriptions}
        for family in families(topics, subscriptions):
            able = sorted(member for member, subscription in subscriptions.items() if family <= subscription.topics)
            for number, member in numbers(topics.partitions[min(family)], family, able, owners, result):
                result[member] += ((topic, number) for topic in sorted(family))
        # What moves is left out: its owner gives it up and joins again, then the new one gets it. So a number is with
        # one member, or in part with nobody for a moment, but never with two.
        return {member: [p for p in some if owners.get(p, member) == member] for member, some in result.items()}


def families(topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Iterator[frozenset[str]]:
    """The topics that belong together: equally many partitions, and some member that wants them all.

    Most topics first. Members that want a part of a family get nothing of it: its other part would be elsewhere. Where
    nobody wants all topics of a size they are several families, so that each topic is in one.
    """
    for size in sorted(set(topics.partitions.values()) - {0}):
        left = frozenset(topic for topic, partitions in topics.partitions.items() if partitions == size)
        while True:
            wanted = (left & subscription.topics for subscription in subscriptions.values())
            family = max(wanted, key=lambda some: (len(some), sorted(some)), default=frozenset[str]())
            if not family:
                break
            yield family
            left -= family


def numbers(
    size: int, family: frozenset[str], able: list[str], owners: Mapping[Partition, str], result: Plan
) -> Iterator[tuple[int, str]]:
    """Who gets which number of a family: its owner, as long as that has not more than its part; else who has room."""
    keeper: dict[int, str] = {}
    for number in range(size):
        # Parts of a number may be with several members, after an assignor that did not keep them together.
        parts = [owners.get((topic, number)) for topic in sorted(family)]
        owner = max((member for member in able if member in parts), key=parts.count, default=None)
        if owner is not None:
            keeper[number] = owner
    had = Counter(keeper.values())
    # Where it does not divide, one more for those that have least of other families, then for those that had most.
    larger = sorted(able, key=lambda member: (len(result[member]), -had[member]))[: size % len(able)]
    room = {member: size // len(able) + (member in larger) for member in able}
    homeless = []
    for number in range(size):
        if number in keeper and room[keeper[number]] > 0:
            room[keeper[number]] -= 1
            yield number, keeper[number]
        else:
            homeless.append(number)
    for number in homeless:
        member = max(able, key=lambda member: room[member])
        room[member] -= 1
        yield number, member


PARTITIONS = 6


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
    parser.add_argument("-g", "--group", default="assign-co-partitioned")
    parser.add_argument("-t", "--topic", default=str(time.time_ns()), help="how the new topics' names begin")
    options = parser.parse_args()
    orders, payments = f"{options.topic}-orders", f"{options.topic}-payments"
    admin = AdminClient({"bootstrap.servers": options.bootstrap_servers, "log_level": 4})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in (orders, payments)]).values():
        made.result()
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "partition.assignment.strategy": CoPartitioned,
    }
    consumers: list[Consumer] = []
    for wanted in ([orders], [orders, payments], [orders, payments]):
        consumers.append(Consumer(config))
        consumers[-1].subscribe(wanted)
        end, expected = time.monotonic() + 30, PARTITIONS * (1 if len(consumers) == 1 else 2)
        while not is_settled(consumers, expected) and time.monotonic() < end:
            for consumer in consumers:
                consumer.poll(0.02)
        print(f"members: {len(consumers)}")
        for consumer in consumers:
            owned = consumer.membership().owned
            shown = (sorted(number for topic, number in owned if topic == one) for one in (orders, payments))
            print("  orders {}, payments {}".format(*shown))
    for consumer in consumers:
        consumer.close()


if __name__ == "__main__":
    main()
