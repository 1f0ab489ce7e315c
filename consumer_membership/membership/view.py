"""The view of a member for people and programs: an immutable snapshot, taken after each event."""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.light_dataclasses import dataclass, replace
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.waits import Wait, WaitsFor, described
from consumer_membership.types import JOIN_EPOCH, BrokerAddress, BrokerError, GroupProtocol, Instant, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of state, when it happened (monotonic clock) and why."""

    at: Instant
    old: MemberState
    new: MemberState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastError:
    """The last error, when it happened, and when the member recovered from it (None: it has not).

    `topic`: the subscribed topic of the error; None if it is about the member or its brokers.
    """

    error: BrokerError
    at: Instant
    topic: str | None = None
    over_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipView:
    """One member at one moment: an immutable snapshot. Times are of the monotonic clock (`time.monotonic`), in seconds.

    `owned` maps each owned partition to the member epoch at which it was assigned. `target` is the coordinator's latest
    assignment (`unresolved` counts its partitions whose topic id has no known name yet).

    `waits_for` is what the member, or the consumption of its partitions, waits for (None: nothing); `waits_for_detail`
    has the names and errors that belong to it, `waits_since` is when the wait began and `waits_until` when it ends at
    the latest, if that is known.

    `member_epoch` is the KIP-848 epoch, in a classic group the generation. It is 0 and `owned` is empty from the moment
    at which the member knows that it is not in its group: a replacement may have the same epoch.

    `transitions` are the latest changes of state, oldest first. `session_timeout_s` is the group's session timeout if
    the broker reports it, which members with an instance id or with leases request: how long a member may be
    away before its partitions are assigned to other members (KIP-345).

    `last_error` is the last error, `last_error_at` when it happened; `last_error_over_at` is when the member recovered
    from it, None while it has not. `present_error` is the error that still lasts.
    """

    state: MemberState
    protocol: GroupProtocol
    group_id: str
    member_id: str
    instance_id: str | None
    member_epoch: int
    owned: Mapping[TopicPartition, int]
    target: frozenset[TopicPartition]
    unresolved: int
    pending_revocation: frozenset[TopicPartition]
    waits_for: WaitsFor | None
    waits_since: Instant | None
    waits_until: Instant | None
    coordinator: BrokerAddress | None
    heartbeat_interval_s: float | None
    session_timeout_s: float | None
    last_heartbeat_at: Instant | None
    last_error: BrokerError | None
    transitions: tuple[Transition, ...]
    #: The subscribed names that no topic has, and the patterns that match none, at the latest check.
    missing_topics: frozenset[str] = frozenset()
    #: Why the member uses `protocol`: the configuration, and the coordinator's response to it.
    protocol_reason: str = ""
    #: The type of the group, as the coordinator reported it at the join; None while it is not a member. A group of the
    #: consumer protocol may also have classic members: `protocol` is what this member uses.
    group_protocol: GroupProtocol | None = None
    #: Until when the owned partitions are certainly owned, by the coordinator's latest response; afterwards their
    #: records are withheld until the coordinator has responded again. None: it owns no partition that a session
    #: protects. A suspension of the machine shortens it as soon as the member notices.
    lease_until: Instant | None = None
    #: Whether the lease counts an assumed session, because the broker does not report the session timeout.
    is_session_assumed: bool = False
    last_error_at: Instant | None = None
    last_error_over_at: Instant | None = None
    waits_for_detail: str = ""
    #: Whether the application is ready for the partitions that this member is about to take over from another one.
    is_warm: bool = False
    #: Whether the epochs in `owned` are larger than those of all earlier owners of the partitions, as a fencing token
    #: has to be (`ownership.lease.enable`). A classic member with an instance id may continue at the generation of the
    #: process that it replaces.
    has_tokens: bool = True

    @property
    def waits_for_text(self) -> str | None:
        """`waits_for` and its detail in one line, `VALUE: DETAIL`; None if the member waits for nothing."""
        return described(self.waits_for, self.waits_for_detail)

    @property
    def present_error(self) -> BrokerError | None:
        """The last error, unless the member has recovered from it."""
        return self.last_error if self.last_error_over_at is None else None

    @property
    def needs_poll(self) -> bool:
        """Whether the member waits for a poll with a subscription: no rebalance starts outside poll."""
        return self.state in (MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.FATAL)

    def lease_expired(self, now: Instant) -> bool:
        """Return whether another member may own the partitions now (`lease_until`): their records are withheld then."""
        return self.lease_until is not None and now >= self.lease_until

    @property
    def is_settled(self) -> bool:
        """Whether the member has applied its assignment, so that no change is in progress."""
        return self.state in (MemberState.ACK, MemberState.STABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolView:
    """The part of a `MembershipView` that the protocol provides; the fields with equal names are explained there.

    `wait` None: the protocol waits for nothing.
    """

    member_id: str
    instance_id: str | None
    member_epoch: int
    wait: Wait | None
    waits_until: Instant | None
    heartbeat_interval_s: float | None
    session_timeout_s: float | None
    lease_until: Instant | None
    is_session_assumed: bool = False
    is_warm: bool = False
    has_tokens: bool = True


def ended(view: MembershipView, error: BrokerError, now: Instant) -> MembershipView:
    """Return this view after an end that its state machine has not processed: FATAL, and not in its group."""
    end = Transition(at=now, old=view.state, new=MemberState.FATAL, reason=str(error))
    return replace(
        view,
        state=MemberState.FATAL,
        member_epoch=JOIN_EPOCH,
        owned={},
        target=frozenset(),
        unresolved=0,
        pending_revocation=frozenset(),
        waits_for=None,
        waits_for_detail="",
        waits_since=None,
        waits_until=None,
        last_error=error,
        last_error_at=now,
        last_error_over_at=None,
        transitions=(*view.transitions, end),
        group_protocol=None,
        lease_until=None,
        is_session_assumed=False,
        is_warm=False,
    )
