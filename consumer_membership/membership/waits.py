"""What a member can wait for: the values of `MembershipView.waits_for`.

The set is closed, and the values are part of the API: programs may compare with them, and
`docs/reference/waits-for.md` explains each one. Names, ids and errors that belong to a wait are in its detail, so that
a value never changes with them.
"""

from __future__ import annotations

from enum import StrEnum

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import Instant


class WaitsFor(StrEnum):
    """What a member waits for. `str()` and JSON give the value, for example `"group coordinator"`."""

    #: `bootstrap.servers` is not set, so the consumer cannot connect.
    BOOTSTRAP_SERVERS = "bootstrap.servers"
    #: The lookup of the group coordinator.
    COORDINATOR = "group coordinator"
    #: The response to the request that joins the group.
    JOIN_RESPONSE = "join response"
    #: A member epoch above that of the join, for the tokens of leases.
    LARGER_EPOCH = "larger epoch"
    #: The response to the request that leaves the group.
    LEAVE_RESPONSE = "leave response"
    #: A confirmation of the session; buffered records are withheld until then.
    HEARTBEAT_RESPONSE = "heartbeat response"
    #: A connection of librdkafka to a broker, to fetch records.
    BROKER_CONNECTION = "broker connection"
    #: The next poll, in which the member joins its group.
    POLL_TO_JOIN = "poll to join"
    #: The next poll, in which the member rejoins after it exceeded `max.poll.interval.ms`.
    POLL_TO_REJOIN = "poll to rejoin"
    #: The next poll, in which the partitions to revoke are paused.
    POLL_TO_REVOKE = "poll to revoke"
    #: The next poll, which calls the callback again that raised an exception.
    POLL_TO_RETRY_CALLBACK = "poll to retry callback"
    #: The end of the application's `on_revoke`.
    ON_REVOKE = "on_revoke"
    #: The end of the application's `on_assign`.
    ON_ASSIGN = "on_assign"
    #: The end of the application's `on_lost`.
    ON_LOST = "on_lost"
    #: The commit of the positions of revoked partitions, before `on_revoke` is called.
    COMMIT_BEFORE_REVOKE = "commit before on_revoke"
    #: The commit of offsets that `on_revoke` stored.
    COMMIT_AFTER_REVOKE = "commit after on_revoke"
    #: The committed offsets of newly assigned partitions.
    COMMITTED_OFFSETS = "committed offsets"
    #: The names of assigned topic ids, from Metadata.
    TOPIC_METADATA = "topic metadata"
    #: The list of all topics, to match a subscribed pattern (classic protocol).
    TOPIC_LIST = "topic list"
    #: Subscribed topics that do not exist or cannot be described; the detail names them.
    SUBSCRIBED_TOPICS = "subscribed topics"
    #: Partitions; the group has assigned none to this member.
    PARTITIONS = "partitions"
    #: The end of another member that holds `group.instance.id`; the detail names it.
    INSTANCE_ID = "group.instance.id"
    #: A free id of `group.instance.id.pool`.
    INSTANCE_ID_POOL = "group.instance.id.pool"
    #: The holder of an instance id, which hands the id over to this member; the detail names it.
    HAND_OVER = "hand-over"
    #: The other members of the group, which have to join the rebalance (classic protocol).
    OTHER_MEMBERS = "other members to join"
    #: The assignment, which the leader of the group computes (classic protocol).
    LEADER_ASSIGNMENT = "assignment by the leader"
    #: The end of `assign()` of this process's assignor: this member is the leader (classic protocol).
    ASSIGNOR_ASSIGN = "assignor assign"
    #: The end of `on_assignment()` of this process's assignor (classic protocol).
    ASSIGNOR_ON_ASSIGNMENT = "assignor on_assignment"

    @property
    def is_application(self) -> bool:
        """Whether the application ends the wait: with a poll, or by returning from a callback."""
        return self in _OF_APPLICATION


_OF_APPLICATION = frozenset(
    {
        WaitsFor.POLL_TO_JOIN,
        WaitsFor.POLL_TO_REJOIN,
        WaitsFor.POLL_TO_REVOKE,
        WaitsFor.POLL_TO_RETRY_CALLBACK,
        WaitsFor.ON_REVOKE,
        WaitsFor.ON_ASSIGN,
        WaitsFor.ON_LOST,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What is waited for, since when, and the names and errors that belong to it ("" if there are none)."""

    what: WaitsFor
    since: Instant | None = None
    detail: str = ""


def described(waits_for: StrEnum | None, detail: str) -> str | None:
    """Give a wait in one line, as `VALUE: DETAIL`; None if nothing is waited for."""
    if waits_for is None:
        return None
    return f"{waits_for}: {detail}" if detail else str(waits_for)
