"""The work of the leader of a group: it computes the assignment of all members from their subscriptions.

It requests the topics, has the assignor compute, sends the result with its SyncGroup, and watches the topics and
unassigned partitions. A follower also has this object, and does not use it.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.classic.exchanges import (
    AssignmentComputed,
    ComputeAssignment,
    DescribeTopics,
    JoinAnswered,
    TopicsDescribed,
)
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.membership.topics import LATE_S, SOON_S
from consumer_membership.types import Instant, Subscription, TopicPartition

_NOTHING: frozenset[TopicPartition] = frozenset()


class Leader:
    """The leader's part of one member, in the generation that joined last."""

    def __init__(self, event: EventContext, settings: ClassicSettings, backoff: Backoff, jitter: Jitter) -> None:
        self._event = event
        self._settings = settings
        self._backoff = backoff
        #: Whether this member assigns for the whole group.
        self.is_leading = False
        self._members: Mapping[str, MemberSubscription] = {}
        self._unreadable: Mapping[str, str] = {}
        #: The topics as they were when the group was assigned.
        self._topics: Topics | None = None
        #: This member's subscription, and the number of the running check.
        self._subscription = Subscription()
        self._request: int | None = None
        self._check_at: Instant | None = None
        self._check_after_s = settings.refresh_interval_s
        #: How often to check for a missing topic.
        self._absences = Backoff(SOON_S, LATE_S, jitter)
        #: When the group should have rebalanced again, since partitions were withheld for a later generation.
        self._repair_at: Instant | None = None

    # ---- questions ----

    @property
    def versions(self) -> Mapping[str, int]:
        """The version of each member's assignment."""
        return {member_id: one.version for member_id, one in self._members.items()}

    @property
    def check_at(self) -> Instant | None:
        """When to check the topics; None: not now, or a check is running."""
        return self._check_at if self._request is None else None

    @property
    def due_at(self) -> Instant | None:
        """When a leader whose group is assigned has something to do."""
        return min((at for at in (self.check_at, self._repair_at) if at is not None), default=None)

    def awaits(self, request_id: int) -> bool:
        """Return whether this is the number of the running check."""
        return request_id == self._request

    def _watched(self, own: frozenset[str]) -> frozenset[str]:
        """Return the subscription of the whole group; `own` is this member's."""
        return own.union(*(one.topics for one in self._members.values()))

    # ---- one generation ----

    def begin(self, event: JoinAnswered) -> None:
        """Begin a generation that has joined; a returning static leader also checks at once, to notice changes."""
        self.is_leading = event.is_leader
        self._members, self._unreadable = event.members, event.unreadable
        self._topics = self._request = self._repair_at = None
        self._check_at = self._event.now if event.is_leader else None

    def check_if_due(self, own: frozenset[str]) -> None:
        """Check the group's topics, if that is due."""
        if self.check_at is not None and self._event.now >= self.check_at:
            self._request = self._event.next_request_id()
            self._event.emit(DescribeTopics(request_id=self._request, topics=self._watched(own)))

    def subscribed(self, subscription: Subscription) -> None:
        """Begin a running check again if this member's subscription has changed: the response describes the old one."""
        if subscription != self._subscription and self._request is not None:
            self._request, self._check_at = None, self._event.now
        self._subscription = subscription

    def described(self, event: TopicsDescribed, own: frozenset[str]) -> Topics | None:
        """Process the result of a check; return the previous result (None: the first check of this generation)."""
        self._request = None
        self._backoff.reset()
        before, self._topics = self._topics, event.topics
        self._check_after_s = self._settings.refresh_interval_s
        if self._watched(own) <= event.topics.partitions.keys() | event.refused.keys():
            self._absences.reset()
        else:
            # A missing subscribed topic is checked more often.
            self._check_after_s = min(self._absences.next_delay(), self._check_after_s)
        self._check_at = self._event.now + self._check_after_s
        return before

    def not_described(self) -> None:
        """Retry the check, which failed, after a backoff."""
        self._request = None
        self._check_at = self._event.now + self._backoff.next_delay()

    def compute(self, generation: int, assignor: str) -> None:
        """Have the assignor compute from the result of the check."""
        self._check_at = None
        if self._topics is not None:
            topics, members = self._topics, self._members
            order = ComputeAssignment(generation=generation, assignor=assignor, topics=topics, members=members)
            self._event.emit(order)

    def assignments(
        self, event: AssignmentComputed, own: frozenset[str]
    ) -> tuple[Mapping[str, frozenset[TopicPartition]], Mapping[str, bytes]]:
        """Return each member's partitions and user data, for the SyncGroup; withheld partitions are checked later."""
        all_members = self._members.keys() | self._unreadable.keys()
        if self._topics is not None and not self._settings.is_eager:
            given = sum(map(len, event.assignments.values()))
            if given < sum(self._topics.partitions.get(topic, 0) for topic in self._watched(own)):
                self._repair_at = self._event.now + self._settings.session_timeout_s
        assignments = {member_id: event.assignments.get(member_id, _NOTHING) for member_id in all_members}
        return assignments, {
            member_id: event.user_data[member_id] for member_id in all_members & event.user_data.keys()
        }

    def synced(self) -> None:
        """Check the topics again after a while, because the group is assigned."""
        self._check_at = self._event.now + self._check_after_s

    # ---- watching the group ----

    def reason_to_rebalance(
        self, before: Topics | None, own: frozenset[str], assigned: frozenset[TopicPartition]
    ) -> str:
        """Return why the group must rebalance after a check; "": it need not. `assigned`: this member's partitions."""
        if self._topics is None:
            return ""
        if before is None:
            return "" if self._is_covered(self._topics, own, assigned) else "partitions may be unassigned"
        return "the leader's topics have changed" if before != self._topics else ""

    def _is_covered(self, topics: Topics, own: frozenset[str], assigned: frozenset[TopicPartition]) -> bool:
        """Return whether each partition has an owner, as far as a leader that did not assign them can see.

        It cannot see that of eager members, which claim no partitions when they join. Among cooperative members, a
        static member may give up partitions and be replaced before it sends its next JoinGroup. The coordinator lets
        its replacement skip the assignment, so that those partitions would stay unassigned.
        """
        if self._settings.is_eager:
            return True
        claimed = assigned.union(*(one.owned for one in self._members.values()))
        return all(claimed.issuperset(topics.of(topic)) for topic in self._watched(own))

    def repair(self) -> bool:
        """Return whether to rebalance now: a member that should have rejoined after a revocation may be gone."""
        if self._repair_at is None or self._event.now < self._repair_at:
            return False
        self._repair_at = None
        return True
