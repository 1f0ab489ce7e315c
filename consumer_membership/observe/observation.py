"""A group watched for some seconds: several surveys of it, and what they say together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from consumer_membership.admin import GroupAdmin, GroupDescription, GroupSurvey, MemberDescription, PartitionOffsets
from consumer_membership.observe.rates import Position
from consumer_membership.types import OffsetAndMetadata, TopicPartition

#: Two commits of librdkafka's and Java's default (auto.commit.interval.ms is 5 s) come within it.
DEFAULT_SECONDS = 12.0
_INTERVAL_S = 1.5
_LEAST_LOOKS = 3
#: Whoever did not commit within this although there was something to read does not commit: one default interval, and
#: a little for the way.
_PATIENCE_S = 7.0
#: A transaction's end takes one offset (KIP-98): who commits behind each record stays so far from the end of a topic
#: that is written in transactions.
MARKERS = 1


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Surveys of one group, the oldest first; the first and the last are in depth. There is at least one.

    Everything is judged by what they have in common: what was so in one of them only may have been on its way.
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
        """The group as it was last; None where it may not be described, or is not there."""
        return self.last.group

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        """Those of the last survey."""
        return () if self.group is None else self.group.members

    @property
    def groups(self) -> tuple[GroupDescription, ...]:
        """The group in each survey in which it was told."""
        return tuple(survey.group for survey in self.surveys if survey.group is not None)

    @property
    def seconds(self) -> float:
        """From the first survey to the last."""
        return self.last.at - self.first.at

    @cached_property
    def owners(self) -> Mapping[TopicPartition, MemberDescription]:
        """Who has each partition."""
        return {partition: member for member in self.members for partition in member.assignment}

    def position(self, partition: TopicPartition, survey: GroupSurvey | None = None) -> Position:
        """Where the group is in the partition, by the last survey unless another one is meant."""
        of = self.last if survey is None else survey
        committed = of.committed.get(partition)
        offsets = of.offsets.get(partition)
        return Position(
            committed=committed.offset if isinstance(committed, OffsetAndMetadata) else None,
            end=None if offsets is None else offsets.end,
        )

    def offsets(self, partition: TopicPartition) -> PartitionOffsets | None:
        """The partition's offsets by the last survey."""
        return self.last.offsets.get(partition)

    @property
    def lags(self) -> Mapping[TopicPartition, int]:
        """What is to be read in each partition where that is known; nothing committed counts from the start."""
        found = {}
        for partition, offsets in self.last.offsets.items():
            committed = self.position(partition).committed
            begins = offsets.start if committed is None else committed
            if begins is not None and offsets.end is not None and offsets.end > begins:
                found[partition] = offsets.end - begins
        return found

    def stands(self, partition: TopicPartition) -> bool:
        """Whether nothing was committed although there was something to read all the while.

        There is time for a commit, or else more was written in between: a reader that gets records commits.
        """
        if len(self.surveys) == 1:
            return False
        seen = [self.position(partition, survey) for survey in self.surveys]
        before, after = seen[0], seen[-1]
        if before.committed != after.committed or not self.lags.get(partition):
            return False
        if before.committed is not None and before.end is not None and before.committed >= before.end:
            return False
        has_grown = before.end is not None and after.end is not None and after.end > before.end
        if before.committed is None and not has_grown:
            return False  # it may have begun at the end, and there has been nothing to read since
        if not has_grown and after.lag == MARKERS:
            return False  # what ended the last transaction is counted, too, and given to nobody
        return has_grown or self.seconds >= _PATIENCE_S

    @property
    def is_read_without_members(self) -> bool:
        """Whether offsets were committed while nobody was in the group: by a program that assigns its partitions."""
        is_empty = all(not group.members for group in self.groups)
        return is_empty and any(map(self.moves, self.last.committed))

    def moves(self, partition: TopicPartition) -> bool:
        """Whether something was committed in the meantime."""
        before, after = self.position(partition, self.first).committed, self.position(partition).committed
        return after is not None and before != after


def observe(
    admin: GroupAdmin,
    group_id: str,
    seconds: float = DEFAULT_SECONDS,
    wait: Callable[[float], object] | None = None,
) -> Observation:
    """Watch the group for so many seconds; the first survey and the last one are in depth.

    Raises what `GroupAdmin.survey` raises.
    """
    pause = threading.Event().wait if wait is None else wait
    looks = max(_LEAST_LOOKS, round(seconds / _INTERVAL_S) + 1)
    surveys = [admin.survey(group_id)]
    # A group that is not there, or may not be seen, is not there in a second either.
    while len(surveys) < looks and surveys[0].group is not None:
        pause(seconds / (looks - 1))
        surveys.append(admin.survey(group_id, in_depth=len(surveys) == looks - 1))
    return Observation(surveys=tuple(surveys))
