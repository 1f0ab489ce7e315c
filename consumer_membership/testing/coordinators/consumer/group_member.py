"""The broker's state of a member, and the steps that move it towards its target (CurrentAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from consumer_membership.types import JOIN_EPOCH, Assignment, Instant, TopicIdPartition


class Standing(Enum):
    """The broker's states of a member (rules 3.2)."""

    STABLE = "stable"
    #: The member must revoke partitions first, and keeps its epoch until it reports that it has revoked them.
    UNREVOKED = "unrevoked partitions"
    #: The member has the target epoch, but other members still own partitions of its target.
    UNRELEASED = "unreleased partitions"


@dataclass(slots=True, kw_only=True)
class ConsumerMember:
    """One member. `assigned` and `revoking` map each partition to the member epoch at which it was assigned."""

    member_id: str
    instance_id: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    standing: Standing = Standing.STABLE
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    assignor: str | None = None
    rebalance_timeout_s: float = 0.0
    assigned: dict[TopicIdPartition, int] = field(default_factory=dict)
    revoking: dict[TopicIdPartition, int] = field(default_factory=dict)
    session_ends_at: Instant = 0.0
    rebalance_ends_at: Instant | None = None

    def copy(self) -> ConsumerMember:
        """Return a copy; changes of the copy do not change this member."""
        return replace(self, assigned=dict(self.assigned), revoking=dict(self.revoking))

    @property
    def holds(self) -> Assignment:
        """The partitions that no other member may receive now."""
        return frozenset(self.assigned) | frozenset(self.revoking)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member is stable at this target epoch."""
        return self.standing is Standing.STABLE and self.epoch == epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The effect of one heartbeat on its member. `owned`: the partitions that it reports as owned; None: no report."""

    target: Assignment
    target_epoch: int
    owned: Assignment | None
    subscribed: Callable[[TopicIdPartition], bool]
    subscription_changed: bool
    is_free: Callable[[TopicIdPartition], bool]
    keeps_epoch: bool

    def apply(self, member: ConsumerMember) -> None:
        """Move the member to its next state, as far as this heartbeat permits."""
        match member.standing:
            case Standing.STABLE if member.epoch != self.target_epoch:
                self._compute_next(member, member.epoch)
            case Standing.UNREVOKED if self._owns_any_of(member.revoking):
                if self.subscription_changed:
                    self._shrink(member)
            case Standing.UNREVOKED:
                self._compute_next(member, member.epoch if self.keeps_epoch else member.epoch + 1)
            case Standing.UNRELEASED:
                self._compute_next(member, member.epoch)
            case Standing.STABLE:
                if self.subscription_changed:
                    self._shrink(member)

    def _owns_any_of(self, partitions: dict[TopicIdPartition, int]) -> bool:
        """Return whether the member may still own one of these; without a report, it may own all of them."""
        return self.owned is None or any(partition in self.owned for partition in partitions)

    def _shrink(self, member: ConsumerMember) -> None:
        """Take away partitions of unsubscribed topics, without waiting for the assignor (KAFKA-19431)."""
        gone = {p: epoch for p, epoch in member.assigned.items() if not self.subscribed(p)}
        if not gone:
            return
        for partition in gone:
            del member.assigned[partition]
        if self._owns_any_of(gone):
            member.revoking |= gone
            member.standing = Standing.UNREVOKED
            member.previous_epoch = member.epoch

    def _compute_next(self, member: ConsumerMember, epoch: int) -> None:
        kept = {p: at for p, at in member.assigned.items() if p in self.target}
        leaving = {p: at for p, at in member.assigned.items() if p not in self.target}
        wanted = self.target - kept.keys()
        free = [partition for partition in wanted if self.is_free(partition) or partition in member.revoking]
        previous = member.epoch
        if leaving and self._owns_any_of(leaving):
            member.standing = Standing.UNREVOKED
            member.epoch = epoch
            member.assigned, member.revoking = kept, leaving
        else:
            member.standing = Standing.UNRELEASED if len(free) < len(wanted) else Standing.STABLE
            member.epoch = self.target_epoch
            member.assigned = kept | dict.fromkeys(free, self.target_epoch)
            member.revoking = {}
        member.previous_epoch = previous
