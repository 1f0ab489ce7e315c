"""What is written of a classic group when it is assigned, gets empty, or has a static member replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from consumer_membership.types import Instant
from tests.simulation.classic.exchanges import Offer, Partitions
from tests.simulation.classic.roster import ClassicMember, Roster


class WrittenMember(NamedTuple):
    """One member; of its offers only the one of the chosen assignor."""

    member_id: str
    instance_id: str | None
    offers: tuple[Offer, ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    assignment: Partitions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenGroup:
    """The group's record; the defaults are those of a group that was only just made."""

    generation: int = 0
    assignor: str | None = None
    protocol_type: str | None = None
    leader_id: str | None = None
    members: tuple[WrittenMember, ...] = ()

    @classmethod
    def of(cls, roster: Roster, generation: int, assignor: str | None) -> WrittenGroup:
        """The record of a group as it is now."""
        members = tuple(
            WrittenMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                offers=tuple(offer for offer in member.offers if offer.assignor == assignor),
                session_timeout_s=member.session_timeout_s,
                rebalance_timeout_s=member.rebalance_timeout_s,
                assignment=member.assignment,
            )
            for member in roster.members.values()
        )
        return cls(
            generation=generation,
            assignor=assignor,
            protocol_type=roster.protocol_type,
            leader_id=roster.leader_id,
            members=members,
        )

    def roster(self, now: Instant) -> Roster:
        """The roster that a new coordinator reads."""
        roster = Roster(leader_id=self.leader_id, protocol_type=self.protocol_type)
        for one in self.members:
            member = ClassicMember(
                member_id=one.member_id,
                instance_id=one.instance_id,
                offers=one.offers,
                session_timeout_s=one.session_timeout_s,
                rebalance_timeout_s=one.rebalance_timeout_s,
                assignment=one.assignment,
            )
            member.start_session(now)
            roster.add(member, self.protocol_type or "")
        return roster
