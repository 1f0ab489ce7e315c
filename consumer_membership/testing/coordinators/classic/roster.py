"""Who is in a classic group, who leads it, and on which assignor its members agree (ClassicGroup).

Also what is written of it when it is assigned, gets empty, or has a static member replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.exchanges import Join, JoinedMember, Key, Offer, PartitionSet
from consumer_membership.testing.coordinators.rules import RequestRefusal
from consumer_membership.types import Instant


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """One member. `join` and `sync` are the keys of its waiting requests; a newer one takes an older one's place."""

    member_id: str
    instance_id: str | None
    offers: tuple[Offer, ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    assignment: PartitionSet | None = None
    join: Key | None = None
    sync: Key | None = None
    #: Its first join has not been answered yet, so that it knows no member id.
    is_new: bool = False
    #: None: the session's timer ended while a request was waiting, and starts again when that is answered.
    session_ends_at: Instant | None = None

    def take_in(self, request: Join, key: Key) -> None:
        """Take over what a JoinGroup says; the request waits."""
        self.offers = request.offers
        self.session_timeout_s = request.session_timeout_s
        self.rebalance_timeout_s = request.rebalance_timeout_s
        self.join = key

    def start_session(self, now: Instant) -> None:
        """Restart the session's timer."""
        self.session_ends_at = now + self.session_timeout_s

    @property
    def satisfies_heartbeat(self) -> bool:
        """Whether a waiting request keeps it alive: not that of a new member, which may be gone for long."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def names(self) -> tuple[str, ...]:
        """The assignors it supports, in order of preference."""
        return tuple(offer.assignor for offer in self.offers)

    def key(self) -> Hashable:
        """Everything that it is, as a value."""
        waiting = (self.join, self.sync, self.is_new, self.session_ends_at)
        timeouts = (self.session_timeout_s, self.rebalance_timeout_s)
        return (self.member_id, self.instance_id, self.offers, self.assignment, timeouts, waiting)


@dataclass(slots=True)
class Roster:
    """Members in the order in which they came, who holds which instance id, and `pending` ids with their ends."""

    members: dict[str, ClassicMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    pending: dict[str, Instant] = field(default_factory=dict)
    leader_id: str | None = None
    protocol_type: str | None = None

    # ---- coming and going ----

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Take a member in; the first one leads."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or an id that was given out; the oldest member after a removed leader leads."""
        member = self.members.pop(member_id, None)
        self.pending.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, former: ClassicMember, member_id: str) -> ClassicMember:
        """Another id takes over a static member, leadership and assignment included (KIP-345)."""
        del self.members[former.member_id]
        new = replace(former, member_id=member_id, join=None, sync=None, is_new=False)
        self.members[member_id] = new
        self.instances[former.instance_id or ""] = member_id
        if self.leader_id == former.member_id:
            self.leader_id = member_id
        return new

    def check(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member that a request is from; raises Refusal."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                raise RequestRefusal(code.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise RequestRefusal(code.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise RequestRefusal(code.UNKNOWN_MEMBER_ID)
        return member

    # ---- the join phase ----

    @property
    def joined(self) -> tuple[ClassicMember, ...]:
        """Those whose JoinGroup waits."""
        return tuple(member for member in self.members.values() if member.join is not None)

    @property
    def has_all_joined(self) -> bool:
        """Return whether no member is missing, nor one that must come back with its id."""
        return len(self.joined) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest of the members' own."""
        return max((member.rebalance_timeout_s for member in self.members.values()), default=0.0)

    def elects_joined_leader(self) -> bool:
        """Keep a leader that joined, else let the first that joined lead; whether there is one."""
        if self.leader_id is None or not self.joined:
            return False
        if self.members[self.leader_id].join is None:
            self.leader_id = self.joined[0].member_id
        return True

    # ---- the assignor ----

    def supports(self, protocol_type: str, offers: tuple[Offer, ...]) -> bool:
        """Return whether a member that offers this has an assignor in common with all members."""
        if not self.members:
            return bool(protocol_type) and bool(offers)
        return protocol_type == self.protocol_type and not self.common_assignors().isdisjoint(
            offer.assignor for offer in offers
        )

    def common_assignors(self) -> frozenset[str]:
        """What every member supports."""
        return frozenset.intersection(*(frozenset(member.names()) for member in self.members.values()))

    def select_assignor(self) -> str:
        """Each member votes for the common one it likes best; the oldest one's vote breaks ties (a broker: a hash)."""
        common = self.common_assignors()
        votes = Counter(next(name for name in member.names() if name in common) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def members_for(self, assignor: str) -> tuple[JoinedMember, ...]:
        """All members as the leader gets to know them."""
        return tuple(
            JoinedMember(member.member_id, replace(offer.subscription, instance_id=member.instance_id))
            for member in self.members.values()
            for offer in member.offers
            if offer.assignor == assignor
        )

    def key(self) -> Hashable:
        """Everything that it is, as a value; the members' order counts, as the next leader follows from it."""
        members = tuple(member.key() for member in self.members.values())
        return (members, frozenset(self.pending.items()), self.leader_id, self.protocol_type)


class WrittenMember(NamedTuple):
    """One member; of its offers only the one of the chosen assignor."""

    member_id: str
    instance_id: str | None
    offers: tuple[Offer, ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    assignment: PartitionSet | None


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
