"""Convert the records of a group's coordinator to surveys, as if samples had been taken in the past.

Code that uses samples therefore also works for the past. There is a survey at each change of the group, by the
coordinator's clock, and at regular intervals between them for committed offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Self, assert_never

from consumer_membership.admin import (
    GroupDescription,
    GroupHistory,
    GroupPresent,
    GroupSurvey,
    MemberDescription,
    PartitionOffsets,
)
from consumer_membership.admin.group_log import (
    AssignmentRecorded,
    ClassicGroupRecorded,
    GroupEpochRecorded,
    GroupRecord,
    MemberRecorded,
    OffsetRecorded,
    TargetEpochRecorded,
    TargetRecorded,
)
from consumer_membership.observe.labels import NO_GROUP
from consumer_membership.types import Assignment, GroupProtocol, OffsetAndMetadata, TopicPartition


@dataclass(slots=True)
class _Held:
    """The current and the target assignment of a member of the consumer protocol."""

    epoch: int | None = None
    assigned: frozenset[TopicPartition] = frozenset()
    target: frozenset[TopicPartition] = frozenset()


@dataclass(slots=True)
class _Group:
    """The state of the group after some records."""

    history: GroupHistory
    classic: GroupDescription | None = None
    epoch: int | None = None
    target_epoch: int | None = None
    members: dict[str, MemberDescription] = field(default_factory=dict)
    held: dict[str, _Held] = field(default_factory=dict)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)

    def begin(self) -> None:
        """Set the state at the start: values without a later record are as now, the others come from older records."""
        if self.history.now is not None:
            self._set_unchanged(self.history.now)
        for record in self.history.before:
            self.take(record.fact)

    def _set_unchanged(self, now: GroupPresent) -> None:
        """Set the values that have no record since the start."""
        written = _Written.of(record.fact for record in self.history.records)
        self.committed = {
            partition: found
            for partition, found in now.committed.items()
            if isinstance(found, OffsetAndMetadata) and partition not in written.partitions
        }
        if now.group.protocol is GroupProtocol.CLASSIC:
            self.classic = None if ClassicGroupRecorded in written.kinds else now.group
            return
        self.epoch = None if GroupEpochRecorded in written.kinds else now.group.epoch
        self.target_epoch = None if TargetEpochRecorded in written.kinds else now.group.assignment_epoch
        for member in now.group.members:
            of_member = written.members.get(member.member_id, frozenset())
            if MemberRecorded not in of_member:
                self.members[member.member_id] = member
            held = self.held.setdefault(member.member_id, _Held())
            if AssignmentRecorded not in of_member:
                held.epoch, held.assigned = member.epoch, member.assignment
            if TargetRecorded not in of_member:
                held.target = member.target or frozenset()

    def take(self, fact: GroupRecord) -> bool:
        """Apply one record; return whether it changes the group, in contrast to a commit."""
        match fact:
            case OffsetRecorded(partition=partition, committed=committed):
                if committed is None:
                    self.committed.pop(partition, None)
                else:
                    self.committed[partition] = committed
                return False
            case ClassicGroupRecorded(group=group):
                self.classic = group
            case GroupEpochRecorded(epoch=epoch):
                self.epoch = epoch
            case TargetEpochRecorded(epoch=epoch):
                self.target_epoch = epoch
            case MemberRecorded() | TargetRecorded() | AssignmentRecorded():
                self._take_member(fact)
            case _:
                assert_never(fact)
        return True

    def _take_member(self, fact: MemberRecorded | TargetRecorded | AssignmentRecorded) -> None:
        held = self.held.setdefault(fact.member_id, _Held())
        match fact:
            case MemberRecorded(member_id=member_id, member=member):
                if member is None:
                    self.members.pop(member_id, None)
                    self.held.pop(member_id, None)
                else:
                    self.members[member_id] = member
            case TargetRecorded(target=target):
                held.target = self._named(target or frozenset())
            case AssignmentRecorded(epoch=epoch, assigned=assigned, revoking=revoking):
                # A partition that is being revoked still belongs to the member: no other member gets it earlier.
                held.epoch, held.assigned = epoch, self._named(assigned | revoking)
            case _:
                assert_never(fact)

    def described(self) -> GroupDescription:
        """Return the group as its coordinator would have described it."""
        if self.epoch is None and self.classic is not None:
            return self.classic
        if self.epoch is None:
            return self._consumer_group(NO_GROUP, ())
        members = tuple(self._member(self.members[one]) for one in sorted(self.members))
        return self._consumer_group(self._state(members), members)

    def _consumer_group(self, state: str, members: tuple[MemberDescription, ...]) -> GroupDescription:
        return GroupDescription(
            group_id=self.history.group_id,
            protocol=GroupProtocol.CONSUMER,
            protocol_type="consumer",
            state=state,
            epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            assignor="",
            members=members,
        )

    def _state(self, members: Sequence[MemberDescription]) -> str:
        if not members:
            return "Empty"
        if self.epoch != self.target_epoch:
            return "Assigning"
        is_settled = all(one.is_away or (one.epoch == self.epoch and one.assignment == one.target) for one in members)
        return "Stable" if is_settled else "Reconciling"

    def _member(self, member: MemberDescription) -> MemberDescription:
        held = self.held.get(member.member_id) or _Held()
        return replace(member, epoch=held.epoch, assignment=held.assigned, target=held.target)

    def _named(self, partitions: Assignment) -> frozenset[TopicPartition]:
        """Return the partitions with topic names; the name of a deleted topic is its id."""
        names = self.history.topic_names
        return frozenset(
            TopicPartition(names.get(one.topic_id) or str(one.topic_id), one.partition) for one in partitions
        )

    def survey(self, at: float) -> GroupSurvey:
        """Return the survey at this time."""
        return GroupSurvey(
            group_id=self.history.group_id,
            at=at,
            coordinator=None,
            group=self.described(),
            committed=dict(self.committed),
            topics={},
            offsets={
                partition: PartitionOffsets(start=None, end=round(_at(ends, at)), stable=None)
                for partition, ends in self.history.ends.items()
                if ends
            },
            transactions=(),
            broker_settings={},
            group_settings={},
            refusals={},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The partitions, kinds and members that some records are about."""

    partitions: frozenset[TopicPartition]
    kinds: frozenset[type[GroupRecord]]
    members: Mapping[str, frozenset[type[GroupRecord]]]

    @classmethod
    def of(cls, facts: Iterable[GroupRecord]) -> Self:
        """Return what these records are about."""
        partitions: set[TopicPartition] = set()
        kinds: set[type[GroupRecord]] = set()
        members: dict[str, frozenset[type[GroupRecord]]] = {}
        for fact in facts:
            match fact:
                case OffsetRecorded(partition=partition):
                    partitions.add(partition)
                case ClassicGroupRecorded() | GroupEpochRecorded() | TargetEpochRecorded():
                    kinds.add(type(fact))
                case MemberRecorded(member_id=one) | TargetRecorded(member_id=one) | AssignmentRecorded(member_id=one):
                    members[one] = members.get(one, frozenset()) | {type(fact)}
                case _:
                    assert_never(fact)
        return cls(partitions=frozenset(partitions), kinds=frozenset(kinds), members=members)


def surveys_of(history: GroupHistory, interval_s: float) -> Iterator[GroupSurvey]:
    """Yield a survey at each change of the group and at least every `interval_s` seconds, the oldest first.

    Yields nothing if there are no records.
    """
    group = _Group(history)
    group.begin()
    if not history.before and not history.records and history.now is None:
        return
    yield group.survey(history.since)
    sampled_at, is_changed, at = history.since, False, history.since
    for record in history.records:
        # A coordinator writes related records with the same timestamp.
        if record.at > at:
            if is_changed or at - sampled_at >= interval_s:
                yield group.survey(at)
                sampled_at, is_changed = at, False
            while record.at - sampled_at > interval_s:
                sampled_at += interval_s
                yield group.survey(sampled_at)
            at = record.at
        is_changed |= group.take(record.fact)
    if at > history.since:
        yield group.survey(at)
    sampled_at = at
    while history.until - sampled_at > interval_s:
        sampled_at += interval_s
        yield group.survey(sampled_at)


def _at(ends: Sequence[tuple[float, int]], at: float) -> float:
    """Return the end offset at this time, interpolated between two known end offsets."""
    place = bisect_left(ends, at, key=itemgetter(0))
    if place in (0, len(ends)):
        return ends[min(place, len(ends) - 1)][1]
    before, after = ends[place - 1], ends[place]
    return before[1] + (after[1] - before[1]) * (at - before[0]) / (after[0] - before[0])
