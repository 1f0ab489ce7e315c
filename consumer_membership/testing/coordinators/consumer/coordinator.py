"""The coordinator of consumer-protocol groups (rules 3.1 to 3.3, 3.6 and 3.7); no request waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import assert_never

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.consumer.group import ConsumerGroup
from consumer_membership.testing.coordinators.consumer.group_member import ConsumerMember
from consumer_membership.testing.coordinators.coordinator import GroupCoordinator
from consumer_membership.testing.coordinators.exchanges import (
    Answer,
    ClassicHeartbeat,
    Commit,
    CommitResults,
    Describe,
    Described,
    Fetch,
    Fetched,
    Join,
    Key,
    LeaveGroup,
    LeaveResults,
    LeavingMember,
    Released,
    Request,
    Sync,
)
from consumer_membership.testing.coordinators.journal import CommitAccepted, Removed
from consumer_membership.testing.coordinators.rules import RequestRefusal, Rules
from consumer_membership.types import (
    JOIN_EPOCH,
    NO_EPOCH,
    Holder,
    Instant,
    Offsets,
    TopicIdPartition,
    TopicPartition,
)


class ConsumerCoordinator(GroupCoordinator):
    """The coordinator of all KIP-848 groups of a cluster."""

    def __init__(self, rules: Rules, node_id: int = 1) -> None:
        super().__init__(node_id)
        self.rules = rules
        self.groups: dict[str, ConsumerGroup] = {}

    # ---- requests ----

    def handle(self, key: Key, group_id: str, request: Request, now: Instant) -> Answer:  # noqa: ARG002 - no request waits
        """Return the response to a request. Raises RequestRefusal."""
        match request:
            case Heartbeat():
                return self._group_of(group_id, request).heartbeat(request, now)
            case Commit():
                return self._commit(group_id, request)
            case Fetch():
                return self._fetch(group_id, request)
            case Describe():
                return self._describe(group_id, request)
            case LeaveGroup():
                return self._leave(group_id, request)
            case Join() | Sync() | ClassicHeartbeat():
                # This coordinator has no classic members.
                raise RequestRefusal(code.UNKNOWN_MEMBER_ID)
            case _:
                assert_never(request)

    def _group_of(self, group_id: str, request: Heartbeat) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            if request.member_epoch != JOIN_EPOCH:
                raise RequestRefusal(code.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            group = ConsumerGroup(group_id, self.rules, self.topics, self._note_removed)
            if self.rules.assignment_interval_s > 0:
                # 4.3: the first group epoch is 1, so the first member's epoch is at least 2.
                group.epoch = group.target_epoch = 1
            self.groups[group_id] = group
        return group

    def _note_removed(self, member_id: str, reason: str) -> None:
        self.journal.append(Removed(member_id=member_id, reason=reason))

    def _describe(self, group_id: str, request: Describe) -> Described:
        """Return the holder of each instance id; a static member that left temporarily keeps its assignment."""
        group = self.groups.get(group_id)
        if group is None:
            raise RequestRefusal(code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        holders = {
            member.instance_id: Holder(
                member_id=member.member_id,
                member_epoch=member.epoch,
                client_id="client",
                host="host",
                partitions=self._named(member.assigned) if request.with_partitions else frozenset(),
            )
            for member in group.members.values()
            if member.instance_id is not None
        }
        return Described(holders=holders)

    def _named(self, assigned: Iterable[TopicIdPartition]) -> frozenset[TopicPartition]:
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        return frozenset(TopicPartition(names[p.topic_id], p.partition) for p in assigned if p.topic_id in names)

    # ---- offsets ----

    def _commit(self, group_id: str, request: Commit) -> CommitResults:
        self._check_commit(group_id, request.member_id, request.generation, request.offsets)
        codes = self.commit_errors(request.offsets)
        accepted = {p: offset for p, offset in request.offsets.items() if codes[p] == 0}
        self.groups[group_id].committed |= accepted
        entry = CommitAccepted(member_id=request.member_id, generation=request.generation, offsets=accepted)
        self.journal.append(entry)
        return CommitResults(codes=codes)

    def _check_commit(self, group_id: str, member_id: str, member_epoch: int, offsets: Offsets) -> None:
        group = self.groups.get(group_id)
        if group is None:
            if member_epoch >= JOIN_EPOCH:
                raise RequestRefusal(code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = self.groups[group_id] = ConsumerGroup(group_id, self.rules, self.topics, self._note_removed)
        if member_epoch < JOIN_EPOCH and not group.members:
            return
        member = group.members.get(member_id)
        if member is None:
            raise RequestRefusal(code.UNKNOWN_MEMBER_ID)
        older_is_good = self.rules.accepts_older_commits and member_epoch < member.epoch
        if member_epoch != member.epoch and not (older_is_good and self._held_since(member, member_epoch, offsets)):
            raise RequestRefusal(code.STALE_MEMBER_EPOCH)

    def _held_since(self, member: ConsumerMember, epoch: int, partitions: Collection[TopicPartition]) -> bool:
        """Return whether the member has held all these partitions since this epoch or an earlier epoch (KIP-1251)."""
        held = member.assigned | member.revoking
        for partition in partitions:
            topic = self.topics.get(partition.topic)
            since = held.get(TopicIdPartition(topic.topic_id, partition.partition)) if topic is not None else None
            if since is None or epoch < since:
                return False
        return True

    def _fetch(self, group_id: str, request: Fetch) -> Fetched:
        """Return committed offsets (rules 3.7); for a group that does not exist, no offsets and no member check."""
        group = self.groups.get(group_id)
        if group is None:
            return Fetched(offsets=dict.fromkeys(request.partitions))
        if request.member_id is not None or request.member_epoch > NO_EPOCH:
            member = group.members.get(request.member_id or "")
            if member is None:
                raise RequestRefusal(code.UNKNOWN_MEMBER_ID)
            if member.epoch != request.member_epoch:
                raise RequestRefusal(code.STALE_MEMBER_EPOCH)
        return Fetched(offsets={partition: group.committed.get(partition) for partition in request.partitions})

    # ---- removals by an administrator (KAFKA-18188) ----

    def _leave(self, group_id: str, request: LeaveGroup) -> LeaveResults:
        group = self.groups.get(group_id)
        if group is None:
            return LeaveResults(codes=(code.UNKNOWN_MEMBER_ID,) * len(request.members))
        return LeaveResults(codes=tuple(self._remove(group, member) for member in request.members))

    def _remove(self, group: ConsumerGroup, member: LeavingMember) -> int:
        """Remove this member; return the error code of its result, 0 for success."""
        holder = group.instances.get(member.instance_id or "")
        member_id = member.member_id or holder
        if member_id is None or (member.instance_id is not None and holder is None):
            return code.UNKNOWN_MEMBER_ID
        if member.instance_id is not None and holder != member_id:
            return code.FENCED_INSTANCE_ID
        if member_id not in group.members:
            return code.UNKNOWN_MEMBER_ID
        group.remove(member_id, "removed")
        return 0

    # ---- the cluster ----

    def move(self, node_id: int, now: Instant, loading_s: float) -> list[Released]:
        """Make another node the coordinator; it loads the groups for `loading_s`, and then restarts their timers."""
        self.node_id = node_id
        self._loading_until = now + loading_s
        for group in self.groups.values():
            group.restart_timers(now + loading_s)
        return []

    def expel(self, group_id: str, member_id: str, now: Instant) -> list[Released]:
        """Remove a member as an administrator does; returns no responses, because no request waits."""
        self.process("administrator", group_id, LeaveGroup(members=(LeavingMember(member_id),)), now)
        return []

    def members(self, group_id: str) -> frozenset[str]:
        """Return the ids of the group's members."""
        return frozenset(self.groups[group_id].members) if group_id in self.groups else frozenset()

    def is_settled(self, group_id: str) -> bool:
        """Return whether every member has reached the newest target assignment; an empty group is settled."""
        return not self.members(group_id) or self.groups[group_id].is_settled

    # ---- time ----

    def pass_time(self, now: Instant) -> list[Released]:
        """Remove members whose session or rebalance timeout has ended; returns no responses."""
        for group in self.groups.values():
            group.expire(now)
        return []

    def next_deadline(self) -> Instant | None:
        """Return when the next session or rebalance timeout ends; None: no timeout is running."""
        moments = [moment for group in self.groups.values() if (moment := group.next_deadline()) is not None]
        return min(moments, default=None)
