"""What an assignor is, and what it is told: the built-in ones and a user's own implement `Assignor`.

The group's leader calls it with everything that the members told, and hands its result to the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import Enum
from typing import Protocol, runtime_checkable

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPartition

#: The generation of a member that has none: new, reset, or of a client that does not tell it.
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """One member's subscription as its leader reads it (ConsumerProtocolSubscription v0-v3).

    `owned` are the partitions that the member says it owns, `generation` the one to which that belongs
    (`NO_GENERATION`: not told). `instance_id` comes with the JoinGroup answer, not with the bytes. `version` is the one
    in which the bytes were written.
    """

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    rack_id: str | None = None
    instance_id: str | None = None
    version: int = 3


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What the leader gives one member: its partitions (topic, number), and bytes for that member's own assignor.

    Java's `Assignment`. `assign` may give it instead of the partitions alone, and `on_assignment` is given it.
    """

    partitions: Collection[tuple[str, int]] = frozenset()
    user_data: bytes | None = None


@runtime_checkable
class Assignor(Protocol):
    """Who gets what. Stateless: what it has to remember it puts into `user_data`, which comes back in subscriptions.

    It may have `on_assignment` beside these, as `AssignmentObserver` says.
    """

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
    ) -> Mapping[str, Collection[tuple[str, int]] | Assigned]:
        """The partitions (topic, number) of each member id; each one of a subscribed topic goes to one subscriber.

        With `Assigned` in their place the member gets user data, too. It runs in the leader, on a thread of its own.
        """


@runtime_checkable
class AssignmentObserver(Protocol):
    """What an assignor may have beside `Assignor`: to hear of each assignment of its member (Java's `onAssignment`)."""

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        """The leader's assignment for this member has come, of this generation.

        Called in every member of a group that chose this assignor, before anything of the assignment is revoked or
        assigned. `assignment.partitions` is a frozenset. As `assign` it runs on a thread of its own, one call after the
        other, while heartbeats go on; if the group rebalances meanwhile, a newer assignment follows, and this one is
        not taken over. What it raises ends the member, as what `assign` raises does: nobody else knows what was missed.
        """
