"""What an operator gets back: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from consumer_membership.runtime.network.group_client import GroupDescription, MemberDescription, MemberIdentity
from consumer_membership.types import BrokerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far a group is in one partition; None for what is not known, and then `note` says why.

    `owner` and `next_owner` are member ids: who has the partition, and who is to have it where that is another one.
    """

    topic: str
    partition: int
    #: The next offset that the group reads; None: nothing is committed, or it cannot be told.
    committed: int | None
    #: The partition's high watermark, as kafka-consumer-groups.sh takes it; records of open transactions count.
    end: int | None
    lag: int | None
    owner: str | None
    next_owner: str | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A group, its coordinator, and every partition that it committed or that a member has or is to have."""

    group: GroupDescription
    coordinator: BrokerAddress
    partitions: tuple[PartitionProgress, ...]

    @property
    def lag(self) -> int | None:
        """How many records the group has still to read, in the partitions where that is known; None: in none."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None


class RemovalOutcome(Enum):
    """What became of one member that was to be removed."""

    REMOVED = "removed"
    #: Of a dry run.
    WOULD_BE_REMOVED = "would be removed"
    #: It was there when the group was described, and left by itself, or by an attempt whose answer was lost.
    ALREADY_GONE = "already gone"
    #: The group has no such member.
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """One member that was to be removed: how it was asked for, who that was, and what became of it.

    `member` is None where the group has no such member, or where it may not be described. `message` says what follows,
    or what to do.
    """

    asked: MemberIdentity
    member: MemberDescription | None
    outcome: RemovalOutcome
    message: str

    @property
    def succeeded(self) -> bool:
        """Whether the member is not in the group any more, or, of a dry run, would not be."""
        return self.outcome not in (RemovalOutcome.UNKNOWN, RemovalOutcome.REFUSED)
