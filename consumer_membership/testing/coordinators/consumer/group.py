"""A consumer-protocol group as the broker keeps it (GroupMetadataManager; rules 3.1 to 3.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.consumer.assignor import ASSIGNORS
from consumer_membership.testing.coordinators.consumer.group_member import ConsumerMember, Reconciliation, Standing
from consumer_membership.testing.coordinators.coordinator import Topic
from consumer_membership.testing.coordinators.rules import Granted, RequestRefusal, Rules
from consumer_membership.types import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    Instant,
    OffsetAndMetadata,
    TopicIdPartition,
    TopicPartition,
)

#: A time before all others.
BEFORE_ANY: Final[Instant] = float("-inf")


@dataclass(slots=True)
class ConsumerGroup:
    """The members of one group, their targets, the holder of each partition, and the committed offsets.

    `removed` is called with the id of each departing member and the reason: "left", "left for a while", "session",
    "rebalance", "removed", "replaced".
    """

    group_id: str
    rules: Rules
    topics: Mapping[str, Topic]
    removed: Callable[[str, str], None]
    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    holder: dict[TopicIdPartition, str] = field(default_factory=dict)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    assigned_at: Instant = BEFORE_ANY
    patterns: dict[str, Instant] = field(default_factory=dict)
    #: The partitions of the subscribed topics when a heartbeat last raised the group epoch.
    seen_topics: Assignment = frozenset()
    #: Partitions that no member may receive; tests of applications set them.
    withheld: Assignment = frozenset()

    # ---- heartbeats ----

    def heartbeat(self, request: Heartbeat, now: Instant) -> Granted:
        """Return the response to one heartbeat. Raises RequestRefusal."""
        _validate(request, self.rules)
        if request.is_leave:
            return self._leave(request)
        return self._join_or_stay(request, now)

    def _join_or_stay(self, request: Heartbeat, now: Instant) -> Granted:
        member = self._member_of(request, now)
        before = member.copy()
        changed = self._store_heartbeat(member, request, now)
        topics = self._subscribed_topics(now)
        if changed or topics != self.seen_topics:
            self.epoch += 1
            self.seen_topics = topics
        self._update_target(now)
        shrinks = self.rules.shrinks_immediately
        if not member.is_reconciled_to(self.target_epoch) or (changed and shrinks):
            self._reconcile(member, request.owned, changed=changed and shrinks, now=now)
        if member.standing is not Standing.UNREVOKED:
            member.rebalance_ends_at = None
        elif member.epoch != before.epoch or member.revoking != before.revoking or before.rebalance_ends_at is None:
            member.rebalance_ends_at = now + member.rebalance_timeout_s
        member.session_ends_at = now + self.rules.session_timeout_s
        receives_assignment = (
            request.member_epoch == JOIN_EPOCH or request.is_full or member.assigned.keys() != before.assigned.keys()
        )
        return Granted(
            member_epoch=member.epoch,
            heartbeat_interval_s=self.rules.heartbeat_interval_s,
            assignment=frozenset(member.assigned) if receives_assignment else None,
        )

    def _reconcile(self, member: ConsumerMember, owned: Assignment | None, *, changed: bool, now: Instant) -> None:
        target = self.target.get(member.member_id, frozenset())
        subscribed = self._topics_of(member, now)
        by_id = {topic.topic_id for name, topic in self.topics.items() if name in subscribed}
        if self.rules.shrinks_immediately:
            target = frozenset(p for p in target if p.topic_id in by_id)
        Reconciliation(
            target=target,
            target_epoch=self.target_epoch,
            owned=owned,
            subscribed=lambda partition: partition.topic_id in by_id,
            subscription_changed=changed,
            is_free=lambda partition: self.holder.get(partition, member.member_id) == member.member_id,
            keeps_epoch=self.rules.keeps_epoch_between_revocations,
        ).apply(member)
        self._note_holder(member)

    def _note_holder(self, member: ConsumerMember) -> None:
        holds = member.holds
        for partition in [p for p, owner in self.holder.items() if owner == member.member_id and p not in holds]:
            del self.holder[partition]
        for partition in holds:
            self.holder[partition] = member.member_id

    # ---- the sender of a heartbeat ----

    def _member_of(self, request: Heartbeat, now: Instant) -> ConsumerMember:
        """Return the sender of a heartbeat; create a member that joins. Raises RequestRefusal if it is not accepted."""
        joins = request.member_epoch == JOIN_EPOCH
        if joins and request.member_id not in self.members:
            self._check_size(request)
        if request.instance_id is not None:
            return self._static_member(request, joins=joins)
        member = self.members.get(request.member_id)
        if member is None:
            if not joins:
                raise RequestRefusal(
                    code.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {self.group_id}."
                )
            return self._add(ConsumerMember(member_id=request.member_id, session_ends_at=now))
        self._check_epoch(member, request)
        return member

    def _check_size(self, request: Heartbeat) -> None:
        returns = request.instance_id in self.instances and self.rules.admits_returning_instances
        if len(self.members) >= self.rules.max_size and not returns:
            size = self.rules.max_size
            raise RequestRefusal(
                code.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {size} members."
            )

    def _static_member(self, request: Heartbeat, *, joins: bool) -> ConsumerMember:
        instance_id = request.instance_id or ""
        owner = self.members.get(self.instances.get(instance_id, ""))
        if not joins:
            if owner is None:
                raise RequestRefusal(code.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            self._check_instance(owner, request)
            self._check_epoch(owner, request)
            return owner
        if owner is None:
            known = self.members.get(request.member_id)
            if known is not None:
                self._check_epoch(known, request)
                self.instances.pop(known.instance_id or "", None)
                known.instance_id = instance_id
                self.instances[instance_id] = known.member_id
                return known
            return self._add(ConsumerMember(member_id=request.member_id, instance_id=instance_id))
        if owner.epoch != LEAVE_STATIC_EPOCH:
            raise RequestRefusal(
                code.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {owner.member_id} member.",
            )
        return self._replace(owner, request.member_id)

    def _check_instance(self, owner: ConsumerMember, request: Heartbeat) -> None:
        if owner.member_id != request.member_id:
            raise RequestRefusal(
                code.FENCED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
                f"{owner.member_id}.",
            )

    def _check_epoch(self, member: ConsumerMember, request: Heartbeat) -> None:
        """Raise RequestRefusal for a wrong member epoch (rules 3.1).

        The response with the current epoch may have been lost. Therefore the previous epoch is accepted if the request
        reports owned partitions, and all of them are assigned.
        """
        received, known = request.member_epoch, member.epoch
        if received == JOIN_EPOCH and self.rules.accepts_rejoin:
            return
        repeats = (
            request.owned is not None and request.owned <= member.assigned.keys() and received == member.previous_epoch
        )
        if received > known or (received < known and not repeats):
            relation = "greater" if received > known else "smaller"
            raise RequestRefusal(
                code.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a {relation} member epoch ({received}) than the one known by the group "
                f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
            )

    def _add(self, member: ConsumerMember) -> ConsumerMember:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        return member

    def _replace(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Put another member id in the place of a static member that left temporarily, without a group epoch bump.

        If this member id had another instance id before, its former target is dropped.
        """
        former = self.members.get(member_id, old)
        if former is not old and self.rules.releases_former_instance:
            self.instances.pop(former.instance_id or "", None)
        self.members.pop(old.member_id)
        new = old.copy()
        new.member_id, new.epoch, new.previous_epoch, new.rebalance_ends_at = member_id, JOIN_EPOCH, -1, None
        self._add(new)
        self.target[member_id] = self.target.pop(old.member_id, frozenset())
        for partition in new.holds:
            self.holder[partition] = member_id
        if member_id != old.member_id:
            self.removed(old.member_id, "replaced")
        return new

    def _store_heartbeat(self, member: ConsumerMember, request: Heartbeat, now: Instant) -> bool:
        """Store the fields of the member's heartbeat; return whether they require a new assignment of the group."""
        is_new = member.member_id not in self.target
        before = (member.topics, member.pattern, self.assignor if self.rules.assigns_for_another_assignor else None)
        if request.rebalance_timeout_s is not None:
            member.rebalance_timeout_s = request.rebalance_timeout_s
        if request.assignor is not None:
            member.assignor = request.assignor
        if request.topics is not None:
            member.topics = frozenset(request.topics)
        if request.pattern is not None:
            member.pattern = request.pattern or None
            if member.pattern is not None:
                self.patterns.setdefault(member.pattern, now + self.rules.regex_delay_s)
        self.target.setdefault(member.member_id, frozenset())
        after = (member.topics, member.pattern, self.assignor if self.rules.assigns_for_another_assignor else None)
        return is_new or after != before

    # ---- leaving and being removed ----

    def _leave(self, request: Heartbeat) -> Granted:
        if request.instance_id is not None:
            owner = self.members.get(self.instances.get(request.instance_id, ""))
            if owner is None:
                raise RequestRefusal(code.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
            self._check_instance(owner, request)
        member = self.members.get(request.member_id)
        if member is None:
            raise RequestRefusal(
                code.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {self.group_id}."
            )
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            member.epoch = LEAVE_STATIC_EPOCH
            member.revoking = {}
            member.rebalance_ends_at = None
            self._note_holder(member)
            self.removed(member.member_id, "left for a while")
        else:
            self.remove(member.member_id, "left")
        return Granted(member_epoch=request.member_epoch, heartbeat_interval_s=0.0, assignment=None)

    def withhold(self, partitions: Assignment) -> None:
        """Withhold exactly these partitions from all members, and assign all other partitions again."""
        self.withheld = partitions
        self.epoch += 1

    def remove(self, member_id: str, reason: str) -> None:
        """Remove a member; the other members get its partitions with their next heartbeats."""
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        self.target.pop(member_id, None)
        for partition in [p for p, owner in self.holder.items() if owner == member_id]:
            del self.holder[partition]
        self.epoch += 1
        if not self.members:
            self.assigned_at = BEFORE_ANY
        self.removed(member_id, reason)

    def expire(self, now: Instant) -> None:
        """Remove the members whose session or rebalance timeout has ended."""
        for member in list(self.members.values()):
            if now >= member.session_ends_at:
                self.remove(member.member_id, "session")
            elif member.rebalance_ends_at is not None and now >= member.rebalance_ends_at:
                self.remove(member.member_id, "rebalance")

    def restart_timers(self, now: Instant) -> None:
        """Restart the session and rebalance timers of the members, as a coordinator that loads the group does."""
        for member in self.members.values():
            member.session_ends_at = now + self.rules.session_timeout_s
            if member.rebalance_ends_at is not None:
                member.rebalance_ends_at = now + member.rebalance_timeout_s

    def next_deadline(self) -> Instant | None:
        """Return when the next session or rebalance timeout ends; None: no timeout is running."""
        moments = [member.session_ends_at for member in self.members.values()]
        moments += [m.rebalance_ends_at for m in self.members.values() if m.rebalance_ends_at is not None]
        return min(moments, default=None)

    # ---- subscriptions and the target ----

    def _topics_of(self, member: ConsumerMember, now: Instant) -> frozenset[str]:
        names = member.topics & self.topics.keys()
        pattern = member.pattern
        if pattern is not None and now >= self.patterns[pattern]:
            names |= {name for name in self.topics if re.fullmatch(pattern, name)}
        return names

    def _subscribed_topics(self, now: Instant) -> Assignment:
        names: set[str] = set()
        for member in self.members.values():
            names |= self._topics_of(member, now)
        return frozenset(partition for name in names for partition in self.topics[name])

    def _update_target(self, now: Instant) -> None:
        if self.epoch == self.target_epoch or now - self.assigned_at < self.rules.assignment_interval_s:
            return
        wanted = {
            member.member_id: {p for name in self._topics_of(member, now) for p in self.topics[name]} - self.withheld
            for member in self.members.values()
        }
        self.target = ASSIGNORS[self.assignor](wanted, self.target)
        self.target_epoch = self.epoch
        self.assigned_at = now

    @property
    def assignor(self) -> str:
        """The assignor that most members request; without requests, the first in the broker's list."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else self.rules.assignors[0]

    @property
    def state(self) -> str:
        """The broker's name for the group's state."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        return "Stable" if self.is_settled else "Reconciling"

    @property
    def is_settled(self) -> bool:
        """Whether every member has reached the newest target assignment."""
        return self.epoch == self.target_epoch and all(
            member.is_reconciled_to(self.target_epoch) for member in self.members.values()
        )


def _validate(request: Heartbeat, rules: Rules) -> None:
    """Raise RequestRefusal if a heartbeat fails the broker's checks of its fields (rules 2.4)."""
    if not request.member_id:
        raise RequestRefusal(code.INVALID_REQUEST, "MemberId can't be empty.")
    if request.instance_id == "":
        raise RequestRefusal(code.INVALID_REQUEST, "InstanceId can't be empty.")
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        raise RequestRefusal(code.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise RequestRefusal(code.INVALID_REQUEST, "InstanceId can't be null.")
    if request.member_epoch == JOIN_EPOCH:
        _validate_join(request)
    if request.member_epoch >= JOIN_EPOCH:
        _validate_assignor_and_pattern(request, rules)


def _validate_join(request: Heartbeat) -> None:
    if request.rebalance_timeout_s is None:
        raise RequestRefusal(code.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise RequestRefusal(code.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.pattern is None:
        raise RequestRefusal(
            code.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def _validate_assignor_and_pattern(request: Heartbeat, rules: Rules) -> None:
    if request.assignor is not None and request.assignor not in rules.assignors:
        supported = ", ".join(rules.assignors)
        raise RequestRefusal(
            code.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {supported}.",
        )
    if request.pattern:
        try:
            re.compile(request.pattern)
        except re.error as error:
            raise RequestRefusal(
                code.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{request.pattern}` is not a valid regular expression: {error}.",
            ) from None
