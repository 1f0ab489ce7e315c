"""`range`: divide each topic's partitions into ranges, with racks (KIP-881), as Java's RangeAssignor since 3.5."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from consumer_membership.assignors.assignor import MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.assignors.order import (
    by_instance,
    in_order,
    partitions_of,
    subscribed_topics,
)
from consumer_membership.assignors.racks import is_worthwhile, member_racks
from consumer_membership.types import TopicPartition


class _Ranges:
    """One topic during the assignment: how many more partitions each member may receive, and which ones remain."""

    def __init__(self, topics: Topics, topic: str, members: list[str], racks: Mapping[str, str]) -> None:
        self.topic = topic
        self.members = members
        self.racks = racks
        self.left = dict.fromkeys(range(topics.partitions[topic]))
        self.given: dict[str, list[int]] = {member: [] for member in members}
        self._share, self._larger_shares = divmod(len(self.left), len(members))
        self._replicas = [topics.racks.get(p, frozenset()) for p in partitions_of(topics, topic)] if racks else []
        self.needs_racks = is_worthwhile(racks, self._replicas)

    def room(self, member: str) -> int:
        """Return how many more partitions this member may receive; the first members have the larger shares."""
        return max(0, self._share + (self._larger_shares > 0) - len(self.given[member]))

    def matches(self, member: str, number: int) -> bool:
        """Return whether the member has no rack, or a replica is in its rack."""
        rack = self.racks.get(member)
        return rack is None or rack in self._replicas[number]

    def give(self, member: str, numbers: list[int]) -> None:
        """Give these partitions to this member."""
        self.given[member] += numbers
        if len(self.given[member]) > self._share:
            self._larger_shares -= 1
        for number in numbers:
            del self.left[number]

    def give_ranges(self, may_have: Callable[[str, int], bool]) -> None:
        """Give each member in turn the first remaining partitions, up to its share."""
        for member in self.members:
            numbers = [number for number in self.left if may_have(member, number)][: self.room(member)]
            if numbers:
                self.give(member, numbers)


class RangeAssignor:
    """Give each subscriber of a topic a range of its partitions; the first ones receive one more if necessary.

    Topics with the same subscribers and equally many partitions are therefore co-partitioned: one member has the same
    partition number of all of them, which joins rely on. If members report racks and not every partition is in every
    rack, matching partitions are given first (of co-partitioned topics only together), within the same shares; then the
    others.
    """

    name = "range"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> None:
        """Return None."""
        del topics, owned, generation

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, tuple[TopicPartition, ...]]:
        """Return the partitions of each member."""
        order = by_instance(subscriptions)
        states = []
        for topic in subscribed_topics(topics, subscriptions):
            members = [member for member in order if topic in subscriptions[member].topics]
            states.append(_Ranges(topics, topic, members, member_racks(subscriptions, members)))
        if any(state.needs_racks for state in states):
            _match_racks(states)
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in order}
        for state in states:
            state.give_ranges(_anything)
            for member, numbers in state.given.items():
                assignment[member] += (TopicPartition(state.topic, number) for number in numbers)
        return in_order(assignment)


def _anything(_member: str, _number: int) -> bool:
    return True


def _match_racks(states: list[_Ranges]) -> None:
    """Give matching partitions; topics with the same subscribers and equally many partitions are treated together."""
    alike: dict[tuple[tuple[str, ...], int], list[_Ranges]] = defaultdict(list)
    for state in states:
        if state.racks:
            alike[tuple(state.members), len(state.left)].append(state)
    for group in alike.values():
        if len(group) > 1:
            _match_together(group)
        elif group[0].needs_racks:
            group[0].give_ranges(group[0].matches)


def _match_together(group: list[_Ranges]) -> None:
    """Give each partition number of all these topics to the first member that may have it in all of them."""
    members = list(group[0].members)
    for number in range(len(group[0].left)):
        fitting = (m for m in members if all(state.matches(m, number) and state.room(m) for state in group))
        member = next(fitting, None)
        if member is None:
            continue
        for state in group:
            state.give(member, [number])
        if not any(state.room(member) for state in group):
            members.remove(member)
