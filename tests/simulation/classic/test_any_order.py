"""Requests in any order: the invariants of a classic group's coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.classic.group import GroupState
from consumer_membership.testing.coordinators.exchanges import (
    ClassicHeartbeat,
    Commit,
    Join,
    Joined,
    LeaderShare,
    LeaveGroup,
    LeavingMember,
    MemberIdRequired,
    Released,
    Request,
    Sync,
)
from consumer_membership.testing.coordinators.journal import JoinsCompleted, Loaded, RebalanceCompleted
from consumer_membership.testing.coordinators.rules import ClassicRules
from consumer_membership.types import OffsetAndMetadata
from tests.simulation.classic.scene import A, join
from tests.simulation.under_test import PARTITIONS, TOPIC

STEPS = 250
INSTANCES = (None, None, "i0", "i1")
LISTS = (("range",), ("range", "sticky"), ("sticky", "range"))


class Clients:
    """Clients that use any id that was ever assigned, and combine ids at random."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - a simulation, not cryptography
        rules = ClassicRules(max_size=3, new_member_join_timeout_s=40.0, sees_returning_subscriptions=seed % 2 == 0)
        self.sut = ClassicCoordinator(rules)
        self.sut.create_topic(TOPIC, PARTITIONS)
        self.now = 0.0
        self.ids = [""]
        self.sent: set[int] = set()
        self.answered: set[int] = set()

    def step(self) -> None:
        """Send a request, let time pass, or move the coordinator."""
        choice = self.random.random()
        if choice < 0.01:
            self.take(self.sut.move(self.random.randrange(3), self.now, loading_s=0.5))
        elif choice < 0.3:
            self.now += self.random.choice((0.1, 1.0, 4.0))
            self.take(self.sut.pass_time(self.now))
        elif choice < 0.32 and (timers := self.sut.timers()):
            self.take(self.sut.fire(*self.random.choice(timers), self.now))
        else:
            key = len(self.sent)
            self.sent.add(key)
            self.take(self.sut.process(key, "g", self.request(), self.now))

    def request(self) -> Request:
        """Return a random request of a client that may be a member."""
        pick = self.random.choice
        group = self.sut.groups.get("g")
        member_id = pick([*self.ids[-6:], *(group.roster.members if group is not None else ())])
        instance_id = pick(INSTANCES)
        if group is not None and member_id in group.roster.members and self.random.random() < 0.8:
            instance_id = group.roster.members[member_id].instance_id
        generation = (group.generation if group is not None else 0) - (self.random.random() < 0.1)
        kind = self.random.random()
        if kind < 0.45:
            return self.a_join(member_id, instance_id)
        if kind < 0.75:
            shares = tuple(LeaderShare(one, frozenset(A)) for one in self.ids[-3:])
            return Sync(member_id=member_id, instance_id=instance_id, generation=generation, shares=shares)
        if kind < 0.85:
            return ClassicHeartbeat(member_id=member_id, instance_id=instance_id, generation=generation)
        if kind < 0.95:
            offsets = {A[0]: OffsetAndMetadata(offset=len(self.sent))}
            return Commit(member_id=member_id, instance_id=instance_id, generation=generation, offsets=offsets)
        return LeaveGroup(members=(LeavingMember(member_id, instance_id), LeavingMember(pick(self.ids))))

    def a_join(self, member_id: str, instance_id: str | None) -> Join:
        """Return a random JoinGroup."""
        pick = self.random.choice
        return join(
            member_id,
            instance_id=instance_id,
            assignors=pick(LISTS),
            topics=pick(((TOPIC,), (TOPIC,), (TOPIC, "b"))),
            session_timeout_s=pick((6.0, 10.0)),
            rebalance_timeout_s=pick((2.0, 5.0)),
            version=pick((3, 8, 9)),
        )

    def take(self, released: Iterable[Released]) -> None:
        """Record responses, and check that each request has only one response."""
        for key, answer in released:
            assert key in self.sent - self.answered
            self.answered.add(int(str(key)))
            if isinstance(answer, Joined | MemberIdRequired):
                self.ids.append(answer.member_id)

    def check(self) -> None:
        """Check the invariants."""
        assert self.sut.waiting() <= self.sent - self.answered
        group = self.sut.groups.get("g")
        if group is None:
            return
        roster, members = group.roster, group.roster.members
        statics = {one.instance_id: member_id for member_id, one in members.items() if one.instance_id is not None}
        assert roster.instances == statics
        assert roster.leader_id in members or (roster.leader_id is None and not members)
        assert not roster.pending.keys() & members.keys()
        assert (group.state is GroupState.PREPARING_REBALANCE) == (group.join_ends_at is not None)
        assert group.state is not GroupState.EMPTY or not members
        assert not roster.joined or group.state is GroupState.PREPARING_REBALANCE
        assert not any(one.sync for one in members.values()) or group.state is GroupState.COMPLETING_REBALANCE
        assert bool(group.pending_sync) == (group.sync_ends_at is not None)
        assert group.sync_ends_at is None or group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        unwatched = [one for one in members.values() if one.session_ends_at is None]
        assert all(one.satisfies_heartbeat for one in unwatched)
        if members and group.state is not GroupState.PREPARING_REBALANCE:
            assert all(group.assignor in one.names() for one in members.values())


@pytest.mark.parametrize("seed", range(40))
def test_coordinator_keeps_its_invariants_for_any_order_of_requests(seed: int) -> None:
    """No request gets two responses, no request waits in a phase without an end, and each member has a timer."""
    clients = Clients(seed)
    for _ in range(STEPS):
        clients.step()
        clients.check()
    generation = 0
    for entry in clients.sut.journal:
        if isinstance(entry, JoinsCompleted):
            assert entry.generation == generation + 1, seed
        if isinstance(entry, JoinsCompleted | Loaded):
            generation = entry.generation
        assert not isinstance(entry, RebalanceCompleted) or entry.generation == generation, seed


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_coordinator_without_requests_empties_the_group_and_answers_each_waiting_request(seed: int) -> None:
    """Without further requests, sessions and phases end one after the other until no request waits."""
    clients = Clients(seed)
    for _ in range(STEPS):
        clients.step()
    while (deadline := clients.sut.next_deadline()) is not None:
        clients.now = max(clients.now, deadline)
        clients.take(clients.sut.pass_time(clients.now))
    assert {group.state for group in clients.sut.groups.values()} == {GroupState.EMPTY}
    assert clients.sut.waiting() == set()


def test_random_requests_reach_each_phase() -> None:
    """The random requests of these tests lead to generations, assignments, replacements and moves."""
    happened: set[str] = set()
    for seed in range(10):
        clients = Clients(seed)
        for _ in range(STEPS):
            clients.step()
        happened |= {type(entry).__name__ for entry in clients.sut.journal}
        happened |= {getattr(entry, "reason", "") for entry in clients.sut.journal}
    assert {"RebalanceCompleted", "Replaced", "CommitAccepted", "Loaded"} <= happened
    assert {"session", "rebalance", "sync", "left"} <= happened
