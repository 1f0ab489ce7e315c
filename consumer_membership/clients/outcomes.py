"""What becomes of commits, and what is committed, as confluent-kafka tells it: partitions with their errors."""

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
#: Partitions in the order of a call, with the offset to commit where there is one.
Asked = Sequence[tuple[TopicPartition, OffsetAndMetadata | None]]


class FailedPartition(PartitionOffset):
    """A TopicPartition whose `error` is set; the C type's can only be set by librdkafka."""

    _error: KafkaError | None = None

    @property
    def error(self) -> KafkaError | None:  # type: ignore[override]  # the C type's attribute is read-only as well
        """Why this partition failed."""
        return self._error

    def set_error(self, error: KafkaError) -> None:
        """Set why it failed."""
        self._error = error

    def __eq__(self, other: object) -> bool:
        """Equal to any TopicPartition of this topic and partition; the C type compares its own kind only."""
        return isinstance(other, PartitionOffset) and key_of(self) == key_of(other)

    def __ne__(self, other: object) -> bool:
        """The C type has its own, which would win over the one that Python derives."""
        return not self == other

    def __lt__(self, other: PartitionOffset) -> bool:
        """In the order of topics and partitions, also among plain ones."""
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
    """The error of a commit that failed for every partition, the last one as in librdkafka; else None."""
    found = list(errors.values())
    return found[-1] if found and None not in found else None


def with_errors(offsets: Offsets, errors: Errors, asked: Iterable[PartitionOffset]) -> list[PartitionOffset]:
    """The partitions that were asked for, with their errors; offset -1001 where there was nothing to commit."""
    keys = map(key_of, asked)
    return [_one(key, offsets.get(key), errors) for key in keys]


def _one(partition: TopicPartition, at: OffsetAndMetadata | None, errors: Errors) -> PartitionOffset:
    error = errors.get(partition)
    if error is None:
        return placed(PartitionOffset, partition, at)
    failed = placed(FailedPartition, partition, at)
    failed.set_error(kafka_error(error))
    return failed


def with_committed(committed: CommittedOffsets, asked: Iterable[PartitionOffset]) -> list[PartitionOffset]:
    """The partitions that were asked for with what is committed of them, or their errors; offset -1001 for nothing."""
    errors = {partition: at for partition, at in committed.items() if isinstance(at, BrokerError)}
    offsets = {partition: at for partition, at in committed.items() if isinstance(at, OffsetAndMetadata)}
    return with_errors(offsets, errors, asked)


def call_on_commit(on_commit: OnCommit, completed: CommitCompleted) -> None:
    """Call a user's on_commit with the error of the whole, or None, and the partitions."""
    if not completed.offsets:
        on_commit(KafkaError(NO_OFFSET_CODE), [])
        return
    error = overall_error(completed.errors)
    partitions = [_one(partition, at, completed.errors) for partition, at in sorted(completed.offsets.items())]
    on_commit(None if error is None else kafka_error(error), partitions)


def domain_offsets(offsets: list[PartitionOffset] | None) -> Offsets | None:
    """Where each partition is to be committed; those without an offset are left out. None: what is consumed."""
    if offsets is None:
        return None
    return {key_of(one): at for one in offsets if (at := domain_offset(one)) is not None}


def asked_offsets(given: list[PartitionOffset] | None, assigned: list[PartitionOffset], wanted: Offsets) -> Asked:
    """What a commit's result repeats: the given offsets as they were given, or those of all assigned partitions."""
    if given is not None:
        return [(key_of(one), domain_offset(one)) for one in given]
    return [(key, wanted.get(key)) for key in map(key_of, assigned)]


class PendingCommit:
    """What `Consumer.begin_commit` returns; for one thread."""

    def __init__(self, commits: Commits, commit_id: int, asked: Asked) -> None:
        self._commits = commits
        self._commit_id = commit_id
        self._asked = asked
        self._outcome: list[PartitionOffset] | CommitError | None = None

    @raises_as_confluent
    def result(self) -> list[PartitionOffset]:
        """Wait for the coordinator's answer: the partitions with their errors, as of a synchronous commit.

        It may be asked for again, and inside callbacks. An answer is kept until it has been asked for.

        Raises:
            CommitError: (a `KafkaException`) it failed for every partition, or was not answered in time.
        """
        if self._outcome is None:
            try:
                self._outcome = self._end()
            except CommitError as failed:
                self._outcome = failed
            except BaseException:  # Ctrl-C: whoever asks again must not wait for what nobody keeps any more
                self._outcome = CommitError("the wait for this commit was interrupted", TIMED_OUT_CODE)
                raise
        if isinstance(self._outcome, CommitError):
            raise self._outcome
        return self._outcome

    def _end(self) -> list[PartitionOffset]:
        errors = self._commits.end(self._commit_id)
        failure = overall_error(errors)
        if failure is not None:
            words = str(failure) if failure.message else kafka_error(failure).str()
            raise CommitFailedError(f"Commit failed: {words}", failure.code)
        return [_one(partition, at, errors) for partition, at in self._asked]
