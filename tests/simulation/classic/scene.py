"""Builders for tests of the classic coordinator: requests, and groups in a required state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.classic.group import ClassicGroup
from consumer_membership.testing.coordinators.exchanges import (
    Answer,
    Join,
    Joined,
    Key,
    LeaderShare,
    MemberIdRequired,
    Offer,
    Request,
    Sync,
    Synced,
)
from consumer_membership.testing.coordinators.rules import ClassicRules
from consumer_membership.types import TopicPartition
from tests.simulation.under_test import PARTITIONS, TOPIC

A = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))
T = TypeVar("T")


def coordinator(rules: ClassicRules | None = None) -> ClassicCoordinator:
    """Return a coordinator with the rule tests' topic; by default, groups do not wait for a second member."""
    sut = ClassicCoordinator(rules or ClassicRules(initial_rebalance_delay_s=0.0))
    sut.create_topic(TOPIC, PARTITIONS)
    return sut


def join(
    member_id: str = "",
    *,
    instance_id: str | None = None,
    assignors: tuple[str, ...] = ("range",),
    topics: tuple[str, ...] = (TOPIC,),
    session_timeout_s: float = 10.0,
    rebalance_timeout_s: float = 60.0,
    version: int = 9,
) -> Join:
    """Return a JoinGroup."""
    subscription = MemberSubscription(topics=frozenset(topics))
    return Join(
        member_id=member_id,
        instance_id=instance_id,
        offers=tuple(Offer(assignor, subscription) for assignor in assignors),
        session_timeout_s=session_timeout_s,
        rebalance_timeout_s=rebalance_timeout_s,
        version=version,
    )


def call(sut: ClassicCoordinator, key: Key, request: Request, now: float = 0.0) -> dict[Key, Answer]:
    """Send a request, and return all responses that it releases."""
    return dict(sut.process(key, "g", request, now))


def answer(sut: ClassicCoordinator, request: Request, now: float = 0.0) -> Answer:
    """Send a request that has an immediate response, and return the response."""
    return call(sut, "asked", request, now)["asked"]


def expect(kind: type[T], given: object) -> T:
    """Return the response after checking its type."""
    assert isinstance(given, kind), given
    return given


def new_id(sut: ClassicCoordinator, now: float = 0.0) -> str:
    """Return the member id that a dynamic member must join with."""
    return expect(MemberIdRequired, answer(sut, join(), now)).member_id


def gathering(sut: ClassicCoordinator, *requests: Join, now: float = 0.0) -> list[Joined]:
    """Let members join the empty group up to the end of the join phase; dynamic members get an id first."""
    for number, request in enumerate(requests):
        keyed = request
        if request.instance_id is None:
            keyed = join(new_id(sut, now), assignors=tuple(offer.assignor for offer in request.offers))
        assert call(sut, number, keyed, now) == {}
    answers: dict[Key, Answer] = {}
    while (ends_at := group_of(sut).join_ends_at) is not None:
        answers |= dict(sut.pass_time(ends_at))
    return [expect(Joined, answers[number]) for number in range(len(requests))]


def sync(joined: Joined, shares: Mapping[str, tuple[TopicPartition, ...]] | None = None, **fields: str) -> Sync:
    """Return a SyncGroup of a member that joined; `shares` is the leader's assignment."""
    given = tuple(LeaderShare(member_id, frozenset(partitions)) for member_id, partitions in (shares or {}).items())
    return Sync(
        member_id=joined.member_id,
        generation=joined.generation,
        shares=given,
        assignor=joined.assignor,
        protocol_type="consumer",
        instance_id=fields.get("instance_id"),
    )


def stable(sut: ClassicCoordinator, *requests: Join, now: float = 0.0) -> list[Joined]:
    """Return the members of a stable group: the first member leads, and each member has one partition, in order."""
    members = gathering(sut, *requests, now=now)
    shares = {member.member_id: (A[number],) for number, member in enumerate(members)}
    released = [one for member in members[1:] for one in sut.process(member.member_id, "g", sync(member), now)]
    released += sut.process(members[0].member_id, "g", sync(members[0], shares), now)
    assert {key: expect(Synced, given).assignment for key, given in released} == {
        member_id: frozenset(partitions) for member_id, partitions in shares.items()
    }
    return members


def group_of(sut: ClassicCoordinator) -> ClassicGroup:
    """Return the group of these tests."""
    return sut.groups["g"]


def journal(sut: ClassicCoordinator, kind: type[T]) -> list[T]:
    """Return the journal entries of one kind."""
    return [entry for entry in sut.journal if isinstance(entry, kind)]
