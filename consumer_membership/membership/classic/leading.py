"""A classic member as far as it leads: from everybody's words to everybody's share, and an eye on the topics."""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.assignor import Topics
from consumer_membership.membership.classic.leadership import (
    AssignmentComputed,
    AssignmentFailed,
    ComputeAssignment,
    DescribeTopics,
    TopicsDescribed,
    TopicsNotDescribed,
)
from consumer_membership.membership.classic.lifecycle import ClassicLifecycle
from consumer_membership.membership.classic.settings import ClassicSettings
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.topics import LATE_S, SOON_S
from consumer_membership.types import GroupProtocol, Instant, TopicPartition

_S = ClassicState


class Leading(ClassicLifecycle):
    """The leader's part of one member; a follower syncs with nothing."""

    def __init__(self, settings: MemberSettings, classic: ClassicSettings, *, jitter: Jitter) -> None:
        super().__init__(settings, classic, jitter=jitter)
        self._protocol_name = ""
        #: Whether this member assigns for the whole group, in the present generation.
        self.is_leader = False
        #: What the group is, as the last JoinGroup said.
        self.group_protocol = GroupProtocol.CLASSIC
        self._members: Mapping[str, MemberSubscription] = {}
        self._unreadable: Mapping[str, str] = {}
        #: The topics as they were when the group was assigned, and the question after them that is under way.
        self._topics: Topics | None = None
        self._topics_request: int | None = None
        self._topics_at: Instant | None = None
        self._look_after_s = classic.refresh_interval_s
        #: How often to look for a topic that is not there.
        self._absences = Backoff(SOON_S, LATE_S, jitter)
        #: When the group should have gathered anew, since partitions were held back for a later generation.
        self._repair_at: Instant | None = None
        #: This generation's share, while its assignor hears of it, and the number of that.
        self._untold: frozenset[TopicPartition] | None = None
        self._notice: int | None = None
        #: Whether the share of this generation takes something away, so that a cooperative member joins once more.
        self._gives_up = False

    @property
    def tells_assignor(self) -> bool:
        """Whether the share is there, and its assignor hears of it first."""
        return self._untold is not None

    # ---- one generation ----

    def _begin_generation(self, event: ex.JoinAnswered) -> None:
        """The group has gathered: a follower asks for its share, a leader computes everybody's."""
        self._protocol_name, self.is_leader = event.protocol_name, event.is_leader
        self.group_protocol = event.group_protocol
        self._members, self._unreadable = event.members, event.unreadable
        self._topics_request = self._topics_at = self._repair_at = self._topics = self._untold = None
        if not event.is_leader or event.skip_assignment:
            self._sync({})
        if event.is_leader:
            # A static leader that came back looks at once, too: what changes from now on is for it to notice.
            self._topics_at = self._now

    def _sync(
        self, assignments: Mapping[str, frozenset[TopicPartition]], user_data: Mapping[str, bytes] | None = None
    ) -> None:
        self._exchange = self._next_request_id()
        self._topics_at = self._now + self._look_after_s if self.is_leader else None
        sync = ex.SendSync(
            request_id=self._exchange,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            protocol_name=self._protocol_name,
            assignments=assignments,
            user_data=user_data or {},
            versions={member_id: one.version for member_id, one in self._members.items()},
        )
        self._out.append(sync)

    def _advance_leading(self) -> None:
        if self._computes:
            self._look_at_topics_if_due()

    @property
    def _computes(self) -> bool:
        """Whether a leader still has to hand in what its group gets."""
        return self.state is _S.SYNCING and self._exchange is None and self._untold is None

    # ---- the topics ----

    @property
    def _watched(self) -> frozenset[str]:
        """What the whole group subscribes to."""
        return frozenset[str]().union(*(one.topics for one in self._members.values())) | self.topics

    def _leader_s_deadline(self) -> Instant | None:
        """When a leader has something to do: where it does nothing, nothing is due."""
        if self._computes:
            return self._topics_due_at
        if self.state is not _S.STABLE:
            return None
        return min((at for at in (self._topics_due_at, self._repair_at) if at is not None), default=None)

    @property
    def _topics_due_at(self) -> Instant | None:
        return self._topics_at if self._topics_request is None else None

    def _look_at_topics_if_due(self) -> None:
        due_at = self._topics_due_at
        if not self.is_leader or due_at is None or self._now < due_at:
            return
        self._topics_request = self._next_request_id()
        self._out.append(DescribeTopics(request_id=self._topics_request, topics=self._watched))

    def _list_topics_if_due(self) -> None:
        """With a pattern: ask which topics there are, as a leader and as a follower."""
        due_at = self.patterns.due_at
        if due_at is not None and self._now >= due_at:
            self._out.append(self.patterns.ask(self._next_request_id()))

    def _on_topics_described(self, event: TopicsDescribed) -> None:
        if self.patterns.awaits(event.request_id):
            self._see_topics(event)
            self.patterns.listed(event.topics.partitions, self._now, again_at=self.watch.again_at)
        if event.request_id != self._topics_request:
            return
        self._topics_request = None
        self._see_topics(event)
        before, self._topics = self._topics, event.topics
        self._look_after_s = self._until_next_look_s(event)
        self._topics_at = self._now + self._look_after_s
        if self._computes:
            self._topics_at = None
            compute = ComputeAssignment(
                generation=self.generation, assignor=self._protocol_name, topics=event.topics, members=self._members
            )
            self._out.append(compute)
        elif self.state is not _S.STABLE:
            return
        elif before is None and not self._is_covered(event.topics):
            self.rejoins_because = "partitions may be with nobody"
        elif before is not None and before != event.topics:
            self.rejoins_because = "the leader's topics have changed"

    def _see_topics(self, event: TopicsDescribed) -> None:
        """What of the member's own subscription is not there, or may not be described: the application is told once."""
        names = self.patterns.without_blacklisted(event.topics.partitions)
        self._tell_seen(self.watch.saw(names, event.refused, self._now))

    def _until_next_look_s(self, event: TopicsDescribed) -> float:
        """The refresh interval; a topic that somebody subscribes and that does not exist yet is looked for sooner."""
        if self._watched <= event.topics.partitions.keys() | event.refused.keys():
            self._absences.reset()
            return self.classic.refresh_interval_s
        return min(self._absences.next_delay(), self.classic.refresh_interval_s)

    def _is_covered(self, topics: Topics) -> bool:
        """Whether each partition is with somebody, as far as a leader that did not assign them can see.

        It cannot where members are eager, who say of nothing that it is theirs. Among cooperative ones a static member
        that is replaced while it owes the group a JoinGroup, for it gave up what moves, never sends it; the coordinator
        has its replacement skip the assignment, and what moves would be with nobody for good.
        """
        if self.classic.is_eager:
            return True
        claimed = self.last_share.union(*(one.owned for one in self._members.values()))
        return all(
            TopicPartition(topic, number) in claimed
            for topic in self._watched
            for number in range(topics.partitions.get(topic, 0))
        )

    def _repair_if_due(self) -> None:
        """Who should have joined again after giving up what moves was replaced, perhaps: the leader sees to it."""
        if self._repair_at is not None and self._now >= self._repair_at:
            self._repair_at = None
            self.rejoins_because = "partitions that were held back are still with nobody"

    def _on_topics_not_described(self, event: TopicsNotDescribed) -> None:
        if self.patterns.awaits(event.request_id):
            self.last_error = event.error
            self.patterns.not_listed(self._now)
        if event.request_id == self._topics_request:
            self._topics_request = None
            self.last_error = event.error
            self._topics_at = self._now + self._backoff.next_delay()

    # ---- the assignment ----

    def _on_assignment_computed(self, event: AssignmentComputed) -> None:
        if event.generation != self.generation or not self._computes:
            return
        nothing = frozenset[TopicPartition]()
        everybody = self._members.keys() | self._unreadable.keys()
        if self._topics is not None and not self.classic.is_eager:
            given = sum(map(len, event.assignments.values()))
            if given < sum(self._topics.partitions.get(topic, 0) for topic in self._watched):
                self._repair_at = self._now + self.classic.session_timeout_s
        assignments = {member_id: event.assignments.get(member_id, nothing) for member_id in everybody}
        self._sync(
            assignments, {member_id: event.user_data[member_id] for member_id in everybody & event.user_data.keys()}
        )

    def _on_assignment_failed(self, event: AssignmentFailed) -> None:
        """A member whose assignor fails leaves, so that another one leads or has its share; its application is told."""
        if event.generation != self.generation or self.state is not _S.SYNCING or self._exchange is not None:
            return
        self._walk_out("the assignor failed")
        self._fail(event.error)
