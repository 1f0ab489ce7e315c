"""Observe a group for some seconds, and compare the surveys taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from consumer_membership.admin import GroupAdmin, GroupDescription, GroupSurvey, MemberDescription, PartitionOffsets
from consumer_membership.observe.rates import Position, finished_beyond, position_of
from consumer_membership.translation.offset_metadata import FinishedOffsets
from consumer_membership.types import TopicPartition

#: Contains two commits with the default of librdkafka and Java (auto.commit.interval.ms is 5 s).
DEFAULT_SECONDS = 12.0
_INTERVAL_S = 1.5
_LEAST_SAMPLES = 3
#: A member with lag that did not commit for this time is stalled: one default commit interval plus network latency.
_STALLED_AFTER_S = 7.0
#: A transaction marker occupies one offset (KIP-98) but is never delivered, so a member that has consumed everything
#: may stay this far from the end of the partition.
MARKERS = 1


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Surveys of one group, the oldest first; the first and the last are detailed. There is at least one.

    Rules use what all surveys have in common, because a state in one survey alone may be transient.
    """

    surveys: tuple[GroupSurvey, ...]

    @property
    def first(self) -> GroupSurvey:
        """The oldest survey."""
        return self.surveys[0]

    @property
    def last(self) -> GroupSurvey:
        """The newest survey."""
        return self.surveys[-1]

    @property
    def group(self) -> GroupDescription | None:
        """The group in the last survey; None if it may not be described or does not exist."""
        return self.last.group

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        """The members in the last survey."""
        return () if self.group is None else self.group.members

    @property
    def groups(self) -> tuple[GroupDescription, ...]:
        """The group in each survey that contains it."""
        return tuple(survey.group for survey in self.surveys if survey.group is not None)

    @property
    def seconds(self) -> float:
        """The seconds from the first survey to the last."""
        return self.last.at - self.first.at

    @cached_property
    def owners(self) -> Mapping[TopicPartition, MemberDescription]:
        """The owner of each assigned partition."""
        return {partition: member for member in self.members for partition in member.assignment}

    def position(self, partition: TopicPartition, survey: GroupSurvey | None = None) -> Position:
        """Return the committed offset and the end of the partition in a survey, by default the last one."""
        source = self.last if survey is None else survey
        offsets = source.offsets.get(partition)
        return position_of(source.committed.get(partition), None if offsets is None else offsets.end)

    def finished_beyond(self, partition: TopicPartition) -> FinishedOffsets | None:
        """Return the offsets that are finished beyond the committed offset in the last survey; None if none is."""
        return finished_beyond(self.last.committed.get(partition))

    def offsets(self, partition: TopicPartition) -> PartitionOffsets | None:
        """Return the partition's offsets in the last survey."""
        return self.last.offsets.get(partition)

    @property
    def lags(self) -> Mapping[TopicPartition, int]:
        """The lag of each partition with lag; without a committed offset, it counts from the start of the partition.

        Offsets that are finished beyond the committed offset do not count.
        """
        found = {}
        for partition, offsets in self.last.offsets.items():
            progress = self.position(partition).progress
            begins = offsets.start if progress is None else progress
            if begins is not None and offsets.end is not None and offsets.end > begins:
                found[partition] = offsets.end - begins
        return found

    def is_stalled(self, partition: TopicPartition) -> bool:
        """Whether the partition made no progress although it had lag during the whole observation.

        The observation must be long enough for a commit, or new records must have arrived, which lead to a commit.
        """
        if len(self.surveys) == 1:
            return False
        seen = [self.position(partition, survey) for survey in self.surveys]
        before, after = seen[0], seen[-1]
        if before.progress != after.progress or not self.lags.get(partition):
            return False
        if before.committed is not None and before.end is not None and before.committed >= before.end:
            return False
        has_grown = before.end is not None and after.end is not None and after.end > before.end
        if before.committed is None and not has_grown:
            return False  # the member may have started at the end, and no record has arrived since
        if not has_grown and after.lag == MARKERS:
            return False  # the lag may be the marker of the last transaction, which is never delivered
        finished = self.finished_beyond(partition)
        if not has_grown and finished is not None and after.end is not None and finished.high >= after.end - MARKERS:
            return False  # all records are received; the unfinished ones hold back the committed offset
        return has_grown or self.seconds >= _STALLED_AFTER_S

    def is_held_back(self, partition: TopicPartition) -> bool:
        """Whether the committed offset did not move, although later offsets are finished.

        The observation must be long enough for a commit, or later offsets must have been finished during it.
        """
        finished, before = self.finished_beyond(partition), self.position(partition, self.first)
        if finished is None or len(self.surveys) == 1 or before.committed != finished.base:
            return False
        return self.has_progress(partition) or self.seconds >= _STALLED_AFTER_S

    @property
    def has_commits_without_members(self) -> bool:
        """Whether offsets were committed while the group had no members: by a program that assigns its partitions."""
        is_empty = all(not group.members for group in self.groups)
        return is_empty and any(map(self.has_progress, self.last.committed))

    def has_progress(self, partition: TopicPartition) -> bool:
        """Whether records were finished between the first and the last survey, also beyond the committed offset."""
        before, after = self.position(partition, self.first).progress, self.position(partition).progress
        return after is not None and before != after


def observe(
    admin: GroupAdmin,
    group_id: str,
    seconds: float = DEFAULT_SECONDS,
    wait: Callable[[float], object] | None = None,
) -> Observation:
    """Observe the group for this number of seconds; the first and the last survey are detailed.

    Raises what `GroupAdmin.survey` raises.
    """
    pause = threading.Event().wait if wait is None else wait
    samples = max(_LEAST_SAMPLES, round(seconds / _INTERVAL_S) + 1)
    surveys = [admin.survey(group_id)]
    # More samples do not help if the group does not exist or may not be described.
    while len(surveys) < samples and surveys[0].group is not None:
        pause(seconds / (samples - 1))
        surveys.append(admin.survey(group_id, in_depth=len(surveys) == samples - 1))
    return Observation(surveys=tuple(surveys))
