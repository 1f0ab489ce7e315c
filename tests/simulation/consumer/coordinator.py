"""The coordinator of groups of the consumer protocol (rules 3.1 to 3.3, 3.6 and 3.7); no request waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

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
from tests.simulation.consumer.group import ConsumerGroup
from tests.simulation.consumer.group_member import ConsumerMember
from tests.simulation.coordinator import Coordinator
from tests.simulation.exchanges import (
    Answer,
    Beat,
    Commit,
    CommitResults,
    Describe,
    Described,
    Fetch,
    Fetched,
    Join,
    Key,
    Leave,
    Released,
    Request,
    Sync,
)
from tests.simulation.journal import Committed, Removed
from tests.simulation.rules import Granted, Refusal, Refused, Rules


class ConsumerCoordinator(Coordinator):
    """The coordinator of all KIP-848 groups of a cluster."""

    def __init__(self, rules: Rules, node_id: int = 1) -> None:
        super().__init__(node_id)
        self.rules = rules
        self.groups: dict[str, ConsumerGroup] = {}

    def ask(
        self, key: Key, group_id: str, request: Request, now: Instant, *, node_id: int | None = None
    ) -> list[Released]:
        """Handle a request; `node_id` is the broker that was asked (None: the coordinator)."""
        return [Released(key, self._handle(group_id, request, now, node_id))]

    def _handle(self, group_id: str, request: Request, now: Instant, node_id: int | None) -> Answer:
        match request:
            case Heartbeat():
                return self.heartbeat(group_id, request, now, node_id=node_id)
            case Commit(member_id=member_id, generation=epoch, offsets=offsets):
                return CommitResults(codes=self.commit(group_id, member_id, epoch, offsets, now, node_id=node_id))
            case Fetch(member_id=member_id, member_epoch=epoch, partitions=partitions):
                found = self.fetch_committed(group_id, member_id, epoch, partitions, now, node_id=node_id)
                return found if isinstance(found, Refused) else Fetched(offsets=found)
            case Describe():
                holders = self.describe(group_id, now, node_id=node_id)
                return holders if isinstance(holders, Refused) else Described(holders=holders)
            case Join() | Sync() | Beat() | Leave():
                # There is no such classic member here.
                return Refused(code.UNKNOWN_MEMBER_ID)
            case _:
                assert_never(request)

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

    def _group_of(self, group_id: str, beat: Heartbeat) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            if beat.member_epoch != JOIN_EPOCH:
                raise Refusal(code.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            group = ConsumerGroup(group_id, self.rules, self.topics, self._note_removed)
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
        errors = self.commit_errors(offsets)
        accepted = {p: offset for p, offset in offsets.items() if errors[p] == 0}
        group.committed |= accepted
        self.journal.append(Committed(member_id=member_id, generation=member_epoch, offsets=accepted))
        return errors

    def _check_commit(self, group_id: str, member_id: str, member_epoch: int, offsets: Offsets) -> None:
        group = self.groups.get(group_id)
        if group is None:
            if member_epoch >= JOIN_EPOCH:
                raise Refusal(code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = self.groups[group_id] = ConsumerGroup(group_id, self.rules, self.topics, self._note_removed)
        if member_epoch < JOIN_EPOCH and not group.members:
            return
        member = group.members.get(member_id)
        if member is None:
            raise Refusal(code.UNKNOWN_MEMBER_ID)
        older_is_good = self.rules.accepts_older_commits and member_epoch < member.epoch
        if member_epoch != member.epoch and not (older_is_good and self._held_since(member, member_epoch, offsets)):
            raise Refusal(code.STALE_MEMBER_EPOCH)

    def _held_since(self, member: ConsumerMember, epoch: int, partitions: Collection[TopicPartition]) -> bool:
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

    def _check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ConsumerGroup:
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

    def move(self, node_id: int, now: Instant, loading_s: float) -> list[Released]:
        """Let another node be the coordinator; it loads its groups first."""
        self.node_id = node_id
        self._loading_until = now + loading_s
        for group in self.groups.values():
            group.restart_timers(now + loading_s)
        return []

    def remove_member(self, group_id: str, *, member_id: str | None = None, instance_id: str | None = None) -> bool:
        """LeaveGroup as an administrator sends it (KAFKA-18188); whether there was such a member."""
        group = self.groups[group_id]
        found = member_id if member_id is not None else group.instances.get(instance_id or "")
        if found is None or found not in group.members:
            return False
        group.remove(found, "removed")
        return True

    def expel(self, group_id: str, member_id: str, now: Instant) -> list[Released]:  # noqa: ARG002 - the base's
        """Take a member out as an administrator does."""
        self.remove_member(group_id, member_id=member_id)
        return []

    def members(self, group_id: str) -> frozenset[str]:
        """The ids of the group's members."""
        return frozenset(self.groups[group_id].members) if group_id in self.groups else frozenset()

    def is_settled(self, group_id: str) -> bool:
        """Whether every member has reached the newest target."""
        return not self.members(group_id) or self.groups[group_id].is_settled

    # ---- time ----

    def pass_time(self, now: Instant) -> list[Released]:
        """Let sessions and rebalance timeouts end."""
        for group in self.groups.values():
            group.expire(now)
        return []

    def next_deadline(self) -> Instant | None:
        """When `pass_time` has something to do."""
        moments = [moment for group in self.groups.values() if (moment := group.next_deadline()) is not None]
        return min(moments, default=None)
