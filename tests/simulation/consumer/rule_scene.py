"""Builders for the rule tests of the consumer protocol, on the simulation and on real brokers."""

from __future__ import annotations

from typing import TypeAlias

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators.exchanges import (
    Commit,
    CommitResults,
    Fetch,
    LeaveGroup,
    LeaveResults,
    LeavingMember,
)
from consumer_membership.testing.coordinators.rules import Granted, Refused, Rules
from consumer_membership.types import Assignment, OffsetAndMetadata, TopicPartition
from tests.simulation.under_test import TOPIC, CoordinatorUnderTest

Sut: TypeAlias = CoordinatorUnderTest[Rules]

FIRST = TopicPartition(TOPIC, 0)
NOTHING: Assignment = frozenset()


class Member:
    """A member that sends the requests of a test, and adopts the epochs of the responses."""

    def __init__(
        self,
        sut: Sut,
        member_id: str,
        instance_id: str | None = None,
        *,
        rebalance_timeout_s: float = 60.0,
        topics: tuple[str, ...] = (TOPIC,),
        pattern: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self._sut = sut
        self.member_id, self._instance_id = member_id, instance_id
        self._rebalance_timeout_s, self.topics, self.pattern = rebalance_timeout_s, topics, pattern
        self.assignor = assignor
        self.epoch = 0

    def call(self, epoch: int, owned: Assignment | None = None, *, is_full: bool = False) -> Granted | Refused:
        """Send a heartbeat and return its response."""
        answer = self._sut.call(
            Heartbeat(
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self._instance_id,
                rebalance_timeout_s=self._rebalance_timeout_s if is_full else None,
                topics=self.topics if is_full else None,
                pattern=self.pattern if is_full else None,
                assignor=self.assignor if is_full else None,
                owned=owned,
            )
        )
        assert isinstance(answer, Granted | Refused), answer
        if isinstance(answer, Granted):
            self.epoch = answer.member_epoch
        return answer

    def refused(self, epoch: int, owned: Assignment | None = None, *, is_full: bool = False) -> int:
        """Send a heartbeat that must be refused; return the error code."""
        answer = self.call(epoch, owned, is_full=is_full)
        assert isinstance(answer, Refused), answer
        return answer.code

    def heartbeat(self, owned: Assignment | None = None, *, is_full: bool = False) -> Granted:
        """Send a heartbeat with the member's epoch, which must be accepted; return the response."""
        answer = self.call(self.epoch, owned, is_full=is_full)
        assert isinstance(answer, Granted), answer
        return answer

    def join(self) -> Granted:
        """Send a join, which must be accepted; return the response."""
        self.epoch = 0
        return self.heartbeat(NOTHING, is_full=True)

    def refused_join(self) -> int:
        """Send a join that must be refused; return the error code."""
        return self.refused(0, NOTHING, is_full=True)

    def next_assignment(self, owned: Assignment | None = None) -> Assignment:
        """Send heartbeats until a response has an assignment, and return the assignment."""
        answers: list[Granted] = []

        def has_assignment() -> bool:
            answers.append(self.heartbeat(owned))
            return answers[-1].assignment is not None

        self._sut.until(has_assignment)
        return answers[-1].assignment or NOTHING

    def whole(self, owned: Assignment = NOTHING) -> Assignment:
        """Send a complete heartbeat, and return the assignment of its response."""
        answer = self.heartbeat(owned, is_full=True)
        assert answer.assignment is not None
        return answer.assignment

    def has_all(self) -> None:
        """Join, and check that the member gets all partitions."""
        assert self.join().assignment == frozenset(self._sut.topic)

    def commit(self, epoch: int, partition: TopicPartition = FIRST) -> int:
        """Commit an offset with this epoch; return the partition's error code."""
        return commit(self._sut, self.member_id, epoch, partition)


def commit(sut: Sut, member_id: str, epoch: int, partition: TopicPartition = FIRST) -> int:
    """Commit an offset; return the partition's error code."""
    offsets = {partition: OffsetAndMetadata(offset=3)}
    answer = sut.call(Commit(member_id=member_id, generation=epoch, offsets=offsets))
    assert isinstance(answer, CommitResults), answer
    return answer.codes[partition]


def fetch(sut: Sut, member_id: str | None = None, epoch: int = -1) -> object:
    """Fetch the committed offset of the first partition."""
    return sut.call(Fetch(member_id=member_id, member_epoch=epoch, partitions=frozenset({FIRST})))


def remove(sut: Sut, *members: LeavingMember) -> tuple[int, ...]:
    """Remove members as an administrator does; return the error code of each member."""
    answer = sut.call(LeaveGroup(members=members))
    assert isinstance(answer, LeaveResults), answer
    return answer.codes


def pair(sut: Sut) -> tuple[Member, Member, Assignment]:
    """Return two members after a handover, and the partitions that the first member kept."""
    first, second = Member(sut, "m1"), Member(sut, "m2")
    first.has_all()
    second.join()
    kept = first.next_assignment()
    first.heartbeat(kept)
    second.next_assignment()
    return first, second, kept
