"""A classic member's orders as the coordinator's requests, and answers as the member's events: the wire, without bytes.

What an error code means is `consumer_membership.wire`'s word, so that a simulation keeps the same tables.
"""

from __future__ import annotations

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
from consumer_membership.membership.effects import CommitOffsets, FetchCommitted
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitFailed,
    CommitVerdict,
    StartOffsetsFailed,
    StartOffsetsFetched,
)
from consumer_membership.types import TRANSPORT_CODE, BrokerError
from consumer_membership.wire.verdicts import (
    FetchVerdict,
    broker_error,
    classic_verdict,
    commit_membership,
    commit_verdict,
    fetch_verdict,
)
from consumer_membership.wire.versions import Api
from tests.simulation.classic.exchanges import (
    PROTOCOL_TYPE,
    Alive,
    Answer,
    Beat,
    Commit,
    CommitResults,
    Fetch,
    Fetched,
    Join,
    Joined,
    Leave,
    LeaveResults,
    MemberIdentity,
    MemberIdRequired,
    Offer,
    Request,
    Share,
    Sync,
    Synced,
)
from tests.simulation.classic.rules import MEMBER_ID_REQUIRED
from tests.simulation.rules import Refused

Order: TypeAlias = SendJoin | SendSync | SendClassicHeartbeat | SendClassicLeave | CommitOffsets | FetchCommitted
Event: TypeAlias = ClassicEvent | StartOffsetsFetched | StartOffsetsFailed


def request_of(order: Order) -> Request:
    """What the coordinator sees of an order."""
    match order:
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
                shares=tuple(Share(member_id, partitions) for member_id, partitions in order.assignments.items()),
            )
        case SendClassicHeartbeat():
            return Beat(member_id=order.member_id, instance_id=order.instance_id, generation=order.generation)
        case SendClassicLeave():
            return Leave(members=(MemberIdentity(order.member_id, order.instance_id),))
        case CommitOffsets():
            return Commit(
                member_id=order.member_id,
                instance_id=order.instance_id,
                generation=order.member_epoch,
                offsets=order.offsets,
            )
        case FetchCommitted():
            return Fetch(partitions=order.partitions)
        case _:
            assert_never(order)


def event_of(order: Order, answer: Answer) -> Event:
    """What the member learns by the answer to its order; where nothing is committed a partition starts at 0."""
    match order, answer:
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
            return _committed(order, answer)
        case FetchCommitted(), Fetched():
            offsets = {partition: at.offset if at is not None else 0 for partition, at in answer.offsets.items()}
            return StartOffsetsFetched(attempt=order.attempt, offsets=offsets)
        case SendJoin(), MemberIdRequired():
            return _rejected(order, Refused(MEMBER_ID_REQUIRED), answer.member_id)
        case _, Refused():
            return _rejected(order, answer)
        case _:
            raise TypeError(f"{answer} answers no {order}")


def _committed(order: CommitOffsets, answer: CommitResults) -> ClassicCommitAnswered:
    codes = frozenset(answer.codes.values())
    membership = commit_membership(codes)
    verdict = commit_verdict(codes) if membership is None else CommitVerdict.FINAL
    errors = {partition: broker_error(error) if error else None for partition, error in answer.codes.items()}
    return ClassicCommitAnswered(
        answer=CommitAnswered(commit_id=order.commit_id, verdict=verdict, errors=errors), membership=membership
    )


def _rejected(order: Order, answer: Refused, member_id: str = "") -> Event:
    error = broker_error(answer.code, answer.message)
    match order:
        case SendJoin():
            verdict = classic_verdict(Api.JOIN_GROUP, answer.code)
            return JoinRejected(request_id=order.request_id, verdict=verdict, error=error, member_id=member_id)
        case SendSync():
            return SyncRejected(
                request_id=order.request_id, verdict=classic_verdict(Api.SYNC_GROUP, answer.code), error=error
            )
        case SendClassicHeartbeat():
            verdict = classic_verdict(Api.HEARTBEAT, answer.code)
            return ClassicHeartbeatRejected(request_id=order.request_id, verdict=verdict, error=error)
        case SendClassicLeave():
            return _left(order, error)
        case CommitOffsets():
            return _committed(order, CommitResults(codes=dict.fromkeys(order.offsets, answer.code)))
        case FetchCommitted():
            meaning = fetch_verdict(answer.code)
            return StartOffsetsFailed(
                attempt=order.attempt,
                error=error,
                retriable=meaning is not FetchVerdict.FINAL,
                rediscover=meaning is FetchVerdict.REDISCOVER,
            )
        case _:
            assert_never(order)


def failure_of(order: Order, reason: str) -> Event:
    """What the member learns when no answer came."""
    match order:
        case SendJoin() | SendSync() | SendClassicHeartbeat() | SendClassicLeave():
            return ExchangeFailed(request_id=order.request_id, reason=reason)
        case CommitOffsets():
            return CommitFailed(commit_id=order.commit_id, reason=reason)
        case FetchCommitted():
            error = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=reason)
            return StartOffsetsFailed(attempt=order.attempt, error=error, retriable=True, rediscover=True)
        case _:
            assert_never(order)


def _left(order: SendClassicLeave, error: BrokerError | None) -> ClassicLeft:
    verdict = ClassicVerdict.FATAL if error is None else classic_verdict(Api.LEAVE_GROUP, error.code)
    return ClassicLeft(request_id=order.request_id, error=error, verdict=verdict)
