"""Assignors of users: correct ones, one that raises, one that omits partitions, and one that blocks."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from consumer_membership import MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.assignors.sticky import CooperativeStickyAssignor
from consumer_membership.types import TopicPartition


class Alphabetical:
    """Assigns the partitions in turn, in the order of member ids."""

    name = "alphabetical"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> None:
        """Return no user data."""
        del topics, owned, generation

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[tuple[str, int]]]:
        """Assign each partition to the next subscriber."""
        shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in sorted(subscriptions)}
        for topic in sorted(topics.partitions):
            subscribers = [member_id for member_id in shares if topic in subscriptions[member_id].topics]
            for number, partition in enumerate(topics.of(topic)):
                shares[subscribers[number % len(subscribers)]].append(partition)
        return shares


class Raising(Alphabetical):
    """Fails."""

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[tuple[str, int]]]:
        """Raise an error."""
        del topics, subscriptions
        raise KeyError("the lag of a partition")


class Incomplete(Alphabetical):
    """Omits the last partition of each topic."""

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[tuple[str, int]]]:
        """Assign all partitions except the last one of each topic."""
        fewer = Topics(partitions={topic: count - 1 for topic, count in topics.partitions.items()})
        return super().assign(fewer, subscriptions)


class Blocking(CooperativeStickyAssignor):
    """Waits in `user_data()`, on the membership thread, while `may_return` is not set."""

    name = "blocking-cooperative-sticky"

    def __init__(self) -> None:
        self.may_return = threading.Event()
        self.may_return.set()
        self.is_blocked = threading.Event()

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return the user data of cooperative-sticky when `may_return` is set."""
        if not self.may_return.is_set():
            self.is_blocked.set()
            self.may_return.wait()
        return super().user_data(topics, owned, generation)
