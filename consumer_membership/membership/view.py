"""What people and programs may see of a member: an immutable picture, taken after each event."""

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
    """What went wrong last, when, and when the member recovered from it (None: it has not).

    `topic`: the subscribed topic that the error is about, None where it is about the member or its brokers.
    """

    error: BrokerError
    at: Instant
    topic: str | None = None
    over_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipView:
    """One member at one moment.

    `owned` maps each owned partition to the member epoch at which it was taken. `target` is what the coordinator last
    assigned (partitions whose topic id has no name yet are counted in `unresolved`). `waits_for` is what the member,
    or the consumption of its partitions, waits for (None: nothing); `waits_for_detail` has the names and errors that
    belong to it, `waits_since` is when the wait began and `waits_until` when it ends at the latest, if that is known.
    Times are of the monotonic clock (`time.monotonic`).
    `member_epoch` (in a classic group the generation) is 0 and nothing is owned while the member is not in its group:
    from the moment that it knows of its end, for a replacement may have the very epoch that it had.
    `transitions` are the latest ones, oldest first. `session_timeout_s` is the group's session timeout where the broker
    tells it, and a member with an instance id asks: how long it may be away before its partitions go to others
    (KIP-345).
    `last_error` is what went wrong last, `last_error_at` when; `last_error_over_at` is when the member recovered from
    it, None while it has not. `present_error` is the error that still lasts.
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
    #: The subscribed names that no topic has, and the patterns that match none, when that was last looked for.
    missing_topics: frozenset[str] = frozenset()
    #: Why the member uses `protocol`: the configuration, and the coordinator's response to it.
    protocol_reason: str = ""
    #: The type of the group, as the coordinator reported it at the join; None while it is not a member. A group of the
    #: consumer protocol may hold classic members, too: `protocol` is what this one uses.
    group_protocol: GroupProtocol | None = None
    #: Until when the owned partitions are certainly owned, by the coordinator's last answer; afterwards their records
    #: are withheld until the coordinator has answered again. None: it owns nothing that a session keeps.
    lease_until: Instant | None = None
    last_error_at: Instant | None = None
    last_error_over_at: Instant | None = None
    waits_for_detail: str = ""

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
        """Whether a poll with a subscription is what the member waits for: no rebalance starts outside poll."""
        return self.state in (MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.FATAL)

    def lease_expired(self, now: Instant) -> bool:
        """Whether records of what the member owns may belong to another member by now (`lease_until`)."""
        return self.lease_until is not None and now >= self.lease_until

    @property
    def is_settled(self) -> bool:
        """Whether the member has taken over what it was assigned, so that nothing of it is on its way."""
        return self.state in (MemberState.ACK, MemberState.STABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolView:
    """What a member's protocol adds to its `MembershipView`; the fields that have its names are explained there.

    `wait` None: the protocol waits for nothing of its own.
    """

    member_id: str
    instance_id: str | None
    member_epoch: int
    wait: Wait | None
    waits_until: Instant | None
    heartbeat_interval_s: float | None
    session_timeout_s: float | None
    lease_until: Instant | None


def ended(view: MembershipView, error: BrokerError, now: Instant) -> MembershipView:
    """The member of this picture after an end that its state machine has not seen: FATAL, and not in its group."""
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
    )
