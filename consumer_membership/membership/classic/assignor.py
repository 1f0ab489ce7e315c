"""What an assignor is: the built-in ones and a user's own implement `Assignor`.

The group's leader calls it with everything that the members told, and hands its result to the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.types import TopicPartition


class RebalanceProtocol(Enum):
    """How partitions move (KIP-429)."""

    #: Everything is given up before each rebalance.
    EAGER = "eager"
    #: Only what moves is given up, and given to its new owner one rebalance later.
    COOPERATIVE = "cooperative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that exist: how many partitions each has, and in which racks each partition has replicas (KIP-881).

    `racks` is empty where the brokers tell no racks.
    """

    partitions: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)

    def of(self, topic: str) -> tuple[TopicPartition, ...]:
        """The partitions of this topic, by number; none if it does not exist."""
        return tuple(TopicPartition(topic, number) for number in range(self.partitions.get(topic, 0)))


@runtime_checkable
class Assignor(Protocol):
    """Who gets what. Stateless: what it has to remember it puts into `user_data`, which comes back in subscriptions."""

    @property
    def name(self) -> str:
        """The name by which members agree on it ("range", "cooperative-sticky", or one's own)."""

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """How partitions may move with it; COOPERATIVE needs results that give nothing to two owners in one round."""

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """What the subscription carries for this assignor beside the protocol's own fields.

        `owned` is what the leader gave last, in this generation; an eager member has given it up by then.
        """

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[tuple[str, int]]]:
        """The partitions (topic, number) of each member id; each one of a subscribed topic goes to one subscriber."""
