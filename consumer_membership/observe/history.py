"""The records of a group's coordinator as surveys: what a look would have shown at each moment that something changed.

So whatever is made of looks can be made of the past, too. A look stands at each change of the group, by the
coordinator's own clock, and every so often between them for what was committed.
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
    """What a member of the consumer protocol has and is to have."""

    epoch: int | None = None
    has: frozenset[TopicPartition] = frozenset()
    target: frozenset[TopicPartition] = frozenset()


@dataclass(slots=True)
class _Group:
    """How the group is after some records."""

    history: GroupHistory
    classic: GroupDescription | None = None
    epoch: int | None = None
    target_epoch: int | None = None
    members: dict[str, MemberDescription] = field(default_factory=dict)
    held: dict[str, _Held] = field(default_factory=dict)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)

    def begin(self) -> None:
        """Be as the group was at the begin: what nobody wrote down since then as it is now, the rest by its records."""
        if self.history.now is not None:
            self._be(self.history.now)
        for record in self.history.before:
            self.take(record.fact)

    def _be(self, now: GroupPresent) -> None:
        """As now, in what nobody wrote down since the begin."""
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
                held.epoch, held.has = member.epoch, member.assignment
            if TargetRecorded not in of_member:
                held.target = member.target or frozenset()

    def take(self, fact: GroupRecord) -> bool:
        """Take one record in; whether it is about the group, and not only a commit."""
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
                # What is still to be given up is still had: nobody else gets it before that.
                held.epoch, held.has = epoch, self._named(assigned | revoking)
            case _:
                assert_never(fact)

    def described(self) -> GroupDescription:
        """The group as its coordinator would have described it."""
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
        return replace(member, epoch=held.epoch, assignment=held.has, target=held.target)

    def _named(self, partitions: Assignment) -> frozenset[TopicPartition]:
        """By names; a topic that is there no more goes by its id."""
        names = self.history.topic_names
        return frozenset(
            TopicPartition(names.get(one.topic_id) or str(one.topic_id), one.partition) for one in partitions
        )

    def survey(self, at: float) -> GroupSurvey:
        """A look at this moment."""
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
    """What some records are about."""

    partitions: frozenset[TopicPartition]
    kinds: frozenset[type[GroupRecord]]
    members: Mapping[str, frozenset[type[GroupRecord]]]

    @classmethod
    def of(cls, facts: Iterable[GroupRecord]) -> Self:
        """By what they name."""
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
    """What looks would have shown: at each change of the group, and so often beside; the oldest first.

    Nothing where there are no records at all.
    """
    group = _Group(history)
    group.begin()
    if not history.before and not history.records and history.now is None:
        return
    yield group.survey(history.since)
    looked_at, is_changed, at = history.since, False, history.since
    for record in history.records:
        # A coordinator writes what belongs together at one moment.
        if record.at > at:
            if is_changed or at - looked_at >= interval_s:
                yield group.survey(at)
                looked_at, is_changed = at, False
            while record.at - looked_at > interval_s:
                looked_at += interval_s
                yield group.survey(looked_at)
            at = record.at
        is_changed |= group.take(record.fact)
    if at > history.since:
        yield group.survey(at)
    looked_at = at
    while history.until - looked_at > interval_s:
        looked_at += interval_s
        yield group.survey(looked_at)


def _at(ends: Sequence[tuple[float, int]], at: float) -> float:
    """The end at this moment: between two that are known, as if it had grown evenly."""
    place = bisect_left(ends, at, key=itemgetter(0))
    if place in (0, len(ends)):
        return ends[min(place, len(ends) - 1)][1]
    before, after = ends[place - 1], ends[place]
    return before[1] + (after[1] - before[1]) * (at - before[0]) / (after[0] - before[0])
