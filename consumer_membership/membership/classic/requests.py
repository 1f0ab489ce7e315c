"""The JoinGroup and SyncGroup requests of a classic member: their contents, and which one is in flight.

At most one of them is in flight. JoinGroup is answered when the whole group has joined, SyncGroup when the leader has
sent the assignments, so the member may have to give up waiting earlier. A response that arrives after that has an
outdated number (`RebalanceRequests.awaits`).

A JoinGroup has the member's subscription once for each of its assignors, with the user data of that assignor. The
subscription may change while the group joins; `RebalanceRequests.change` reports that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from consumer_membership.assignors.assignor import Assignor, MemberSubscription
from consumer_membership.membership.classic.assignment import ClassicAssignment
from consumer_membership.membership.classic.exchanges import SendJoin, SendSync
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.text import speakable
from consumer_membership.types import FATAL_CODE, BrokerError, Instant, Subscription, TopicPartition


class RebalanceRequests:
    """The requests of one member; they name its generations and its assignment."""

    def __init__(
        self, event: EventContext, settings: MemberSettings, classic: ClassicSettings, assignment: ClassicAssignment
    ) -> None:
        self._event = event
        self._settings = settings
        self._classic = classic
        self._assignment = assignment
        #: The number of the request in flight.
        self.in_flight: int | None = None
        #: When the last request was sent.
        self.sent_at: Instant = 0.0
        #: The earliest moment of the next JoinGroup.
        self.join_at: Instant = 0.0
        #: What the last JoinGroup contained: the subscription, and the topics that it resolved to.
        self._sent_subscription = Subscription()
        self._sent_topics: frozenset[str] = frozenset()

    # ---- questions ----

    @property
    def is_waiting(self) -> bool:
        """Whether a request is in flight."""
        return self.in_flight is not None

    def awaits(self, request_id: int) -> bool:
        """Return whether this is the number of the request in flight."""
        return request_id == self.in_flight

    def change(self, subscription: Subscription, topics: frozenset[str]) -> str | None:
        """Return why the last JoinGroup does not match this resolved subscription; None: it does."""
        if topics == self._sent_topics:
            return None
        is_same = subscription == self._sent_subscription
        return "the topics that match the pattern have changed" if is_same else "the subscription changed"

    # ---- sending ----

    def join(
        self,
        *,
        member_id: str,
        reason: str,
        subscription: Subscription,
        topics: frozenset[str],
        owned: Collection[TopicPartition],
    ) -> BrokerError | None:
        """Send a JoinGroup with these topics and owned partitions; an assignor's error is returned instead."""
        protocols = []
        for assignor in self._classic.assignors:
            one = self._subscription_for(assignor, topics, frozenset(owned))
            if isinstance(one, BrokerError):
                return one
            protocols.append((assignor.name, one))
        self._sent_subscription, self._sent_topics = subscription, topics
        order = SendJoin(
            request_id=self._next_request_id(),
            member_id=member_id,
            instance_id=self._settings.instance_id,
            session_timeout_s=self._classic.session_timeout_s,
            rebalance_timeout_s=self._settings.max_poll_interval_s,
            protocols=tuple(protocols),
            reason=reason,
        )
        self._event.emit(order)
        return None

    def _subscription_for(
        self, assignor: Assignor, topics: frozenset[str], owned: frozenset[TopicPartition]
    ) -> MemberSubscription | BrokerError:
        """Return the subscription for the leader in the form of this assignor (KIP-792); or the assignor's error."""
        assignment = self._assignment
        try:
            user_data = assignor.user_data(topics, assignment.partitions, assignment.assigned_generation)
        except Exception as error:  # noqa: BLE001 - a user's own code may raise anything, and the user has to know
            return _failure(assignor, f"{type(error).__name__}: {error}")
        if not _is_bytes_or_none(user_data):
            return _failure(assignor, f"it returned {user_data!r}; return bytes or None")
        return MemberSubscription(
            topics=topics,
            user_data=user_data,
            owned=owned,
            generation=assignment.assigned_generation,
            rack_id=self._settings.rack_id,
        )

    def sync(
        self,
        *,
        member_id: str,
        assignments: Mapping[str, frozenset[TopicPartition]],
        user_data: Mapping[str, bytes],
        versions: Mapping[str, int],
    ) -> None:
        """Send a SyncGroup; a leader sends the assignments of all members."""
        order = SendSync(
            request_id=self._next_request_id(),
            generation=self._assignment.joined_generation,
            member_id=member_id,
            instance_id=self._settings.instance_id,
            protocol_name=self._assignment.assignor,
            assignments=assignments,
            user_data=user_data,
            versions=versions,
        )
        self._event.emit(order)

    def _next_request_id(self) -> int:
        self.in_flight, self.sent_at = self._event.next_request_id(), self._event.now
        return self.in_flight

    # ---- what happens ----

    def forget(self) -> None:
        """Await no response: the request was answered, or its response does not matter any more."""
        self.in_flight = None

    def schedule_join(self, delay_s: float) -> None:
        """Send the next JoinGroup after this delay, and await no response until then."""
        self.forget()
        self.join_at = self._event.now + delay_s

    def suspended(self, seconds: float) -> None:
        """Date the last request back by this time, in which the session continued and the clock stopped."""
        self.sent_at -= seconds


def _failure(assignor: Assignor, message: str) -> BrokerError:
    text = speakable(f"user_data() of the assignor {assignor.name!r} failed: {message}")
    return BrokerError(code=FATAL_CODE, name="_FATAL", message=text)


def _is_bytes_or_none(given: object) -> bool:
    # User code may return anything, whatever its annotation.
    return given is None or isinstance(given, bytes)
