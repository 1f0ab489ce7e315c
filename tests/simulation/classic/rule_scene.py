"""Builders for the rule tests of classic groups, on the simulation and on real brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from consumer_membership.testing.coordinators.exchanges import ClassicHeartbeat, Join, Joined, MemberIdRequired, Synced
from consumer_membership.testing.coordinators.rules import ClassicRules
from tests.simulation.classic import scene
from tests.simulation.classic.scene import A, expect, sync
from tests.simulation.under_test import CoordinatorUnderTest

Sut: TypeAlias = CoordinatorUnderTest[ClassicRules]

#: A timeout that ends within a test, and a timeout that does not.
SHORT_S, LONG_S = 1.0, 60.0
#: The states of a group by their names on brokers.
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"


#: A JoinGroup of a member whose session by default does not end within a test.
join = partial(scene.join, session_timeout_s=LONG_S)


def new_id(sut: Sut, *, session_timeout_s: float = LONG_S) -> str:
    """Return the id that a dynamic member must join with."""
    return expect(MemberIdRequired, sut.call(join(session_timeout_s=session_timeout_s))).member_id


def with_id(sut: Sut, request: Join) -> Join:
    """Return the join with the id that the coordinator creates for a dynamic member."""
    if request.instance_id is not None or request.member_id:
        return request
    return replace(request, member_id=expect(MemberIdRequired, sut.call(request)).member_id)


def rejoin(request: Join, joined: Joined) -> Join:
    """Return the join with the id of the member that it created."""
    return replace(request, member_id=joined.member_id)


def send_and_see(sut: Sut, key: str, request: Join) -> None:
    """Send a join that begins a rebalance, and wait until the group is in PreparingRebalance."""
    sut.send(key, request)
    sut.until(lambda: sut.state() == PREPARING)


def gathering(sut: Sut, *requests: Join) -> list[Joined]:
    """Let members join the empty group up to the end of the join phase; the first member leads.

    The first member joins twice: on a broker it waits for no other member, and the others join its second generation.
    """
    first, *others = requests
    joined = expect(Joined, sut.call(with_id(sut, first)))
    if not others:
        return [joined]
    for number, request in enumerate(others):
        sut.send(number, with_id(sut, request))
        sut.until(_has_members(sut, number + 2))
    again = expect(Joined, sut.call(rejoin(first, joined)))
    return [again, *(expect(Joined, sut.receive(number)) for number in range(len(others)))]


def _has_members(sut: Sut, count: int) -> Callable[[], bool]:
    return lambda: len(sut.members()) == count


def stable(sut: Sut, *requests: Join) -> list[Joined]:
    """Return the members of a stable group with these joins; each member has one partition, in order."""
    members = gathering(sut, *requests)
    shares = {member.member_id: (A[number],) for number, member in enumerate(members)}
    for member, request in zip(members[1:], requests[1:], strict=True):
        sut.send(member.member_id, replace(sync(member), instance_id=request.instance_id))
    leaders = sut.call(replace(sync(members[0], shares), instance_id=requests[0].instance_id))
    answers = [leaders, *(sut.receive(member.member_id) for member in members[1:])]
    assert [expect(Synced, one).assignment for one in answers] == [frozenset({A[n]}) for n in range(len(members))]
    return members


def heartbeat(member: Joined, instance_id: str | None = None) -> ClassicHeartbeat:
    """Return a Heartbeat of this member."""
    return ClassicHeartbeat(member_id=member.member_id, generation=member.generation, instance_id=instance_id)
