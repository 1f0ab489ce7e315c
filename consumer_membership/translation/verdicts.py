"""The meaning of each error code: one table per request, and the messages for users.

The tables are total: a code without an entry, known to Kafka or not, has the meaning that the table's function states.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from consumer_membership.membership.classic.exchanges import ClassicVerdict
from consumer_membership.membership.events import CommitVerdict, Verdict
from consumer_membership.translation.remedies import with_remedy
from consumer_membership.types import BrokerError
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import Api

_E = ErrorCode

#: ConsumerGroupHeartbeat. Every other code is FATAL, as in Java's ConsumerHeartbeatRequestManager ("unexpected error").
_HEARTBEAT: Mapping[int, Verdict] = MappingProxyType(
    {
        _E.coordinator_load_in_progress: Verdict.RETRY,
        _E.coordinator_not_available: Verdict.REDISCOVER,
        _E.not_coordinator: Verdict.REDISCOVER,
        _E.unknown_member_id: Verdict.REJOIN,
        _E.fenced_member_epoch: Verdict.REJOIN,
        _E.topic_authorization_failed: Verdict.REPORT,
        _E.unreleased_instance_id: Verdict.UNRELEASED,
        _E.group_id_not_found: Verdict.GROUP_GONE,
    }
)

#: OffsetCommit. Every other code is FINAL, also NONE.
_COMMIT: Mapping[int, CommitVerdict] = MappingProxyType(
    {
        _E.coordinator_load_in_progress: CommitVerdict.RETRY,
        _E.request_timed_out: CommitVerdict.RETRY,
        # The coordinator may not know a topic that was just created.
        _E.unknown_topic_or_partition: CommitVerdict.RETRY_BRIEFLY,
        _E.unknown_topic_id: CommitVerdict.RETRY_BRIEFLY,
        _E.coordinator_not_available: CommitVerdict.REDISCOVER,
        _E.not_coordinator: CommitVerdict.REDISCOVER,
        _E.stale_member_epoch: CommitVerdict.STALE_EPOCH,
    }
)

#: If the partitions of one commit differ, the first of these verdicts applies.
_COMMIT_ORDER = (
    CommitVerdict.REDISCOVER,
    CommitVerdict.STALE_EPOCH,
    CommitVerdict.RETRY,
    CommitVerdict.RETRY_BRIEFLY,
    CommitVerdict.FINAL,
)


class FetchVerdict(Enum):
    """The meaning of an error code in an OffsetFetch response."""

    #: Retry after a backoff with the same coordinator.
    RETRY = "retry"
    #: The coordinator moved: look it up, then retry.
    REDISCOVER = "rediscover"
    #: The broker rejects the request permanently. Never to be read as "no committed offset".
    FINAL = "final"


#: OffsetFetch. Every other code is FINAL.
_FETCH: Mapping[int, FetchVerdict] = MappingProxyType(
    {
        _E.coordinator_load_in_progress: FetchVerdict.RETRY,
        _E.request_timed_out: FetchVerdict.RETRY,
        # A transaction on the partition is open (KIP-447); its end decides which offset counts.
        _E.unstable_offset_commit: FetchVerdict.RETRY,
        # The member's epoch changed while the request was in flight.
        _E.stale_member_epoch: FetchVerdict.RETRY,
        # The member or its group was removed: its next heartbeat reports it, and makes it rejoin.
        _E.unknown_member_id: FetchVerdict.RETRY,
        _E.group_id_not_found: FetchVerdict.RETRY,
        _E.unknown_topic_or_partition: FetchVerdict.RETRY,
        _E.unknown_topic_id: FetchVerdict.RETRY,
        _E.coordinator_not_available: FetchVerdict.REDISCOVER,
        _E.not_coordinator: FetchVerdict.REDISCOVER,
    }
)


#: The coordinator is another broker now, or is not ready.
_ELSEWHERE: Mapping[int, ClassicVerdict] = {
    _E.coordinator_not_available: ClassicVerdict.REDISCOVER,
    _E.not_coordinator: ClassicVerdict.REDISCOVER,
}
#: The member, its generation or its group differ from the coordinator's state.
_OUTDATED: Mapping[int, ClassicVerdict] = {
    _E.unknown_member_id: ClassicVerdict.REJOIN,
    _E.illegal_generation: ClassicVerdict.REJOIN_KEEP_ID,
    _E.rebalance_in_progress: ClassicVerdict.REJOIN_NOW,
}

#: A classic member's requests (rules 4.7). Every other code is FATAL ("unexpected error" in Java's client).
_CLASSIC: Mapping[Api, Mapping[int, ClassicVerdict]] = MappingProxyType(
    {
        Api.JOIN_GROUP: {
            **_ELSEWHERE,
            _E.coordinator_load_in_progress: ClassicVerdict.RETRY,
            _E.unknown_member_id: ClassicVerdict.REJOIN,
            # KIP-792; no released coordinator checks a generation here.
            _E.illegal_generation: ClassicVerdict.REJOIN_KEEP_ID,
            _E.member_id_required: ClassicVerdict.MEMBER_ID_REQUIRED,
            # The coordinator could not write the group's record in time; Java's client joins again immediately.
            _E.rebalance_in_progress: ClassicVerdict.REJOIN_NOW,
        },
        Api.SYNC_GROUP: {
            **_ELSEWHERE,
            **_OUTDATED,
            # Java's client raises "unexpected error" (rules 4.10); the group is available after it is loaded.
            _E.coordinator_load_in_progress: ClassicVerdict.REJOIN_LATER,
        },
        Api.HEARTBEAT: {**_ELSEWHERE, **_OUTDATED, _E.coordinator_load_in_progress: ClassicVerdict.RETRY},
        # For members that remove their stale member.
        Api.LEAVE_GROUP: {
            **_ELSEWHERE,
            _E.coordinator_load_in_progress: ClassicVerdict.RETRY,
            _E.unknown_member_id: ClassicVerdict.REJOIN,
        },
    }
)

#: A classic OffsetCommit, for codes that concern the membership; the first one applies if partitions differ.
_CLASSIC_COMMIT: Mapping[int, ClassicVerdict] = MappingProxyType(
    {
        _E.fenced_instance_id: ClassicVerdict.FATAL,
        _E.group_authorization_failed: ClassicVerdict.FATAL,
        **_OUTDATED,
    }
)


def heartbeat_verdict(code: int) -> Verdict:
    """Return the meaning of a heartbeat's error code for the member; FATAL unless the table has another one."""
    return _HEARTBEAT.get(code, Verdict.FATAL)


def commit_verdict(codes: frozenset[int]) -> CommitVerdict:
    """Return the common meaning of the error codes of a commit's partitions: the verdict that requires most."""
    verdicts = {_COMMIT.get(code, CommitVerdict.FINAL) for code in codes}
    return next((verdict for verdict in _COMMIT_ORDER if verdict in verdicts), CommitVerdict.FINAL)


def fetch_verdict(code: int) -> FetchVerdict:
    """Return the meaning of an OffsetFetch's error code; FINAL unless the table has another one."""
    return _FETCH.get(code, FetchVerdict.FINAL)


def classic_verdict(request: Api, code: int) -> ClassicVerdict:
    """Return the meaning of the error code of a classic member's request; FATAL unless the table has another one."""
    return _CLASSIC[request].get(code, ClassicVerdict.FATAL)


def commit_membership(codes: frozenset[int]) -> ClassicVerdict | None:
    """Return the meaning of a commit's error codes for a classic membership; None: they have none."""
    return next((verdict for code, verdict in _CLASSIC_COMMIT.items() if code in codes), None)


def is_retriable(code: int) -> bool:
    """Return whether Kafka calls the code retriable; for requests other than a member's (Metadata, ...)."""
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False


def error_name(code: int) -> str:
    """Return Kafka's name of the code; a code that is unknown here has its number as its name."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"ERROR_{code}"


def broker_error(code: int, message: str | None = None) -> BrokerError:
    """Return the error with its name and the broker's message."""
    return BrokerError(code=int(code), name=error_name(code), message=message or "")


def group_error(code: int, message: str | None, group_id: str) -> BrokerError:
    """Return the error of any request about a group, with a message that names the resource."""
    if code == _E.group_authorization_failed:
        return broker_error(code, f"Not authorized to access group: {group_id}")
    if code == _E.topic_authorization_failed and not message:
        return broker_error(code, "Topic authorization failed.")
    return broker_error(code, message)


#: Java's message (4.0), so that a search finds both; its advice to use the classic protocol is left out.
_NO_CONSUMER_PROTOCOL = "The cluster does not support the new CONSUMER group protocol."


def heartbeat_error(code: int, message: str | None, group_id: str, *, is_member: bool = False) -> BrokerError:
    """Return the error of a ConsumerGroupHeartbeat, with a message and the remedy.

    `is_member`: the heartbeat's epoch was above 0.
    """
    error = _heartbeat_error(code, message, group_id)
    return with_remedy(Api.CONSUMER_GROUP_HEARTBEAT, error, is_member=is_member)


def _heartbeat_error(code: int, message: str | None, group_id: str) -> BrokerError:
    text = (message or "").strip()
    if code == _E.unsupported_version:
        detail = f" Message of the broker: {text}" if text else ""
        return broker_error(code, _NO_CONSUMER_PROTOCOL + detail)
    if code == _E.invalid_regular_expression:
        explained = f"Invalid RE2J SubscriptionPattern provided in the call to subscribe. {text}"
        return broker_error(code, explained.rstrip())
    if code == _E.group_max_size_reached:
        return broker_error(code, text or "The consumer group has reached its maximum capacity.")
    return group_error(code, text, group_id)
