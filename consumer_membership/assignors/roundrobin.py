"""`roundrobin`: deal all partitions in turn to the subscribers of their topic, as Java's RoundRobinAssignor."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from consumer_membership.assignors.assignor import MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.assignors.order import (
    by_instance,
    in_order,
    partitions_of,
    subscribed_topics,
)
from consumer_membership.types import TopicPartition


class RoundRobinAssignor:
    """Deal the partitions of all topics, in order, to the members, in order; members that do not subscribe are skipped.

    Members with the same subscription receive equally many, plus or minus one. It keeps no state.
    """

    name = "roundrobin"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> None:
        """Return None."""
        del topics, owned, generation

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, tuple[TopicPartition, ...]]:
        """Return the partitions of each member. A skipped member waits for its next turn, as in Java."""
        turns = deque(by_instance(subscriptions))
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in turns}
        for topic in subscribed_topics(topics, subscriptions):
            for partition in partitions_of(topics, topic):
                while topic not in subscriptions[turns[0]].topics:
                    turns.rotate(-1)
                assignment[turns[0]].append(partition)
                turns.rotate(-1)
        return in_order(assignment)
