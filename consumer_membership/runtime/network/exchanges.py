"""A member's requests to its coordinator, of both protocols: one table, from each effect to the event that answers it.

Each request is tried once, because the core decides when to retry. No error of a broker or of the network is raised:
each becomes an event for the core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from consumer_membership.errors import TransportError, UnsupportedProtocolError
from consumer_membership.light_dataclasses import dataclass, replace
from consumer_membership.membership.classic.exchanges import (
    ClassicEffect,
    ClassicEvent,
    ClassicHeartbeatRejected,
    ClassicLeft,
    ClassicVerdict,
    ExchangeFailed,
    JoinRejected,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    SyncRejected,
)
from consumer_membership.membership.effects import CommitOffsets, SendHeartbeat
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitFailed,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Verdict,
)
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.connections import Purpose
from consumer_membership.translation import answers, classic_answers, requests
from consumer_membership.translation.verdicts import broker_error
from consumer_membership.types import TRANSPORT_CODE, BrokerAddress, BrokerError
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import BrokerVersions

#: The effects that are requests to the coordinator.
CoordinatorEffect: TypeAlias = SendHeartbeat | CommitOffsets | ClassicEffect
#: The events that answer them.
ExchangeOutcome: TypeAlias = HeartbeatAnswered | HeartbeatRejected | HeartbeatFailed | CommitAnswered | ClassicEvent

#: Why no request can be sent before a lookup.
NOT_KNOWN = "the coordinator is unknown"
#: After this time without a response, the coordinator is looked up again; well below a session of 45 s.
REQUEST_TIMEOUT_S = 10.0
#: A join may take this much longer than the rebalance timeout: Java's JOIN_GROUP_TIMEOUT_LAPSE.
JOIN_LAPSE_S = 5.0


def unreached(reason: object) -> BrokerError:
    """Return the error that librdkafka reports for a broker that did not respond."""
    return BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=str(reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """Turns one effect into a request, and each outcome of the request into an event; the effects' types are the keys.

    Joins and syncs have their own connection, because a broker answers no other request on it meanwhile. A commit or a
    leave that is not answered in time does not close its connection, which the heartbeats share.
    """

    build: Callable[[BrokerVersions, str, Any], Call]
    read: Callable[[Message, str, Any], ExchangeOutcome]
    #: The broker lacks the API, or a version that is new enough: a rejection with UNSUPPORTED_VERSION.
    unsupported: Callable[[Any, BrokerError], ExchangeOutcome]
    failed: Callable[[Any, str], ExchangeOutcome]
    purpose: Purpose = Purpose.GROUP
    ends_connection: bool = True


def _not_sent(order: SendJoin | SendSync | SendClassicHeartbeat | SendClassicLeave, reason: str) -> ExchangeFailed:
    return ExchangeFailed(request_id=order.request_id, reason=reason)


def _rejected(
    kind: type[JoinRejected | SyncRejected | ClassicHeartbeatRejected],
) -> Callable[[SendJoin | SendSync | SendClassicHeartbeat, BrokerError], ExchangeOutcome]:
    return lambda order, error: kind(request_id=order.request_id, verdict=ClassicVerdict.FATAL, error=error)


_COMMIT: Final = _Exchange(
    build=requests.offset_commit,
    read=lambda message, group_id, order: answers.offset_commit(message, order.commit_id, group_id, order.offsets),
    unsupported=lambda order, error: CommitFailed(commit_id=order.commit_id, reason=error.message, retriable=False),
    failed=lambda order, reason: CommitFailed(commit_id=order.commit_id, reason=reason),
    ends_connection=False,
)
#: A classic member's commit, with its generation in `member_epoch`.
_CLASSIC_COMMIT: Final = replace(
    _COMMIT,
    build=lambda versions, group_id, order: requests.offset_commit(versions, group_id, order, is_classic=True),
    read=classic_answers.offset_commit,
)

_EXCHANGES: Mapping[type[CoordinatorEffect], _Exchange] = MappingProxyType(
    {
        SendHeartbeat: _Exchange(
            build=lambda versions, group_id, order: requests.consumer_group_heartbeat(
                versions, group_id, order.heartbeat
            ),
            read=lambda message, group_id, order: answers.consumer_group_heartbeat(
                message, order.request_id, group_id, order.heartbeat.member_epoch
            ),
            unsupported=lambda order, error: HeartbeatRejected(
                request_id=order.request_id, verdict=Verdict.FATAL, error=error
            ),
            failed=lambda order, reason: HeartbeatFailed(request_id=order.request_id, reason=reason),
        ),
        CommitOffsets: _COMMIT,
        SendJoin: _Exchange(
            build=requests.join_group,
            read=classic_answers.join_group,
            unsupported=_rejected(JoinRejected),
            failed=_not_sent,
            purpose=Purpose.REBALANCE,
        ),
        SendSync: _Exchange(
            build=requests.sync_group,
            read=classic_answers.sync_group,
            unsupported=_rejected(SyncRejected),
            failed=_not_sent,
            purpose=Purpose.REBALANCE,
        ),
        SendClassicHeartbeat: _Exchange(
            build=requests.classic_heartbeat,
            read=classic_answers.heartbeat,
            unsupported=_rejected(ClassicHeartbeatRejected),
            failed=_not_sent,
        ),
        SendClassicLeave: _Exchange(
            build=requests.leave_group,
            read=classic_answers.leave_group,
            unsupported=lambda order, error: ClassicLeft(request_id=order.request_id, error=error),
            failed=_not_sent,
            ends_connection=False,
        ),
    }
)


async def exchange(
    cluster: Cluster,
    coordinator: BrokerAddress | None,
    group_id: str,
    order: CoordinatorEffect,
    timeout_s: float,
    *,
    is_classic: bool = False,
    on_write: Callable[[], None] = lambda: None,
) -> ExchangeOutcome:
    """Send this request once and return its outcome; `on_write` is called right before it is written.

    `is_classic`: the member uses the classic protocol, which matters to a commit. A join is answered when the group has
    joined, and may take max(`timeout_s`, the rebalance timeout + 5 s).
    """
    way = _CLASSIC_COMMIT if is_classic and isinstance(order, CommitOffsets) else _EXCHANGES[type(order)]
    if coordinator is None:
        return way.failed(order, NOT_KNOWN)
    is_sent = False

    def write() -> None:
        nonlocal is_sent
        on_write()
        is_sent = True

    answer_s = timeout_s
    if isinstance(order, SendJoin):
        answer_s = max(timeout_s, order.rebalance_timeout_s + JOIN_LAPSE_S)
        # For OffsetFetch, which follows as soon as the group has joined.
        cluster.prepare(coordinator)
    try:
        message = await cluster.coordinator_call(
            coordinator,
            lambda versions: way.build(versions, group_id, order),
            timeout_s,
            purpose=way.purpose,
            answer_s=answer_s,
            ends_connection=way.ends_connection,
            on_write=write,
        )
    except UnsupportedProtocolError as error:
        return way.unsupported(order, broker_error(ErrorCode.unsupported_version, str(error)))
    except TransportError as error:
        failed = way.failed(order, str(error))
        return replace(failed, is_sent=is_sent) if isinstance(failed, HeartbeatFailed) else failed
    return way.read(message, group_id, order)
