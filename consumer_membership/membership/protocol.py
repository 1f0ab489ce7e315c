"""The interface between a member and its protocol: `MemberProtocol`, with its contract.

`member.GroupMember` handles the events that both protocols share, and knows when a member joins, is refused, is fenced
and leaves. Its protocol sends the requests for that and interprets the answers: `consumer.protocol.ConsumerProtocol`
(KIP-848) and `classic.protocol.ClassicProtocol`. **The contract:**

1. The member calls, the protocol answers: it never calls the member. What ends or interrupts the membership it returns
   as a `MembershipEnd`, as the last thing that it does with an event, and the member acts on it before anything else.
2. A protocol is the only writer of its state, its member id, its epoch and its requests. The shared parts it changes by
   their verbs alone; the subscription, the application's polls and the leave's course are not its to change.
3. It emits requests to the coordinator and to Metadata, and what people should know. It never emits what the member
   does: errors that are final, `LeaveCompleted`, steps (but for a reconciliation that it begins).
4. It asks no clock: `EventContext.now` is the moment of the event, and `next_deadline` that of the next call.
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
from consumer_membership.types import BrokerError, GroupProtocol, Instant

#: What can happen to a member, of whichever protocol, and what it orders.
GroupEvent: TypeAlias = Event | ClassicEvent | LeaderEvent
GroupEffect: TypeAlias = Effect | ClassicEffect | LeaderEffect | ProtocolChosen
#: What the protocols handle themselves, each its own.
ProtocolEvent: TypeAlias = ConsumerEvent | ClassicAnswer | LeaderEvent

#: How long a session lasts if the broker did not report it: the default of both protocols, in Kafka and librdkafka.
DEFAULT_SESSION_S = 45.0
#: Beyond the session: the coordinator removes a member at the end of its timer, not before.
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Fatal:
    """The coordinator refuses the member, and no retry mends that."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class Fenced:
    """The coordinator does not count the member in any more: what it owns is lost, and it joins again."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class Left:
    """The leave is over, well or not; the reason is for people."""

    reason: str


MembershipEnd: TypeAlias = Fatal | Fenced | Left


class MemberProtocol(Protocol):
    """One protocol as its member uses it; the module's text has the contract."""

    # ---- what happens ----

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Handle an event of this protocol; one of another protocol answers a request of before, and is dropped."""

    def subscribed(self, event: Subscribed) -> None:
        """The application subscribed; `TopicWatch` has the subscription already."""

    def polled(self, event: Polled) -> None:
        """The application polls; where the member is out of its group, it has just joined."""

    def topics_looked_up(self) -> None:
        """`TopicWatch` has a new list of topics."""

    def leave_requested(self) -> None:
        """The application leaves; the member has begun to leave, or was out of its group."""

    def join(self, trigger: Trigger, reason: str) -> None:
        """Begin to join: from UNSUBSCRIBED, STALE or FATAL at a poll, from FENCED after on_lost."""

    def prepare(self) -> MembershipEnd | None:
        """Time passed in the group: ask what has to be known before anything can be sent."""

    def advance(self) -> MembershipEnd | None:
        """Time passed: go on with the reconciliation or the rebalance, and send what is due."""

    def leave(self, gives_up_at: Instant) -> Left | None:
        """Everything was given up: send the leave (`Leave.send`), or end where there is nothing to send.

        It is called again with each event until it was sent; `gives_up_at` is how long the coordinator is waited for.
        """

    def resign(self) -> None:
        """Send the leave without waiting for the answer: the application does not poll."""

    def begin_leaving(self, reason: str) -> None:
        """Go to UNSUBSCRIBING; the member stays in its group until it has given up everything."""

    def end(self, trigger: Trigger, reason: str) -> None:
        """Go to UNSUBSCRIBED, FENCED, STALE or FATAL: forget the epoch, and every request that waits for an answer."""

    # ---- questions ----

    def ignores(self, event: GroupEvent) -> bool:
        """Whether the state drops this event unread, the shared parts' share in it too."""

    def refused_join(self, event: GroupEvent) -> BrokerError | None:
        """The error with which the coordinator refuses this member's join; None: the event is no such refusal."""

    @property
    def public_state(self) -> MemberState:
        """The state as the view shows it, for both protocols alike."""

    @property
    def identity(self) -> CommitIdentity:
        """As whom the member fetches and commits."""

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes commits of this member now."""

    @property
    def group_protocol(self) -> GroupProtocol | None:
        """The type of the group, as the coordinator answered when it let this member in; None: it is no member."""

    @property
    def session_s(self) -> float:
        """How long the coordinator keeps a silent member's place, as far as is known."""

    @property
    def last_heartbeat_at(self) -> Instant | None:
        """When the coordinator last answered as to a member."""

    def next_deadline(self) -> Instant | None:
        """When time alone makes something due for the protocol; None: never."""

    def view(self) -> ProtocolView:
        """What it adds to the member's view."""


def removed_for_good(instance_id: str | None, error: BrokerError) -> BrokerError:
    """What a static member of either protocol ends with that was taken out of its group while its session went on."""
    words = (
        f"the static member with group.instance.id '{instance_id}' was removed from the group during its session, "
        "either by an administrator, or by a newer process with this id because the group is full; create a new "
        f"consumer to rejoin (the coordinator responded: {error.message or error.name})"
    )
    return BrokerError(code=error.code, name=error.name, message=words)
