"""The members of a classic group, its leader, and the assignor that its members agree on (ClassicGroup).

Also the record that the group writes when it has an assignment, becomes empty, or replaces a static member.
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
    """A group member. `join` and `sync` are the keys of its waiting requests; a newer request replaces an older one."""

    member_id: str
    instance_id: str | None
    offers: tuple[Offer, ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    assignment: PartitionSet | None = None
    join: Key | None = None
    sync: Key | None = None
    #: The member waits for the response to its first JoinGroup, so it cannot send heartbeats yet.
    is_new: bool = False
    #: None: the session timer ended while a request was waiting; the response to that request restarts the timer.
    session_ends_at: Instant | None = None

    def store_join(self, request: Join, key: Key) -> None:
        """Store the fields of a JoinGroup, and its key for the later response."""
        self.offers = request.offers
        self.session_timeout_s = request.session_timeout_s
        self.rebalance_timeout_s = request.rebalance_timeout_s
        self.join = key

    def start_session(self, now: Instant) -> None:
        """Restart the session timer."""
        self.session_ends_at = now + self.session_timeout_s

    @property
    def satisfies_heartbeat(self) -> bool:
        """Whether a waiting request keeps the session; a new member's does not, as its process may be long gone."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def names(self) -> tuple[str, ...]:
        """Return the assignors that the member supports, in order of preference."""
        return tuple(offer.assignor for offer in self.offers)

    def key(self) -> Hashable:
        """Return the member's state as a hashable value."""
        waiting = (self.join, self.sync, self.is_new, self.session_ends_at)
        timeouts = (self.session_timeout_s, self.rebalance_timeout_s)
        return (self.member_id, self.instance_id, self.offers, self.assignment, timeouts, waiting)


@dataclass(slots=True)
class Roster:
    """Members in joining order, the holder of each instance id, and `pending` member ids with their expiry times.

    A pending member id is issued to a dynamic member that must join with it (KIP-394) and has not done so yet.
    """

    members: dict[str, ClassicMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    pending: dict[str, Instant] = field(default_factory=dict)
    leader_id: str | None = None
    protocol_type: str | None = None

    # ---- adding and removing members ----

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member; the first member becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending member id; the oldest remaining member succeeds a removed leader."""
        member = self.members.pop(member_id, None)
        self.pending.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, former: ClassicMember, member_id: str) -> ClassicMember:
        """Give a static member another member id; the member keeps its leadership and its assignment (KIP-345)."""
        del self.members[former.member_id]
        new = replace(former, member_id=member_id, join=None, sync=None, is_new=False)
        self.members[member_id] = new
        self.instances[former.instance_id or ""] = member_id
        if self.leader_id == former.member_id:
            self.leader_id = member_id
        return new

    def check(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the sender of a request. Raises RequestRefusal if it is unknown or fenced."""
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
        """The members whose JoinGroup is waiting."""
        return tuple(member for member in self.members.values() if member.join is not None)

    @property
    def has_all_joined(self) -> bool:
        """Whether every member has joined, and no pending member id is left."""
        return len(self.joined) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest rebalance timeout of the members; 0 without members."""
        return max((member.rebalance_timeout_s for member in self.members.values()), default=0.0)

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, else elect the first joined member; return whether a joined leader exists."""
        if self.leader_id is None or not self.joined:
            return False
        if self.members[self.leader_id].join is None:
            self.leader_id = self.joined[0].member_id
        return True

    # ---- the assignor ----

    def supports(self, protocol_type: str, offers: tuple[Offer, ...]) -> bool:
        """Return whether the protocol type fits, and one of the offered assignors is common to all members."""
        if not self.members:
            return bool(protocol_type) and bool(offers)
        return protocol_type == self.protocol_type and not self.common_assignors().isdisjoint(
            offer.assignor for offer in offers
        )

    def common_assignors(self) -> frozenset[str]:
        """Return the assignors that every member supports."""
        return frozenset.intersection(*(frozenset(member.names()) for member in self.members.values()))

    def select_assignor(self) -> str:
        """Return the common assignor with the most votes: each member votes for its first common assignor.

        The oldest member's vote breaks ties (a broker: a hash).
        """
        common = self.common_assignors()
        votes = Counter(next(name for name in member.names() if name in common) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def members_for(self, assignor: str) -> tuple[JoinedMember, ...]:
        """Return all members in the form that the leader receives."""
        return tuple(
            JoinedMember(member.member_id, replace(offer.subscription, instance_id=member.instance_id))
            for member in self.members.values()
            for offer in member.offers
            if offer.assignor == assignor
        )

    def key(self) -> Hashable:
        """Return the state as a hashable value; it includes the members' order, which decides the next leader."""
        members = tuple(member.key() for member in self.members.values())
        return (members, frozenset(self.pending.items()), self.leader_id, self.protocol_type)


class StoredMember(NamedTuple):
    """A member in the record; `offers` has only the offer for the selected assignor."""

    member_id: str
    instance_id: str | None
    offers: tuple[Offer, ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    assignment: PartitionSet | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """The record of a group in the log; the defaults describe a group that was just created."""

    generation: int = 0
    assignor: str | None = None
    protocol_type: str | None = None
    leader_id: str | None = None
    members: tuple[StoredMember, ...] = ()

    @classmethod
    def of(cls, roster: Roster, generation: int, assignor: str | None) -> StoredGroup:
        """Return the record of a group's current state."""
        members = tuple(
            StoredMember(
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
        """Return the roster that a new coordinator loads; sessions start at `now`."""
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
