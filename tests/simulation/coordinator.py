"""A pure group coordinator: requests in, answers out, `now` given; no I/O, no clock, no chance.

It keeps Kafka's rules for groups of the consumer protocol (rules 3.1 to 3.3, 3.6 and 3.7), for several groups
and for the topics that they read. Which broker node speaks for it can change: the other nodes answer NOT_COORDINATOR,
the new one COORDINATOR_LOAD_IN_PROGRESS for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.types import (
    JOIN_EPOCH,
    NO_EPOCH,
    Holder,
    Instant,
    OffsetAndMetadata,
    Offsets,
    TopicIdPartition,
    TopicPartition,
)
from tests.simulation import rules as code
from tests.simulation.group import Group, Topic
from tests.simulation.group_member import GroupMember
from tests.simulation.rules import Granted, Refusal, Refused, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A member id left the group or was taken out of it."""

    member_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit was accepted."""

    member_id: str
    offsets: Offsets


Entry: TypeAlias = Removed | Committed


class GroupCoordinator:
    """The coordinator of all groups of a cluster, and what the cluster knows of topics."""

    def __init__(self, rules: Rules, node_id: int = 1) -> None:
        self.rules = rules
        self.node_id = node_id
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        #: What happened, oldest first, for whoever wants to look at it.
        self.journal: deque[Entry] = deque(maxlen=10_000)
        self._loading_until: Instant | None = None

    # ---- heartbeats ----

    def heartbeat(
        self, group_id: str, beat: Heartbeat, now: Instant, *, node_id: int | None = None
    ) -> Granted | Refused:
        """Answer ConsumerGroupHeartbeat; `node_id` is the broker that was asked (None: the coordinator)."""
        try:
            self._check_node(node_id, now)
            return self._group_of(group_id, beat).heartbeat(beat, now)
        except Refusal as refusal:
            return refusal.answer

    def _group_of(self, group_id: str, beat: Heartbeat) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            if beat.member_epoch != JOIN_EPOCH:
                raise Refusal(code.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            group = Group(group_id, self.rules, self.topics, self._note_removed)
            if self.rules.assignment_interval_s > 0:
                # 4.3: the first group epoch is 1, so that the first member's epoch is 2 at least.
                group.epoch = group.target_epoch = 1
            self.groups[group_id] = group
        return group

    def _note_removed(self, member_id: str, reason: str) -> None:
        self.journal.append(Removed(member_id=member_id, reason=reason))

    def describe(self, group_id: str, now: Instant, *, node_id: int | None = None) -> Mapping[str, Holder] | Refused:
        """Answer ConsumerGroupDescribe, as far as a member asks: who holds which instance id."""
        try:
            self._check_node(node_id, now)
        except Refusal as refusal:
            return refusal.answer
        group = self.groups.get(group_id)
        if group is None:
            return Refused(code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return {
            instance_id: Holder(
                member_id=member_id, member_epoch=group.members[member_id].epoch, client_id="client", host="host"
            )
            for instance_id, member_id in group.instances.items()
        }

    # ---- offsets ----

    def commit(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        offsets: Offsets,
        now: Instant,
        *,
        node_id: int | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Answer OffsetCommit v9: the error code of each partition, 0 where it is committed."""
        try:
            self._check_node(node_id, now)
            self._check_commit(group_id, member_id, member_epoch, offsets)
        except Refusal as refusal:
            return dict.fromkeys(offsets, refusal.answer.code)
        group = self.groups[group_id]
        errors = {p: 0 if self._exists(p) else code.UNKNOWN_TOPIC_OR_PARTITION for p in offsets}
        accepted = {p: offset for p, offset in offsets.items() if errors[p] == 0}
        group.committed |= accepted
        self.journal.append(Committed(member_id=member_id, offsets=accepted))
        return errors

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition < topic.partitions

    def _check_commit(self, group_id: str, member_id: str, member_epoch: int, offsets: Offsets) -> None:
        group = self.groups.get(group_id)
        if group is None:
            if member_epoch >= JOIN_EPOCH:
                raise Refusal(code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = self.groups[group_id] = Group(group_id, self.rules, self.topics, self._note_removed)
        if member_epoch < JOIN_EPOCH and not group.members:
            return
        member = group.members.get(member_id)
        if member is None:
            raise Refusal(code.UNKNOWN_MEMBER_ID)
        older_is_good = self.rules.accepts_older_commits and member_epoch < member.epoch
        if member_epoch != member.epoch and not (older_is_good and self._held_since(member, member_epoch, offsets)):
            raise Refusal(code.STALE_MEMBER_EPOCH)

    def _held_since(self, member: GroupMember, epoch: int, partitions: Collection[TopicPartition]) -> bool:
        """KIP-1251: whether the member has held all of these since this epoch or an earlier one."""
        held = member.assigned | member.revoking
        for partition in partitions:
            topic = self.topics.get(partition.topic)
            since = held.get(TopicIdPartition(topic.topic_id, partition.partition)) if topic is not None else None
            if since is None or epoch < since:
                return False
        return True

    def fetch_committed(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        partitions: Collection[TopicPartition],
        now: Instant,
        *,
        node_id: int | None = None,
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None] | Refused:
        """Answer OffsetFetch v9: the committed offset of each partition, None where there is none."""
        try:
            self._check_node(node_id, now)
            group = self._check_fetch(group_id, member_id, member_epoch)
        except Refusal as refusal:
            return refusal.answer
        return {partition: group.committed.get(partition) for partition in partitions}

    def _check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise Refusal(code.GROUP_ID_NOT_FOUND)
        if member_id is not None or member_epoch > NO_EPOCH:
            member = group.members.get(member_id or "")
            if member is None:
                raise Refusal(code.UNKNOWN_MEMBER_ID)
            if member.epoch != member_epoch:
                raise Refusal(code.STALE_MEMBER_EPOCH)
        return group

    # ---- the cluster ----

    def create_topic(self, name: str, topic_id: UUID, partitions: int) -> None:
        """Create a topic, or one of the same name anew."""
        self.topics[name] = Topic(name=name, topic_id=topic_id, partitions=partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and what was committed of it."""
        self.topics.pop(name)
        for group in self.groups.values():
            for partition in [p for p in group.committed if p.topic == name]:
                del group.committed[partition]

    def names_of(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Answer Metadata by id: the names of those that exist."""
        return {topic.topic_id: topic.name for topic in self.topics.values() if topic.topic_id in topic_ids}

    def move(self, node_id: int, now: Instant, loading_s: float) -> None:
        """Let another node be the coordinator; it loads its groups first."""
        self.node_id = node_id
        self._loading_until = now + loading_s
        for group in self.groups.values():
            group.restart_timers(now + loading_s)

    def remove_member(self, group_id: str, *, member_id: str | None = None, instance_id: str | None = None) -> bool:
        """LeaveGroup as an administrator sends it (KAFKA-18188); whether there was such a member."""
        group = self.groups[group_id]
        found = member_id if member_id is not None else group.instances.get(instance_id or "")
        if found is None or found not in group.members:
            return False
        group.remove(found, "removed")
        return True

    def _check_node(self, node_id: int | None, now: Instant) -> None:
        if node_id is not None and node_id != self.node_id:
            raise Refusal(code.NOT_COORDINATOR)
        if self._loading_until is not None:
            if now < self._loading_until:
                raise Refusal(code.COORDINATOR_LOAD_IN_PROGRESS)
            self._loading_until = None

    # ---- time ----

    def pass_time(self, now: Instant) -> None:
        """Let sessions and rebalance timeouts end."""
        for group in self.groups.values():
            group.expire(now)

    def next_deadline(self) -> Instant | None:
        """When `pass_time` has something to do."""
        moments = [moment for group in self.groups.values() if (moment := group.next_deadline()) is not None]
        return min(moments, default=None)
