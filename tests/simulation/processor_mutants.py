"""Parts of a processor that break a rule on purpose: the simulation must catch each of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.scheduler import Lane, OwnedPartition, Queued, Scheduler, Task
from consumer_membership.translation.offset_metadata import FinishedOffsets, decode
from consumer_membership.types import Instant, OffsetAndMetadata, TopicPartition

# ---- decode ----


def takes_one_too_many_for_finished(metadata: str | None, committed: int) -> FinishedOffsets | None:
    """Decode the last unfinished offset as finished."""
    finished = decode(metadata, committed)
    if finished is None or len(finished.unfinished) == 1:
        return finished
    return replace(finished, unfinished=finished.unfinished[:-1])


def decodes_one_higher(metadata: str | None, committed: int) -> FinishedOffsets | None:
    """Decode an end of the finished offsets that is one too high."""
    finished = decode(metadata, committed)
    return None if finished is None else replace(finished, high=finished.high + 1)


def decodes_nothing(metadata: str | None, committed: int) -> None:
    """Forget the records that the earlier owner finished."""


# ---- UnfinishedOffsets ----


class CommitsTheHighestFinished(UnfinishedOffsets):
    """Commits the offset after the highest finished record instead of the first unfinished offset."""

    __slots__ = ()

    def to_commit(self) -> OffsetAndMetadata | None:
        """Commit beyond unfinished records."""
        at = super().to_commit()
        return None if at is None else replace(at, offset=max(at.offset, self._high))


class CommitsWithoutMetadata(UnfinishedOffsets):
    """Commits no finished records beyond the offset."""

    __slots__ = ()

    def to_commit(self) -> OffsetAndMetadata | None:
        """Omit the metadata."""
        at = super().to_commit()
        return None if at is None else replace(at, metadata="")


class AdmitsFinishedRecords(UnfinishedOffsets):
    """Forgets to skip the records that an earlier owner finished."""

    __slots__ = ()

    def admit(self, offset: int, leader_epoch: int | None = None) -> bool:
        """Process each record."""
        if not super().admit(offset, leader_epoch):
            self._unfinished[offset] = self._admitted
        return True


class StartsWithoutSpace(UnfinishedOffsets):
    """Starts each record, even if the metadata cannot describe it."""

    __slots__ = ()

    def start(self, offset: int) -> bool:
        """Reserve no space."""
        super().start(offset)
        return True


class TakesAllForCommitted(UnfinishedOffsets):
    """Treats a commit as if it contained all records that have finished since it was sent."""

    __slots__ = ()

    def committed(self, offset: OffsetAndMetadata) -> None:
        """Record the current offsets as committed."""
        super().committed(self.to_commit() or offset)


class CommitsOneTooMuch(UnfinishedOffsets):
    """Commits the offset of the first unfinished record as if it were finished."""

    __slots__ = ()

    def to_commit(self) -> OffsetAndMetadata | None:
        """Commit an offset that is one too high."""
        at = super().to_commit()
        return None if at is None else replace(at, offset=at.offset + 1)


# ---- Scheduler ----


class UnlocksTheLaneDuringRetries(Scheduler):
    """Runs the next records of a lane while a failed record waits for its next attempt."""

    def retry(self, task: Task, at: Instant, error: BaseException) -> bool:
        """Unlock the lanes."""
        is_retried = super().retry(task, at, error)
        if is_retried:
            self._unlock(task.owned, task.lanes, at)
        return is_retried


class RunsRetriesAtOnce(Scheduler):
    """Begins the next attempt without a wait."""

    def retry(self, task: Task, at: Instant, error: BaseException) -> bool:
        """Set the time of the next attempt to the beginning of the run."""
        return super().retry(task, 0.0 * at, error)


class NeverLocksTheLane(Scheduler):
    """Runs the records of a lane at the same time."""

    def _pop(self, owned: OwnedPartition, lane: Lane) -> Queued:
        record = super()._pop(owned, lane)
        if lane.queue and not lane.is_parallel:
            self._make_ready(owned, lane, 0.0)
        return record


class RunsTheNewestFirst(Scheduler):
    """Runs the last record of a lane first."""

    def _pop(self, owned: OwnedPartition, lane: Lane) -> Queued:
        lane.queue.rotate(1)
        record = super()._pop(owned, lane)
        lane.queue.rotate(-1)
        return record


class KeepsRunningAfterTheDrain(Scheduler):
    """Accepts the results of handlers that still run after the timeout of the revocation."""

    def disown(self, partitions: Iterable[tuple[str, int]]) -> list[Task]:  # noqa: ARG002
        """Disown no task."""
        return []


class ForgetsWhatRuns(Scheduler):
    """Does not report the records whose handlers still run when their partition is released."""

    def disown(self, partitions: Iterable[tuple[str, int]]) -> list[Task]:
        """Report no task."""
        super().disown(partitions)
        return []


class StartsDuringRevocations(Scheduler):
    """Starts the queued records of a partition that is being revoked."""

    def close(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Close no partition."""


class RetriesAfterRevocations(Scheduler):
    """Keeps the pending attempts of a partition that is revoked."""

    def close(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Add the pending attempts again."""
        retries = list(self._retries)
        super().close(partitions)
        for task in retries:
            if task.owned.is_closing:
                self._retries.add(task.began_at + 0.1, task)


class NeverWakesHeldLanes(Scheduler):
    """Forgets the lanes that wait for space in the metadata."""

    def _resume_held(self, owned: OwnedPartition, now: Instant) -> None:
        pass


class IsNeverFull(Scheduler):
    """Accepts records without a limit."""

    def pause_full(self) -> list[TopicPartition]:
        """Pause no partition."""
        return []


class NeverHasSpaceAgain(Scheduler):
    """Never resumes a partition that was full."""

    def resume_spacious(self) -> list[TopicPartition]:
        """Resume no partition."""
        return []


class TakesCommitsForDone(Scheduler):
    """Treats a commit as successful when it is sent, so that a failed commit is never repeated."""

    def commits(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Record the offsets as committed immediately."""
        offsets = super().commits(partitions)
        self.committed(offsets)
        return offsets


class PrefersTheBusyLane(Scheduler):
    """Gives the next turn to the lane that had the last turn."""

    def _make_ready(self, owned: OwnedPartition, lane: Lane, now: Instant) -> None:
        super()._make_ready(owned, lane, now)
        owned.ready.rotate(1)


class PrefersTheBusyPartition(Scheduler):
    """Gives the next turn to the partition that had the last turn, while it has ready lanes."""

    def _enter(self, owned: OwnedPartition, now: Instant) -> None:
        was_in_turn = owned.is_in_turn
        super()._enter(owned, now)
        if owned.is_in_turn and not was_in_turn:
            self._turns.rotate(1)


class SplitsInDisorder(Scheduler):
    """Puts the records of a failed batch back in the wrong order."""

    def split(self, task: Task, now: Instant) -> bool:
        """Reverse the records of the batch."""
        task.records = task.records[::-1]
        return super().split(task, now)


class ForgetsSplitRecords(Scheduler):
    """Lets the records of a split batch wait with their lane for space in the metadata."""

    def split(self, task: Task, now: Instant) -> bool:
        """Hold the lane again that was held before."""
        owned = task.owned
        held = list(owned.held)
        is_split = super().split(task, now)
        if held and held[0] in owned.ready:
            self._hold(owned, held[0])
        return is_split


class KeepsTruncatedRecords(Scheduler):
    """Keeps unfinished records that a consumer receives again after its log was truncated and written again."""

    def _restart(self, owned: OwnedPartition, offset: int, now: Instant) -> None:
        pass


class CountsNoAttempts(Scheduler):
    """Treats each attempt of a record as its first attempt."""

    def take(self, now: Instant) -> Task | None:
        """Forget the earlier attempts."""
        task = super().take(now)
        if task is not None:
            task.attempt = 1
        return task
