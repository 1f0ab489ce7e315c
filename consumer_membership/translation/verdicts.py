"""What each error code means: one table for each request, and the words for the user.

The tables are total: a code that they lack, known to Kafka or not, has the meaning that the table's function states.
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

#: OffsetCommit. Every other code is FINAL, NONE too.
_COMMIT: Mapping[int, CommitVerdict] = MappingProxyType(
    {
        _E.coordinator_load_in_progress: CommitVerdict.RETRY,
        _E.request_timed_out: CommitVerdict.RETRY,
        # The coordinator may not have heard of a topic that was just made.
        _E.unknown_topic_or_partition: CommitVerdict.RETRY_BRIEFLY,
        _E.unknown_topic_id: CommitVerdict.RETRY_BRIEFLY,
        _E.coordinator_not_available: CommitVerdict.REDISCOVER,
        _E.not_coordinator: CommitVerdict.REDISCOVER,
        _E.stale_member_epoch: CommitVerdict.STALE_EPOCH,
    }
)

#: Which verdict counts when the partitions of one commit differ, the first before the others.
_COMMIT_ORDER = (
    CommitVerdict.REDISCOVER,
    CommitVerdict.STALE_EPOCH,
    CommitVerdict.RETRY,
    CommitVerdict.RETRY_BRIEFLY,
    CommitVerdict.FINAL,
)


class FetchVerdict(Enum):
    """What an error code in an OffsetFetch answer means."""

    #: Try again after a backoff, with the same coordinator.
    RETRY = "retry"
    #: The coordinator is elsewhere: look it up, then try again.
    REDISCOVER = "rediscover"
    #: The broker refuses for good. Never to be read as "no offset was committed".
    FINAL = "final"


#: OffsetFetch. Every other code is FINAL.
_FETCH: Mapping[int, FetchVerdict] = MappingProxyType(
    {
        _E.coordinator_load_in_progress: FetchVerdict.RETRY,
        _E.request_timed_out: FetchVerdict.RETRY,
        # A transaction on the partition is open (KIP-447); its end decides which offset counts.
        _E.unstable_offset_commit: FetchVerdict.RETRY,
        # The member's epoch moved on while the request was under way.
        _E.stale_member_epoch: FetchVerdict.RETRY,
        # The member was removed, or its group: its next heartbeat says so, and is what it rejoins by.
        _E.unknown_member_id: FetchVerdict.RETRY,
        _E.group_id_not_found: FetchVerdict.RETRY,
        _E.unknown_topic_or_partition: FetchVerdict.RETRY,
        _E.unknown_topic_id: FetchVerdict.RETRY,
        _E.coordinator_not_available: FetchVerdict.REDISCOVER,
        _E.not_coordinator: FetchVerdict.REDISCOVER,
    }
)


#: The coordinator is another broker by now, or not ready to say.
_ELSEWHERE: Mapping[int, ClassicVerdict] = {
    _E.coordinator_not_available: ClassicVerdict.REDISCOVER,
    _E.not_coordinator: ClassicVerdict.REDISCOVER,
}
#: The member, its generation or its group are not what the coordinator has.
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
            _E.member_id_required: ClassicVerdict.MEMBER_ID_REQUIRED,
            # The coordinator could not write the group down in time; Java's client joins again at once.
            _E.rebalance_in_progress: ClassicVerdict.REJOIN_NOW,
        },
        Api.SYNC_GROUP: {
            **_ELSEWHERE,
            **_OUTDATED,
            # Java's client raises "unexpected error" (rules 4.10); the group is there once it is loaded.
            _E.coordinator_load_in_progress: ClassicVerdict.REJOIN_LATER,
        },
        Api.HEARTBEAT: {**_ELSEWHERE, **_OUTDATED, _E.coordinator_load_in_progress: ClassicVerdict.RETRY},
        # For who has its stale member removed.
        Api.LEAVE_GROUP: {
            **_ELSEWHERE,
            _E.coordinator_load_in_progress: ClassicVerdict.RETRY,
            _E.unknown_member_id: ClassicVerdict.REJOIN,
        },
    }
)

#: A classic OffsetCommit, where it says something of the membership; the first counts where partitions differ.
_CLASSIC_COMMIT: Mapping[int, ClassicVerdict] = MappingProxyType(
    {
        _E.fenced_instance_id: ClassicVerdict.FATAL,
        _E.group_authorization_failed: ClassicVerdict.FATAL,
        **_OUTDATED,
    }
)


def heartbeat_verdict(code: int) -> Verdict:
    """What a heartbeat's error code means for the member; FATAL unless the table says otherwise."""
    return _HEARTBEAT.get(code, Verdict.FATAL)


def commit_verdict(codes: frozenset[int]) -> CommitVerdict:
    """What the error codes of a commit's partitions mean together: the verdict that asks for most."""
    verdicts = {_COMMIT.get(code, CommitVerdict.FINAL) for code in codes}
    return next((verdict for verdict in _COMMIT_ORDER if verdict in verdicts), CommitVerdict.FINAL)


def fetch_verdict(code: int) -> FetchVerdict:
    """What an OffsetFetch's error code means; FINAL unless the table says otherwise."""
    return _FETCH.get(code, FetchVerdict.FINAL)


def classic_verdict(request: Api, code: int) -> ClassicVerdict:
    """What the error code of a classic member's request means; FATAL unless the table says otherwise."""
    return _CLASSIC[request].get(code, ClassicVerdict.FATAL)


def commit_membership(codes: frozenset[int]) -> ClassicVerdict | None:
    """What the error codes of a commit's partitions say of a classic membership; None: nothing."""
    return next((verdict for code, verdict in _CLASSIC_COMMIT.items() if code in codes), None)


def is_retriable(code: int) -> bool:
    """Whether Kafka calls the code retriable; for requests that are not a member's own (Metadata, ListOffsets, ...)."""
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False


def error_name(code: int) -> str:
    """Kafka's name of the code; a code that is not known here is called by its number."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"ERROR_{code}"


def broker_error(code: int, message: str | None = None) -> BrokerError:
    """The error with its name and the broker's words."""
    return BrokerError(code=int(code), name=error_name(code), message=message or "")


def group_error(code: int, message: str | None, group_id: str) -> BrokerError:
    """The error of any request about a group, in words that name the thing."""
    if code == _E.group_authorization_failed:
        return broker_error(code, f"Not authorized to access group: {group_id}")
    if code == _E.topic_authorization_failed and not message:
        return broker_error(code, "Topic authorization failed.")
    return broker_error(code, message)


#: Java's words (4.0), so that operators find both; its advice to go back to the classic protocol is left out.
_NO_CONSUMER_PROTOCOL = "The cluster does not support the new CONSUMER group protocol."


def heartbeat_error(code: int, message: str | None, group_id: str, *, is_member: bool = False) -> BrokerError:
    """The error of a ConsumerGroupHeartbeat, in words that name the thing and the remedy.

    `is_member`: the heartbeat's epoch was above 0.
    """
    error = _heartbeat_error(code, message, group_id)
    return with_remedy(Api.CONSUMER_GROUP_HEARTBEAT, error, is_member=is_member)


def _heartbeat_error(code: int, message: str | None, group_id: str) -> BrokerError:
    words = (message or "").strip()
    if code == _E.unsupported_version:
        said = f" The broker said: {words}" if words else ""
        return broker_error(code, _NO_CONSUMER_PROTOCOL + said)
    if code == _E.invalid_regular_expression:
        text = f"Invalid RE2J SubscriptionPattern provided in the call to subscribe. {words}"
        return broker_error(code, text.rstrip())
    if code == _E.group_max_size_reached:
        return broker_error(code, words or "The consumer group has reached its maximum capacity.")
    return group_error(code, words, group_id)
