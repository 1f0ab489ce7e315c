"""The conversion of a member's orders and events to the coordinator's requests and responses loses nothing."""

from __future__ import annotations

import pytest

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership.classic.exchanges import (
    ClassicCommitAnswered,
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ClassicLeft,
    ClassicVerdict,
    ExchangeFailed,
    JoinAnswered,
    JoinRejected,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    SyncAnswered,
    SyncRejected,
)
from consumer_membership.membership.effects import CommitOffsets, FetchCommitted
from consumer_membership.membership.events import CommitFailed, StartOffsetsFailed, StartOffsetsFetched
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.exchanges import Alive, Synced
from consumer_membership.testing.coordinators.member_requests import (
    MemberOrder,
    ResponseEvent,
    event_of,
    failure_of,
    request_of,
)
from consumer_membership.testing.coordinators.rules import Refused
from consumer_membership.types import GroupProtocol, OffsetAndMetadata
from tests.simulation.classic.scene import A, coordinator, group_of

CLASSIC = GroupProtocol.CLASSIC
TOPICS = MemberSubscription(topics=frozenset({"a"}))


def send_join(member_id: str, number: int = 1) -> SendJoin:
    """Return a member's order to join."""
    return SendJoin(
        request_id=number,
        member_id=member_id,
        instance_id=None,
        session_timeout_s=10.0,
        rebalance_timeout_s=60.0,
        protocols=(("range", TOPICS),),
        reason="",
    )


def send_sync(member_id: str = "m", number: int = 1, generation: int = 1) -> SendSync:
    """Return a leader's order to sync."""
    return SendSync(
        request_id=number,
        generation=generation,
        member_id=member_id,
        instance_id=None,
        protocol_name="range",
        assignments={member_id: frozenset(A)},
    )


CLASSIC_HEARTBEAT = SendClassicHeartbeat(request_id=1, generation=1, member_id="m", instance_id=None)
LEAVE = SendClassicLeave(request_id=1, member_id="m", instance_id=None, reason="")
COMMIT = CommitOffsets(
    commit_id=1, offsets={A[0]: OffsetAndMetadata(offset=7)}, member_id="m", member_epoch=1, instance_id=None
)
FETCH = FetchCommitted(attempt=1, partitions=frozenset(A[:1]), member_id="m", member_epoch=1)


def test_orders_and_events_cover_a_member_s_whole_life() -> None:
    """Join, sync, heartbeat, commit, fetch of committed offsets, and leave of a leader convert in both directions."""
    sut = coordinator()
    learnt: list[ResponseEvent] = []

    def order(one: MemberOrder) -> None:
        learnt.extend(event_of(one, given, CLASSIC) for _, given in sut.process(1, "g", request_of(one, CLASSIC), 0.0))

    order(send_join(""))
    (rejected,) = learnt
    assert isinstance(rejected, JoinRejected)
    assert (rejected.verdict, rejected.member_id) == (ClassicVerdict.MEMBER_ID_REQUIRED, "member-1")
    member_id = rejected.member_id
    order(send_join(member_id))
    learnt += [event_of(send_join(member_id), given, CLASSIC) for _, given in sut.pass_time(0.0)]
    order(send_sync(member_id))
    order(SendClassicHeartbeat(request_id=4, generation=1, member_id=member_id, instance_id=None))
    order(CommitOffsets(commit_id=5, offsets=COMMIT.offsets, member_id=member_id, member_epoch=1, instance_id=None))
    order(FETCH)
    order(SendClassicLeave(request_id=6, member_id=member_id, instance_id=None, reason=""))
    assert learnt[1:4] == [
        JoinAnswered(
            request_id=1,
            generation=1,
            member_id=member_id,
            leader_id=member_id,
            protocol_name="range",
            members={member_id: TOPICS},
        ),
        SyncAnswered(request_id=1, assignment=frozenset(A), protocol_name="range"),
        ClassicHeartbeatAnswered(request_id=4),
    ]
    committed = learnt[4]
    assert isinstance(committed, ClassicCommitAnswered)
    assert (committed.answer.errors, committed.membership) == ({A[0]: None}, None)
    assert learnt[5:] == [StartOffsetsFetched(attempt=1, offsets={A[0]: 7}), ClassicLeft(request_id=6)]
    assert group_of(sut).roster.members == {}


def test_refusals_convert_to_the_verdicts_of_the_wire() -> None:
    """Rules 4.7: A refusal converts to the verdict in the tables of `translation.verdicts`."""
    unknown = Refused(code.UNKNOWN_MEMBER_ID)
    events = [event_of(order, unknown, CLASSIC) for order in (send_join("m"), send_sync(), CLASSIC_HEARTBEAT)]
    rejections = [one for one in events if isinstance(one, JoinRejected | SyncRejected | ClassicHeartbeatRejected)]
    assert [one.verdict for one in rejections] == [ClassicVerdict.REJOIN] * 3


def test_refused_commit_converts_to_a_rejoin() -> None:
    """Rules 4.7: A refused commit has failed permanently, and the member joins again."""
    event = event_of(COMMIT, Refused(code.UNKNOWN_MEMBER_ID), CLASSIC)
    assert isinstance(event, ClassicCommitAnswered)
    assert event.membership is ClassicVerdict.REJOIN


def test_missing_assignment_converts_to_an_empty_one_with_a_note() -> None:
    """Rules 4.5: A SyncGroup response without bytes converts to an empty assignment: the leader omitted the member."""
    event = event_of(send_sync(), Synced(assignor="range", assignment=None), CLASSIC)
    assert isinstance(event, SyncAnswered)
    assert (event.assignment, bool(event.note)) == (frozenset(), True)


@pytest.mark.parametrize(
    ("order", "kind"),
    [
        (send_join("m"), ExchangeFailed),
        (send_sync(), ExchangeFailed),
        (CLASSIC_HEARTBEAT, ExchangeFailed),
        (LEAVE, ExchangeFailed),
        (COMMIT, CommitFailed),
        (FETCH, StartOffsetsFailed),
    ],
)
def test_missing_response_converts_to_the_failure_of_each_order(order: MemberOrder, kind: type) -> None:
    """A missing response converts to the failure of its order, because the coordinator may have handled the request."""
    assert isinstance(failure_of(order, "no answer"), kind)


def test_response_to_another_request_raises_an_error() -> None:
    """A response to another kind of request is a bug of the simulation and raises TypeError."""
    with pytest.raises(TypeError):
        event_of(send_join("m"), Alive(), CLASSIC)
