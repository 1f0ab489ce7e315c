"""Translate a member's orders to coordinator requests, and responses to the member's events, without encoding.

`consumer_membership.translation.verdicts` interprets the error codes, so simulations use the same tables as clients.
The requests of commits and offset fetches depend on the member's protocol; every other order determines its protocol.
"""

from __future__ import annotations

import re
from typing import TypeAlias, assert_never

from consumer_membership.membership.classic.exchanges import (
    ClassicCommitAnswered,
    ClassicEvent,
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
from consumer_membership.membership.effects import (
    CommitOffsets,
    DescribeGroup,
    FetchCommitted,
    ReadAnnouncements,
    SendHeartbeat,
    WriteAnnouncement,
)
from consumer_membership.membership.events import (
    AnnouncementNotWritten,
    AnnouncementsNotRead,
    AnnouncementsRead,
    AnnouncementWritten,
    CommitAnswered,
    CommitFailed,
    CommitVerdict,
    GroupDescribed,
    GroupDescribeFailed,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    StartOffsetsFailed,
    StartOffsetsFetched,
)
from consumer_membership.testing.coordinators.exchanges import (
    Alive,
    Answer,
    ClassicHeartbeat,
    Commit,
    CommitResults,
    Describe,
    Described,
    Fetch,
    Fetched,
    Join,
    Joined,
    LeaderShare,
    LeaveGroup,
    LeaveResults,
    LeavingMember,
    MemberIdRequired,
    Offer,
    Request,
    Sync,
    Synced,
)
from consumer_membership.testing.coordinators.rules import (
    GROUP_ID_NOT_FOUND,
    MEMBER_ID_REQUIRED,
    UNRELEASED_INSTANCE_ID,
    Granted,
    Refused,
)
from consumer_membership.translation.announcements import announcement_text, parse_announcement
from consumer_membership.translation.requests import PROTOCOL_TYPE
from consumer_membership.translation.verdicts import (
    FetchVerdict,
    broker_error,
    classic_verdict,
    commit_membership,
    commit_verdict,
    fetch_verdict,
    heartbeat_verdict,
)
from consumer_membership.types import TRANSPORT_CODE, BrokerError, GroupProtocol, OffsetAndMetadata
from consumer_membership.wire.versions import Api

MemberOrder: TypeAlias = (
    SendHeartbeat
    | DescribeGroup
    | SendJoin
    | SendSync
    | SendClassicHeartbeat
    | SendClassicLeave
    | CommitOffsets
    | FetchCommitted
    | ReadAnnouncements
    | WriteAnnouncement
)
ResponseEvent: TypeAlias = (
    ClassicEvent
    | CommitAnswered
    | HeartbeatAnswered
    | HeartbeatRejected
    | HeartbeatFailed
    | GroupDescribed
    | GroupDescribeFailed
    | StartOffsetsFetched
    | StartOffsetsFailed
    | AnnouncementsRead
    | AnnouncementsNotRead
    | AnnouncementWritten
    | AnnouncementNotWritten
)
ORDERS = (
    *(SendHeartbeat, DescribeGroup, SendJoin, SendSync, SendClassicHeartbeat, SendClassicLeave),
    *(CommitOffsets, FetchCommitted, ReadAnnouncements, WriteAnnouncement),
)
_HOLDER = re.compile(r"is owned by (\S+) member")
_CLASSIC = GroupProtocol.CLASSIC


def request_of(order: MemberOrder, protocol: GroupProtocol) -> Request:  # noqa: C901, PLR0911 - one case for each order
    """Return the coordinator request of an order."""
    match order:
        case SendHeartbeat():
            return order.heartbeat
        case DescribeGroup():
            return Describe(with_partitions=order.with_partitions)
        case SendJoin():
            return Join(
                member_id=order.member_id,
                instance_id=order.instance_id,
                offers=tuple(Offer(name, subscription) for name, subscription in order.protocols),
                session_timeout_s=order.session_timeout_s,
                rebalance_timeout_s=order.rebalance_timeout_s,
            )
        case SendSync():
            return Sync(
                member_id=order.member_id,
                instance_id=order.instance_id,
                generation=order.generation,
                assignor=order.protocol_name,
                protocol_type=PROTOCOL_TYPE,
                shares=tuple(LeaderShare(member_id, partitions) for member_id, partitions in order.assignments.items()),
            )
        case SendClassicHeartbeat():
            return ClassicHeartbeat(
                member_id=order.member_id, instance_id=order.instance_id, generation=order.generation
            )
        case SendClassicLeave():
            return LeaveGroup(members=(LeavingMember(order.member_id, order.instance_id),))
        case CommitOffsets():
            return Commit(
                member_id=order.member_id,
                instance_id=order.instance_id if protocol is _CLASSIC else None,
                generation=order.member_epoch,
                offsets=order.offsets,
            )
        case FetchCommitted() if protocol is _CLASSIC:
            return Fetch(partitions=order.partitions)
        case FetchCommitted():
            return Fetch(partitions=order.partitions, member_id=order.member_id, member_epoch=order.member_epoch)
        case ReadAnnouncements():
            return Fetch(partitions=order.partitions)
        case WriteAnnouncement():
            return Commit(
                offsets={order.partition: OffsetAndMetadata(offset=0, metadata=announcement_text(order.announcement))}
            )
        case _:
            assert_never(order)


def event_of(order: MemberOrder, answer: Answer, protocol: GroupProtocol) -> ResponseEvent:  # noqa: C901, PLR0911, PLR0912 - one case for each pair
    """Return the member's event for a response to its order; partitions without a committed offset start at 0."""
    match order, answer:
        case SendHeartbeat(), Granted():
            return HeartbeatAnswered(
                request_id=order.request_id,
                member_epoch=answer.member_epoch,
                heartbeat_interval_s=answer.heartbeat_interval_s,
                assignment=answer.assignment,
            )
        case DescribeGroup(), Described():
            return GroupDescribed(request_id=order.request_id, holders=answer.holders)
        case SendJoin(), Joined():
            return JoinAnswered(
                request_id=order.request_id,
                generation=answer.generation,
                member_id=answer.member_id,
                leader_id=answer.leader_id,
                protocol_name=answer.assignor,
                members=dict(answer.members),
                skip_assignment=answer.skip_assignment,
            )
        case SendSync(), Synced():
            return SyncAnswered(
                request_id=order.request_id,
                assignment=answer.assignment or frozenset(),
                protocol_name=answer.assignor,
                note="" if answer.assignment is not None else "the leader left it out",
            )
        case SendClassicHeartbeat(), Alive():
            return ClassicHeartbeatAnswered(request_id=order.request_id)
        case SendClassicLeave(), LeaveResults():
            (error,) = answer.codes
            return _left(order, broker_error(error) if error else None)
        case CommitOffsets(), CommitResults():
            return _committed(order, answer, protocol)
        case FetchCommitted(), Fetched():
            offsets = {partition: at.offset if at is not None else 0 for partition, at in answer.offsets.items()}
            return StartOffsetsFetched(attempt=order.attempt, offsets=offsets)
        case ReadAnnouncements(), Fetched():
            texts = {partition: at.metadata for partition, at in answer.offsets.items() if at is not None}
            found = {
                partition: one for partition, text in texts.items() if (one := parse_announcement(text)) is not None
            }
            return AnnouncementsRead(request_id=order.request_id, announcements=found)
        case WriteAnnouncement(), CommitResults():
            return _announcement_written(order, answer.codes[order.partition])
        case SendJoin(), MemberIdRequired():
            return _rejected(order, Refused(MEMBER_ID_REQUIRED), protocol, answer.member_id)
        case _, Refused():
            return _rejected(order, answer, protocol)
        case _:
            raise TypeError(f"{answer} answers no {order}")


def failure_of(order: MemberOrder, reason: str) -> ResponseEvent | CommitFailed:
    """Return the member's event for an order that received no response."""
    error = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=reason)
    match order:
        case SendHeartbeat():
            return HeartbeatFailed(request_id=order.request_id, reason=reason)
        case DescribeGroup():
            return GroupDescribeFailed(request_id=order.request_id, error=error)
        case SendJoin() | SendSync() | SendClassicHeartbeat() | SendClassicLeave():
            return ExchangeFailed(request_id=order.request_id, reason=reason)
        case CommitOffsets():
            return CommitFailed(commit_id=order.commit_id, reason=reason)
        case FetchCommitted():
            return StartOffsetsFailed(attempt=order.attempt, error=error, retriable=True, rediscover=True)
        case ReadAnnouncements():
            return AnnouncementsNotRead(request_id=order.request_id, error=error)
        case WriteAnnouncement():
            return AnnouncementNotWritten(request_id=order.request_id, error=error)
        case _:
            assert_never(order)


def _rejected(order: MemberOrder, answer: Refused, protocol: GroupProtocol, member_id: str = "") -> ResponseEvent:  # noqa: C901, PLR0911 - one case for each order
    """Return the member's event for an error response to its order."""
    code, error = answer.code, broker_error(answer.code, answer.message)
    match order:
        case SendHeartbeat():
            holder = _HOLDER.search(answer.message) if code == UNRELEASED_INSTANCE_ID else None
            verdict = heartbeat_verdict(code)
            held_by = holder[1] if holder else None
            return HeartbeatRejected(request_id=order.request_id, verdict=verdict, error=error, holder=held_by)
        case DescribeGroup() if code == GROUP_ID_NOT_FOUND:
            return GroupDescribed(request_id=order.request_id, holders={})
        case DescribeGroup():
            return GroupDescribeFailed(request_id=order.request_id, error=error)
        case SendJoin():
            joining = classic_verdict(Api.JOIN_GROUP, code)
            return JoinRejected(request_id=order.request_id, verdict=joining, error=error, member_id=member_id)
        case SendSync():
            return SyncRejected(request_id=order.request_id, verdict=classic_verdict(Api.SYNC_GROUP, code), error=error)
        case SendClassicHeartbeat():
            beating = classic_verdict(Api.HEARTBEAT, code)
            return ClassicHeartbeatRejected(request_id=order.request_id, verdict=beating, error=error)
        case SendClassicLeave():
            return _left(order, error)
        case CommitOffsets():
            return _committed(order, CommitResults(codes=dict.fromkeys(order.offsets, code)), protocol)
        case FetchCommitted():
            meaning = fetch_verdict(code)
            return StartOffsetsFailed(
                attempt=order.attempt,
                error=error,
                retriable=meaning is not FetchVerdict.FINAL,
                rediscover=meaning is FetchVerdict.REDISCOVER,
            )
        case ReadAnnouncements():
            is_refused = fetch_verdict(code) is FetchVerdict.FINAL
            return AnnouncementsNotRead(request_id=order.request_id, error=error, is_refused=is_refused)
        case WriteAnnouncement():
            return _announcement_written(order, code)
        case _:
            assert_never(order)


def _committed(order: CommitOffsets, answer: CommitResults, protocol: GroupProtocol) -> ResponseEvent:
    codes = frozenset(answer.codes.values())
    membership = commit_membership(codes) if protocol is _CLASSIC else None
    verdict = commit_verdict(codes) if membership is None else CommitVerdict.FINAL
    errors = {partition: broker_error(error) if error else None for partition, error in answer.codes.items()}
    answered = CommitAnswered(commit_id=order.commit_id, verdict=verdict, errors=errors)
    return ClassicCommitAnswered(answer=answered, membership=membership) if protocol is _CLASSIC else answered


def _announcement_written(order: WriteAnnouncement, code: int) -> AnnouncementWritten | AnnouncementNotWritten:
    if not code:
        return AnnouncementWritten(request_id=order.request_id)
    is_refused = commit_verdict(frozenset({code})) is CommitVerdict.FINAL
    return AnnouncementNotWritten(request_id=order.request_id, error=broker_error(code), is_refused=is_refused)


def _left(order: SendClassicLeave, error: BrokerError | None) -> ClassicLeft:
    verdict = ClassicVerdict.FATAL if error is None else classic_verdict(Api.LEAVE_GROUP, error.code)
    return ClassicLeft(request_id=order.request_id, error=error, verdict=verdict)
