"""The interface of assignors and its data types; the built-in assignors and your own implement `Assignor`.

The group's leader calls it with the subscriptions of all members, and sends its result to the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import Enum
from typing import Protocol, runtime_checkable

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPartition

#: The generation of a member that has none: it is new, was reset, or its client does not send it.
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """One member's subscription as its leader reads it (ConsumerProtocolSubscription v0-v3).

    Attributes:
        topics: The subscribed topics.
        owned: The partitions that the member claims to own.
        generation: The generation of `owned`; `NO_GENERATION`: not sent.
        rack_id: The member's rack; None: not sent.
        user_data: The bytes of the assignor's `user_data`.
        instance_id: `group.instance.id`, from the JoinGroup response.
        version: The version of the encoded subscription.
    """

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    rack_id: str | None = None
    instance_id: str | None = None
    version: int = 3


class RebalanceProtocol(Enum):
    """How partitions move in a rebalance (KIP-429)."""

    #: All partitions are revoked before each rebalance.
    EAGER = "eager"
    #: Only partitions that move are revoked; their new owner receives them one rebalance later.
    COOPERATIVE = "cooperative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The existing topics: the number of partitions of each, and the racks of each partition's replicas (KIP-881).

    `racks` is empty if the brokers report no racks.
    """

    partitions: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)

    def of(self, topic: str) -> tuple[TopicPartition, ...]:
        """Return the partitions of this topic by number; empty if it does not exist."""
        return tuple(TopicPartition(topic, number) for number in range(self.partitions.get(topic, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The assignment of one member: its partitions (topic, number), and bytes for that member's own assignor.

    It is Java's `Assignment`. `assign` may return it instead of the partitions alone, and `on_assignment` receives it.
    """

    partitions: Collection[tuple[str, int]] = frozenset()
    user_data: bytes | None = None


@runtime_checkable
class Assignor(Protocol):
    """Assign partitions to members. It keeps no state, except in `user_data`, which subscriptions contain.

    An assignor may also have `on_assignment`; see `AssignmentObserver`.
    """

    @property
    def name(self) -> str:
        """The name by which members agree on the assignor ("range", "cooperative-sticky", or your own name)."""

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The supported rebalance protocols; a COOPERATIVE result gives no partition to two owners in one round."""

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return the bytes that the subscription carries for this assignor, or None.

        `owned` is the last assignment, in this generation; an eager member has revoked it by then.
        """

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[tuple[str, int]] | Assigned]:
        """Return the partitions (topic, number) of each member id; each partition has one subscriber of its topic.

        With `Assigned` instead of partitions, a member also receives user data. The leader calls this on a separate
        thread.
        """


@runtime_checkable
class AssignmentObserver(Protocol):
    """An optional part of an assignor that receives each assignment of its member (Java's `onAssignment`)."""

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        """Receive the leader's assignment of this generation for this member.

        It is called in every member of a group that uses this assignor, before any partition of the assignment is
        revoked or assigned. `assignment.partitions` is a frozenset. Like `assign`, it runs on a separate thread, one
        call at a time, while heartbeats continue. If the group rebalances meanwhile, a newer assignment follows and
        this one is not applied. An exception ends the member, like an exception of `assign`, because the missed data
        cannot be recovered.
        """
