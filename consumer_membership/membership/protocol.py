"""The interface between a member and its protocol: `MemberProtocol`, with its contract.

`member.MemberCore` handles the events that both protocols share, and knows when a member joins, is refused, is fenced
and leaves. Its protocol sends the requests for that and interprets the responses: `consumer.protocol.ConsumerProtocol`
(KIP-848) and `classic.protocol.ClassicProtocol`. **The contract:**

1. The member calls, the protocol answers: it never calls the member. It returns the end or interruption of the
   membership as a `MembershipEnd`, as its last action for an event, and the member acts on it before anything else.
2. A protocol is the only writer of its state, its member id, its epoch and its requests. It changes the shared parts by
   their methods alone; it does not change the subscription, the application's polls and the course of the leave.
3. It emits requests to the coordinator and to Metadata, and warnings. It never emits the member's effects:
   fatal errors, `LeaveCompleted`, steps (except for a reconciliation that it begins).
4. It reads no clock: `EventContext.now` is the moment of the event, and `next_deadline` that of the next call.
5. While it is out of its group (UNSUBSCRIBED, FENCED, STALE, FATAL) it has no epoch and sends nothing.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.classic.exchanges import (
    ClassicAnswer,
    ClassicEffect,
    ClassicEvent,
    LeaderEffect,
    LeaderEvent,
)
from consumer_membership.membership.effects import CommitIdentity, Effect, ProtocolChosen
from consumer_membership.membership.events import ConsumerEvent, Event, Polled, Subscribed
from consumer_membership.membership.states import MemberState, Trigger
from consumer_membership.membership.view import ProtocolView
from consumer_membership.types import BrokerError, GroupProtocol, Instant, TopicPartition

#: The events and effects of a member, of either protocol.
GroupEvent: TypeAlias = Event | ClassicEvent | LeaderEvent
GroupEffect: TypeAlias = Effect | ClassicEffect | LeaderEffect | ProtocolChosen
#: The events that each protocol handles itself.
ProtocolEvent: TypeAlias = ConsumerEvent | ClassicAnswer | LeaderEvent

#: How long a session lasts if the broker did not report it: the default of both protocols, in Kafka and librdkafka.
DEFAULT_SESSION_S = 45.0
#: Added to the session timeout: the coordinator removes a member when its timer ends, not before.
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Fatal:
    """The coordinator refuses the member, and no retry helps."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class Fenced:
    """The coordinator fenced the member: its partitions are lost, and it joins again."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class Left:
    """The leave has ended, well or not; the reason is for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """A successor takes the instance id over: release everything as in a leave, and leave the id to it."""


MembershipEnd: TypeAlias = Fatal | Fenced | Left | HandOver


class MemberProtocol(Protocol):
    """One protocol as its member uses it; the module's text has the contract."""

    # ---- what happens ----

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Handle an event of this protocol; one of another protocol answers an earlier request, and is dropped."""

    def subscribed(self, event: Subscribed) -> None:
        """Handle a new subscription, which `TopicWatch` has already."""

    def polled(self, event: Polled) -> None:
        """Handle a poll; a member that was out of its group has just begun to join."""

    def topics_looked_up(self) -> None:
        """Handle a new list of topics in `TopicWatch`."""

    def leave_requested(self) -> None:
        """Handle a leave of the application; the member has begun to leave, or was out of its group."""

    def suspended(self, seconds: float) -> None:
        """Handle a suspension: the coordinator's clock continued for this time, this member's clock did not."""

    def join(self, trigger: Trigger, reason: str) -> None:
        """Begin to join: from UNSUBSCRIBED, STALE or FATAL at a poll, from FENCED after on_lost."""

    def prepare(self) -> MembershipEnd | None:
        """Time passed in the group: request the data that is needed before anything can be sent."""

    def advance(self) -> MembershipEnd | None:
        """Time passed: continue the reconciliation or the rebalance, and send due requests."""

    def leave(self, gives_up_at: Instant) -> Left | None:
        """Everything was released: send the leave (`Leave.send`), or end if there is nothing to send.

        It is called again with each event until it was sent; `gives_up_at` is until when the coordinator is waited for.
        """

    def resign(self) -> None:
        """Send the leave without waiting for the response: the application does not poll."""

    def handed_over(self, reason: str) -> None:
        """Join again after the successor, for which the instance id is released now. Only after a `HandOver`."""

    def begin_leaving(self, reason: str) -> None:
        """Go to UNSUBSCRIBING; the member stays in its group until it has released everything."""

    def end(self, trigger: Trigger, reason: str) -> None:
        """Go to UNSUBSCRIBED, FENCED, STALE or FATAL: forget the epoch, and every request that waits for a response."""

    # ---- questions ----

    def ignores(self, event: GroupEvent) -> bool:
        """Return whether the state drops this event unread, also for the shared parts."""

    def refused_join(self, event: GroupEvent) -> BrokerError | None:
        """Return the error with which the coordinator refuses this member's join; None for other events."""

    @property
    def public_state(self) -> MemberState:
        """The state as the view shows it, for both protocols."""

    @property
    def is_handing_over(self) -> bool:
        """Whether the member releases its instance id for a successor, and not because the application leaves."""

    @property
    def retries_at_poll(self) -> bool:
        """Whether the next poll repeats a callback of this protocol that raised."""

    @property
    def identity(self) -> CommitIdentity:
        """The identity with which the member fetches and commits."""

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator accepts commits of this member now."""

    @property
    def retained(self) -> frozenset[TopicPartition]:
        """Released partitions that no other member gets before this one has its next assignment."""

    @property
    def group_protocol(self) -> GroupProtocol | None:
        """The type of the group, as the coordinator reported when it accepted this member; None: it is not a member."""

    @property
    def session_s(self) -> float:
        """How long the coordinator waits for a silent member, as far as is known."""

    @property
    def last_heartbeat_at(self) -> Instant | None:
        """When the coordinator last responded to this client as to a member of the group."""

    def next_deadline(self) -> Instant | None:
        """Return the moment when the next timed action of the protocol is due; None: never."""

    def view(self) -> ProtocolView:
        """Return its part of the member's view."""


def removed_for_good(instance_id: str | None, error: BrokerError) -> BrokerError:
    """Return the error of a static member of either protocol that was removed from its group during its session."""
    message = (
        f"the static member with group.instance.id '{instance_id}' was removed from the group during its session, "
        "either by an administrator, or by a newer process with this id because the group is full; create a new "
        f"consumer to rejoin (the coordinator responded: {error.message or error.name})"
    )
    return BrokerError(code=error.code, name=error.name, message=message)
