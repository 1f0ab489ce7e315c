"""Groups that change their protocol only while they are empty (rules 4.10), on the simulation and on brokers.

Each test runs on the simulated coordinator and, marked integration, on a real coordinator.
"""

from __future__ import annotations

from typing import TypeAlias

import pytest

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.exchanges import (
    Answer,
    ClassicHeartbeat,
    Commit,
    CommitResults,
    Describe,
    Fetch,
    Fetched,
    Joined,
    LeaveGroup,
    LeaveResults,
    LeavingMember,
    MemberIdRequired,
    Synced,
)
from consumer_membership.testing.coordinators.rules import Granted, Refused, Rules
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.simulation.classic.rule_scene import join
from tests.simulation.classic.scene import expect, sync
from tests.simulation.under_test import TOPIC, CoordinatorUnderTest
from tests.support.versions import NEWEST

Sut: TypeAlias = CoordinatorUnderTest[Rules]

FIRST = TopicPartition(TOPIC, 0)
OFFSETS = {FIRST: OffsetAndMetadata(offset=3)}
COMMITTED = Fetched(offsets=dict(OFFSETS))
READ = Fetch(partitions=frozenset({FIRST}))
JOIN = Heartbeat(member_id="m1", member_epoch=0, rebalance_timeout_s=60.0, topics=(TOPIC,), owned=frozenset())


def refusal(answer: Answer) -> int:
    """Return the error code of a refusal."""
    return expect(Refused, answer).code


def classic_member(sut: Sut) -> Joined:
    """Return the only member of a stable classic group; it has committed offsets."""
    member_id = expect(MemberIdRequired, sut.call(join())).member_id
    joined = expect(Joined, sut.call(join(member_id)))
    expect(Synced, sut.call(sync(joined)))
    committed = sut.call(Commit(member_id=member_id, generation=joined.generation, offsets=OFFSETS))
    assert committed == CommitResults(codes={FIRST: 0})
    return joined


def consumer_member(sut: Sut) -> int:
    """Return the epoch of m1, the only member of a consumer protocol group; it has committed offsets."""
    epoch = expect(Granted, sut.call(JOIN)).member_epoch
    assert sut.call(Commit(member_id="m1", generation=epoch, offsets=OFFSETS)) == CommitResults(codes={FIRST: 0})
    return epoch


def test_b22_classic_group_with_members_is_not_converted(either: Sut) -> None:
    """B22: A consumer protocol join and a heartbeat of an earlier consumer protocol member get GROUP_ID_NOT_FOUND."""
    joined = classic_member(either)
    assert refusal(either.call(JOIN)) == code.GROUP_ID_NOT_FOUND
    assert refusal(either.call(Heartbeat(member_id="m1", member_epoch=3))) == code.GROUP_ID_NOT_FOUND
    assert refusal(either.call(Describe())) == code.GROUP_ID_NOT_FOUND
    assert either.members() == {joined.member_id}
    assert either.call(READ) == COMMITTED


@pytest.mark.parametrize(
    "either",
    ["4.0", "4.2", "4.4", pytest.param(NEWEST, id="real newest", marks=pytest.mark.integration)],
    indirect=True,
)
def test_b23_consumer_group_refuses_a_classic_member(either: Sut) -> None:
    """B23: A classic join gets INCONSISTENT_GROUP_PROTOCOL; other classic requests get UNKNOWN_MEMBER_ID."""
    consumer_member(either)
    assert refusal(either.call(join(instance_id="i"))) == code.INCONSISTENT_GROUP_PROTOCOL
    assert refusal(either.call(ClassicHeartbeat(member_id="m9", generation=1))) == code.UNKNOWN_MEMBER_ID
    assert either.members() == {"m1"}


def test_b20_emptied_classic_group_becomes_a_consumer_group(either: Sut) -> None:
    """B20: The next member converts an emptied group, and the committed offsets stay."""
    joined = classic_member(either)
    assert either.call(LeaveGroup(members=(LeavingMember(joined.member_id),))) == LeaveResults(codes=(0,))
    expect(Granted, either.call(JOIN))
    assert either.members() == {"m1"}
    assert either.call(READ) == COMMITTED


def test_b20_emptied_consumer_group_becomes_a_classic_group(either: Sut) -> None:
    """B20: The next member converts an emptied group, and the committed offsets stay."""
    consumer_member(either)
    expect(Granted, either.call(Heartbeat(member_id="m1", member_epoch=-1)))
    joined = classic_member(either)
    assert either.members() == {joined.member_id}
    assert either.call(READ) == COMMITTED
