"""The events of groups in the order in which they happened, for the checks of invariants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from consumer_membership.testing.coordinators.exchanges import LeaderShare
from consumer_membership.types import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A member id left the group or was removed from it."""

    member_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A new member id replaced the former id of a static member; the former id is fenced."""

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
    """A generation began with these members, leader and assignor; an empty group has neither leader nor assignor."""

    generation: int
    members: tuple[str, ...]
    leader_id: str | None
    assignor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCompleted:
    """The leader's assignment of this generation has taken effect."""

    generation: int
    shares: tuple[LeaderShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAccepted:
    """A commit was accepted; `generation` is the generation or the member epoch in the request."""

    member_id: str
    generation: int
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A new coordinator loaded the group as it was last written; all later changes are lost."""

    generation: int
    members: tuple[str, ...]


JournalEntry: TypeAlias = (
    Removed | Replaced | RebalanceBegan | JoinsCompleted | RebalanceCompleted | CommitAccepted | Loaded
)
