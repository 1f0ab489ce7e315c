"""What a member has of its protocol, and what the two of them agree on: `MemberProtocol`, with its contract.

`member.GroupMember` takes every event in, has the parts that both protocols share (`parts.Parts`), and knows when a
member joins, fails, is fenced and leaves. Its protocol knows how that is said to a coordinator and what the answers
mean: `consumer.protocol.ConsumerProtocol` (KIP-848) and `classic.protocol.ClassicProtocol`. **The contract:**

1. The member calls, the protocol answers: it never calls the member. What ends or interrupts the membership it returns
   as a `Conclusion`, as the last thing that it does with an event, and the member acts on it before anything else.
2. A protocol is the only writer of its state, its member id, its epoch and its requests. The shared parts it changes by
   their verbs alone; the subscription, the application's polls and the leave's course are not its to change.
3. It orders (`Parts.order`) requests to the coordinator and to Metadata, and what people should know. It never orders
   what the member does: errors that are final, `LeaveCompleted`, steps (but for a reconciliation that it begins).
4. It asks no clock: `parts.now` is the event's moment, and `next_deadline` says when it wants to be called again.
5. While it is out of its group (UNSUBSCRIBED, FENCED, STALE, FATAL) it has no epoch and sends nothing.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.classic.exchanges import ClassicEffect, ClassicEvent, LeaderEffect, LeaderEvent
from consumer_membership.membership.effects import Effect, ProtocolChosen
from consumer_membership.membership.events import Event
from consumer_membership.membership.offsets import CommitIdentity
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import ProtocolView
from consumer_membership.types import BrokerError, GroupProtocol, Instant

#: What can happen to a member, of whichever protocol, and what it orders.
GroupEvent: TypeAlias = Event | ClassicEvent | LeaderEvent
GroupEffect: TypeAlias = Effect | ClassicEffect | LeaderEffect | ProtocolChosen

#: How long a session is thought to last where nobody told: the default of both protocols, in Kafka and librdkafka.
DEFAULT_SESSION_S = 45.0
#: Beyond the session: the coordinator removes a member at the end of its timer, not before.
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Fatal:
    """The member is refused for good."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class Fenced:
    """The coordinator does not count the member in any more: what it owns is lost, and it joins anew."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class Left:
    """The leave is over, well or not; the reason is for people."""

    reason: str


Conclusion: TypeAlias = Fatal | Fenced | Left


class MemberProtocol(Protocol):
    """One protocol as its member uses it; the module's text has the contract."""

    # ---- what happens ----

    def handle(self, event: GroupEvent) -> Conclusion | None:
        """Take an event in, after the shared parts have had it; one that is not this protocol's means nothing."""

    def join(self, reason: str) -> None:
        """Begin to join, or to join anew: from UNSUBSCRIBED, STALE or FATAL at a poll, from FENCED after on_lost."""

    def prepare(self) -> Conclusion | None:
        """Time passed in the group: ask what has to be known before anything can be said."""

    def advance(self) -> Conclusion | None:
        """Time passed: go on with the reconciliation or the rebalance, and send what is due."""

    def leave(self, gives_up_at: Instant) -> Left | None:
        """Everything was given up: say so once (`parts.leave.send`), or end where there is nothing, or nobody, to say.

        It is called again with each event until it was sent; `gives_up_at` is how long the coordinator is waited for.
        """

    def resign(self) -> None:
        """Say that the member leaves, without waiting for the answer: its application does not poll."""

    def enter(self, state: MemberState, reason: str) -> None:
        """Go to UNSUBSCRIBED, FENCED, STALE or FATAL and forget requests and epoch, or to UNSUBSCRIBING."""

    # ---- questions ----

    def ignores(self, event: GroupEvent) -> bool:
        """Whether the state drops this event unread, the shared parts' share in it too."""

    def refused_join(self, event: GroupEvent) -> BrokerError | None:
        """The error with which the coordinator refuses this member's join; None: the event is no such refusal."""

    @property
    def public_state(self) -> MemberState:
        """The state, as it is shown where both protocols are."""

    @property
    def identity(self) -> CommitIdentity:
        """As whom the member fetches and commits."""

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes commits of this member now."""

    @property
    def group_protocol(self) -> GroupProtocol | None:
        """What the group is, as the coordinator said when it let this member in; None: it is no member."""

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
        f"the static member with group.instance.id '{instance_id}' was removed from the group for good, while its "
        "session was not over: an administrator did that, or a newer process with this id, for which the full group "
        f"had no other place; make a new consumer to come back (the coordinator said: {error.message or error.name})"
    )
    return BrokerError(code=error.code, name=error.name, message=words)
