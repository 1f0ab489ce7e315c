"""A custom assignor: equal partition numbers of several topics (orders-3 and payments-3) go to the same member.

    python examples/assign_co_partitioned.py -b localhost:9092

Applications that join topics by key need this. The program creates two topics with the same number of partitions. A
member that subscribes to one of them joins, then two members that subscribe to both, and the program prints the
assignment after each join. A group with a custom assignor uses the classic protocol.

The assignor `range` also does this, but only if all members subscribe to the same topics: it divides each topic among
the members that subscribe to it, in the order of their ids. If one member subscribes to orders only, orders is divided
by three and payments by two, and orders-3 and payments-3 have different owners. `range` is also not sticky: member ids
are random, so a new member can move most partitions.
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from consumer_membership import Consumer, MemberState, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.admin import AdminClient, NewTopic

Partition = tuple[str, int]
Plan = dict[str, list[Partition]]


class CoPartitioned:
    """Pass the class to `partition.assignment.strategy`, or its import path: "package.module:CoPartitioned"."""

    name = "co-partitioned"  # the members agree on an assignor by its name
    # COOPERATIVE: members continue to fetch the partitions that they keep. EAGER: the assignor may also be listed
    # together with eager assignors, for example while a group changes its assignor.
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[Partition], generation: int) -> None:
        """Send no data: subscriptions contain the owned partitions."""

    def assign(self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Plan:
        """Assign each partition of the subscribed topics once. The leader calls this."""
        owners: dict[Partition, str] = {
            p: member for member in sorted(subscriptions) for p in subscriptions[member].owned
        }
        result: Plan = {member: [] for member in subscriptions}
        for family in families(topics, subscriptions):
            able = sorted(member for member, subscription in subscriptions.items() if family <= subscription.topics)
            for number, member in numbers(topics.partitions[min(family)], family, able, owners, result):
                result[member] += ((topic, number) for topic in sorted(family))
        # A partition that moves is left out: its owner revokes it and rejoins, and the next rebalance assigns it
        # (KIP-429). So the partitions of a number never have two owners, but some of them can have none for a moment.
        return {member: [p for p in some if owners.get(p, member) == member] for member, some in result.items()}


def families(topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Iterator[frozenset[str]]:
    """Yield the sets of topics that belong together: the same number of partitions, and a member that wants them all.

    The largest set comes first. A member that subscribes to a part of a family receives no partition of it, because
    the other topics of the family would have another owner. If no member subscribes to all topics with a number of
    partitions, they form several families, so that each topic is in one family.
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
    """Yield each partition number with its member: the owner up to its share, else a member below its share."""
    keeper: dict[int, str] = {}
    for number in range(size):
        # The previous assignor may have given the partitions of a number to several members.
        parts = [owners.get((topic, number)) for topic in sorted(family)]
        owner = max((member for member in able if member in parts), key=parts.count, default=None)
        if owner is not None:
            keeper[number] = owner
    had = Counter(keeper.values())
    # A remainder goes to the members with the fewest partitions of other families, then to those that owned the most.
    larger = sorted(able, key=lambda member: (len(result[member]), -had[member]))[: size % len(able)]
    free = {member: size // len(able) + (member in larger) for member in able}
    unplaced = []
    for number in range(size):
        if number in keeper and free[keeper[number]] > 0:
            free[keeper[number]] -= 1
            yield number, keeper[number]
        else:
            unplaced.append(number)
    for number in unplaced:
        member = max(able, key=lambda member: free[member])
        free[member] -= 1
        yield number, member


PARTITIONS = 6


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
    parser.add_argument("-g", "--group", default="assign-co-partitioned")
    parser.add_argument("-t", "--topic", default=str(time.time_ns()), help="prefix of the topics that are created")
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
