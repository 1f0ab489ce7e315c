"""Builders for tests of the classic coordinator: requests, and groups that are brought into a state."""

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
    """A coordinator of a cluster with the rule tests' topic; by default it does not wait for a group's second."""
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
    """A JoinGroup."""
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
    """Ask, and see what that releases."""
    return dict(sut.process(key, "g", request, now))


def answer(sut: ClassicCoordinator, request: Request, now: float = 0.0) -> Answer:
    """Ask something that is answered at once."""
    return call(sut, "asked", request, now)["asked"]


def expect(kind: type[T], given: object) -> T:
    """What was answered, as what it must be."""
    assert isinstance(given, kind), given
    return given


def new_id(sut: ClassicCoordinator, now: float = 0.0) -> str:
    """Return the member id that a dynamic member must join with."""
    return expect(MemberIdRequired, answer(sut, join(), now)).member_id


def gathering(sut: ClassicCoordinator, *requests: Join, now: float = 0.0) -> list[Joined]:
    """Let these join the empty group (dynamic ones with a new id first), up to the end of the join phase."""
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
    """A SyncGroup of a member that joined; the leader's with its shares."""
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
    """A stable group of these: the first one leads and gives each member in turn the next partition."""
    members = gathering(sut, *requests, now=now)
    shares = {member.member_id: (A[number],) for number, member in enumerate(members)}
    released = [one for member in members[1:] for one in sut.process(member.member_id, "g", sync(member), now)]
    released += sut.process(members[0].member_id, "g", sync(members[0], shares), now)
    assert {key: expect(Synced, given).assignment for key, given in released} == {
        member_id: frozenset(partitions) for member_id, partitions in shares.items()
    }
    return members


def group_of(sut: ClassicCoordinator) -> ClassicGroup:
    """The group of all these tests."""
    return sut.groups["g"]


def journal(sut: ClassicCoordinator, kind: type[T]) -> list[T]:
    """The facts of one kind."""
    return [entry for entry in sut.journal if isinstance(entry, kind)]
