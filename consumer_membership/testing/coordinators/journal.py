"""What happened in groups, for invariants: facts in the order in which they became true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from consumer_membership.testing.coordinators.exchanges import LeaderShare
from consumer_membership.types import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A member id left the group or was taken out of it."""

    member_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Another member id took a static member's place; the former one is fenced."""

    instance_id: str
    former_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceBegan:
    """The members of this generation must join again."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinsCompleted:
    """A generation began: who is in it, who assigns, and with what. None of both in an empty group."""

    generation: int
    members: tuple[str, ...]
    leader_id: str | None
    assignor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCompleted:
    """The leader's assignment of this generation holds from now on."""

    generation: int
    shares: tuple[LeaderShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAccepted:
    """A commit was accepted; with the member epoch, or the generation."""

    member_id: str
    generation: int
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A new coordinator read the group as it was last written; what came after that never happened."""

    generation: int
    members: tuple[str, ...]


JournalEntry: TypeAlias = (
    Removed | Replaced | RebalanceBegan | JoinsCompleted | RebalanceCompleted | CommitAccepted | Loaded
)
