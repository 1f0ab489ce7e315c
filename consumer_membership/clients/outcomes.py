"""Results of commits and committed offsets in confluent-kafka's form: partitions with their errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaError

from consumer_membership.clients.arguments import OnCommit
from consumer_membership.clients.exceptions import CommitFailedError, raises_as_confluent
from consumer_membership.errors import CommitError
from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.runtime.application.commits import Commits
from consumer_membership.runtime.application.notices import kafka_error
from consumer_membership.runtime.application.partition_offsets import domain_offset, key_of, placed
from consumer_membership.runtime.application.session_errors import NO_OFFSET_CODE
from consumer_membership.types import (
    TIMED_OUT_CODE,
    BrokerError,
    CommittedOffsets,
    OffsetAndMetadata,
    Offsets,
    TopicPartition,
)

Errors = Mapping[TopicPartition, BrokerError | None]
#: Partitions in the order of a call, each with the offset to commit if it has one.
RequestedOffsets = Sequence[tuple[TopicPartition, OffsetAndMetadata | None]]


class FailedPartition(PartitionOffset):
    """A TopicPartition whose `error` is set; only librdkafka can set it on the C type."""

    _error: KafkaError | None = None

    @property
    def error(self) -> KafkaError | None:  # type: ignore[override]  # the C type's attribute is read-only as well
        """Why this partition failed."""
        return self._error

    def set_error(self, error: KafkaError) -> None:
        """Set the error."""
        self._error = error

    def __eq__(self, other: object) -> bool:
        """Compare equal to any TopicPartition of this topic and partition; the C type compares only its own type."""
        return isinstance(other, PartitionOffset) and key_of(self) == key_of(other)

    def __ne__(self, other: object) -> bool:
        """Override the C type's method, which would take precedence over the one that Python derives."""
        return not self == other

    def __lt__(self, other: PartitionOffset) -> bool:
        """Order by topic and partition, also among plain partitions."""
        return key_of(self) < key_of(other)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __repr__(self) -> str:
        epoch = self.leader_epoch
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={epoch},error={self._error}}}"
        )

    __str__ = __repr__


def overall_error(errors: Errors) -> BrokerError | None:
    """Return the error of a commit that failed for every partition (the last error, as in librdkafka), else None."""
    found = list(errors.values())
    return found[-1] if found and None not in found else None


def with_errors(offsets: Offsets, errors: Errors, requested: Iterable[PartitionOffset]) -> list[PartitionOffset]:
    """Return the requested partitions with their errors; the offset is -1001 if there was nothing to commit."""
    keys = map(key_of, requested)
    return [_one(key, offsets.get(key), errors) for key in keys]


def _one(partition: TopicPartition, at: OffsetAndMetadata | None, errors: Errors) -> PartitionOffset:
    error = errors.get(partition)
    if error is None:
        return placed(PartitionOffset, partition, at)
    failed = placed(FailedPartition, partition, at)
    failed.set_error(kafka_error(error))
    return failed


def with_committed(committed: CommittedOffsets, requested: Iterable[PartitionOffset]) -> list[PartitionOffset]:
    """Return the requested partitions with their committed offsets or errors; -1001: no committed offset."""
    errors = {partition: at for partition, at in committed.items() if isinstance(at, BrokerError)}
    offsets = {partition: at for partition, at in committed.items() if isinstance(at, OffsetAndMetadata)}
    return with_errors(offsets, errors, requested)


def call_on_commit(on_commit: OnCommit, completed: CommitCompleted, reported: Iterable[TopicPartition]) -> None:
    """Call a user's on_commit with the error of the whole commit, or None, and the reported partitions."""
    partitions = [_one(one, completed.offsets.get(one), completed.errors) for one in sorted(reported)]
    if not completed.offsets:
        on_commit(KafkaError(NO_OFFSET_CODE), partitions)
        return
    error = overall_error(completed.errors)
    on_commit(None if error is None else kafka_error(error), partitions)


def domain_offsets(offsets: list[PartitionOffset] | None) -> Offsets | None:
    """Return the offset to commit for each partition that has one, or None for the processed offsets."""
    if offsets is None:
        return None
    return {key_of(one): at for one in offsets if (at := domain_offset(one)) is not None}


def requested_offsets(
    given: list[PartitionOffset] | None, assigned: list[PartitionOffset], wanted: Offsets
) -> RequestedOffsets:
    """Return the partitions for a commit's result: the given offsets as given, or those of all assigned partitions."""
    if given is not None:
        return [(key_of(one), domain_offset(one)) for one in given]
    return [(key, wanted.get(key)) for key in map(key_of, assigned)]


class PendingCommit:
    """The commit that `Consumer.begin_commit` started; use it in one thread."""

    def __init__(self, commits: Commits, commit_id: int, requested: RequestedOffsets) -> None:
        self._commits = commits
        self._commit_id = commit_id
        self._requested = requested
        self._outcome: list[PartitionOffset] | CommitError | None = None

    @raises_as_confluent
    def result(self) -> list[PartitionOffset]:
        """Wait for the coordinator's response and return the partitions with their errors, as in a synchronous commit.

        It may be called repeatedly, and inside callbacks. The response is kept until the first call.

        Raises:
            CommitError: the commit failed for every partition, or received no response in time; also a
                `KafkaException`.
        """
        if self._outcome is None:
            try:
                self._outcome = self._end()
            except CommitError as failed:
                self._outcome = failed
            except BaseException:  # Ctrl-C: a second call must not wait for a response that is no longer kept
                self._outcome = CommitError("the wait for this commit was interrupted", TIMED_OUT_CODE)
                raise
        if isinstance(self._outcome, CommitError):
            raise self._outcome
        return self._outcome

    def _end(self) -> list[PartitionOffset]:
        errors = self._commits.end(self._commit_id)
        failure = overall_error(errors)
        if failure is not None:
            message = str(failure) if failure.message else kafka_error(failure).str()
            raise CommitFailedError(f"Commit failed: {message}", failure.code)
        return [_one(partition, at, errors) for partition, at in self._requested]
