"""A commit that is on its way while its application does something else."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from consumer_membership.clients.faults import CommitFailedError, at_the_door
from consumer_membership.clients.outcomes import outcome, overall_error
from consumer_membership.errors import CommitError
from consumer_membership.runtime.application.commits import Commits
from consumer_membership.runtime.application.data_plane import domain_offset
from consumer_membership.runtime.application.fetcher import key_of
from consumer_membership.runtime.application.notices import kafka_error
from consumer_membership.types import TIMED_OUT_CODE, Offsets


def domain_offsets(offsets: list[TopicPartition] | None) -> Offsets | None:
    """Where each partition is to be committed; those without an offset are left out. None: what is consumed."""
    if offsets is None:
        return None
    return {key_of(one): at for one in offsets if (at := domain_offset(one)) is not None}


class PendingCommit:
    """What `Consumer.begin_commit` returns; for one thread."""

    def __init__(self, commits: Commits, commit_id: int, wanted: Offsets, asked: list[TopicPartition]) -> None:
        self._commits = commits
        self._commit_id = commit_id
        self._wanted = wanted
        self._asked = asked
        self._outcome: list[TopicPartition] | CommitError | None = None

    @at_the_door
    def result(self) -> list[TopicPartition]:
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

    def _end(self) -> list[TopicPartition]:
        errors = self._commits.end(self._commit_id)
        failure = overall_error(errors)
        if failure is not None:
            words = str(failure) if failure.message else kafka_error(failure).str()
            raise CommitFailedError(f"Commit failed: {words}", failure.code)
        return outcome(self._wanted, errors, self._asked)
