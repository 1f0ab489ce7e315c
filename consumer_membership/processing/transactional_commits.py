"""Commits outputs and offsets of finished records together, in transactions.

Every `interval_s`, or when many outputs wait, one transaction contains the outputs of all records that have finished
since the last one, and the offsets and metadata that describe these records. No handler waits for a transaction, and
none has written anything into it. After an abort, the next transaction contains the same outputs again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as PartitionOffset
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import FencedError, MembershipError, TransactionAbortedError
from consumer_membership.processing.commits import MetadataLimit, listed
from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.processing.scheduler import OwnedPartition
from consumer_membership.processing.transactions import TransactionInDoubtError, Transactions
from consumer_membership.processing.work import Work
from consumer_membership.translation.offset_metadata import decode
from consumer_membership.types import Instant, OffsetAndMetadata, Offsets

_log = partial(logging.getLogger, "consumer_membership.processing")

#: The interval of transactions: Kafka Streams' and the Parallel Consumer's. Readers of committed records wait for it.
TRANSACTION_S = 0.1
#: This number of outputs is written at once, before the interval is over. With 1,000, transactions limited the rate to
#: a third.
MANY_OUTPUTS = 10_000
#: The waits after aborted transactions.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
#: How often, and for how long, the transaction for partitions that are given up is tried.
_FINAL_ATTEMPTS, _FINAL_S = 3, 10.0


class _Content(NamedTuple):
    """The content of one transaction, and the number of outputs that it took of each partition."""

    offsets: Offsets
    outputs: list[OutputRecord]
    taken: list[tuple[OwnedPartition, int]]


class TransactionalCommits:
    """Commits outputs and offsets in transactions.

    Args:
        consumer: The consumer.
        work: The scheduler under its lock.
        transactions: Writes the transactions.
        limit: The limit of the metadata.
        interval_s: The time between two transactions.
    """

    must_not_repeat = True

    def __init__(
        self,
        consumer: Consumer,
        work: Work,
        transactions: Transactions,
        limit: MetadataLimit,
        interval_s: float = TRANSACTION_S,
    ) -> None:
        self._consumer = consumer
        self._work = work
        self._transactions = transactions
        self._limit = limit
        self._interval_s = interval_s
        self._due_at = work.now() + interval_s
        #: How many transactions have failed in a row.
        self._failures = 0
        #: The content of a transaction whose result is not known yet.
        self._in_doubt: _Content | None = None
        #: Whether a transaction failed permanently; then nothing more is committed.
        self._has_failed = False

    @property
    def tick_s(self) -> float:
        """The interval."""
        return self._interval_s

    def prepare(self) -> None:
        """Start the producer: it ends an open transaction that would block the read of committed offsets."""
        try:
            self._transactions.start()
        except TransactionAbortedError as unanswered:
            _log().debug("The transactional producer could not start yet: %s", unanswered)

    def tick(self, now: Instant) -> None:
        """Commit if the interval is over, or if many outputs wait; an aborted transaction is tried again later.

        Raises:
            OutputError: an output cannot be written.
            FencedError: another process has the transactional id.
            FatalTransactionError: the brokers refused the producer.
        """
        if now < self._due_at and (self._failures or not self._has_many_outputs()):
            return
        limit = self._limit.value
        try:
            self._commit(None)
        except (TransactionAbortedError, TransactionInDoubtError) as failed:
            if self._limit.value < limit:
                return  # again at once, with less metadata
            self._failures += 1
            pause_s = min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
            self._due_at = self._work.now() + pause_s
            _log().log(
                logging.WARNING if self._failures > 1 else logging.INFO,
                "Transaction failure number %d in a row; the next attempt follows in %.1f s: %s",
                self._failures,
                pause_s,
                failed,
            )
        else:
            self._failures = 0
            self._due_at = self._work.now() + self._interval_s

    def on_commit(self, error: KafkaError | None, partitions: list[PartitionOffset]) -> None:
        """Do nothing: the consumer commits nothing."""

    def commit(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Commit the finished records of these partitions in one transaction; a failure is logged.

        Then neither outputs nor offsets are written, and the next owner processes these records again.
        """
        given_up = list(partitions)
        attempts = Retrying(
            retry=retry_if_exception_type(TransactionAbortedError),
            stop=stop_after_attempt(_FINAL_ATTEMPTS) | stop_after_delay(_FINAL_S),
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
            reraise=True,
        )
        try:
            attempts(self._commit, given_up)
        except (MembershipError, TransactionInDoubtError) as refused:
            _log().warning(
                "Finished records of %s are not committed, and the next owner processes them again: %s",
                ", ".join(f"{topic}-{number}" for topic, number in sorted(given_up)),
                refused,
            )

    def close(self) -> None:
        """Release the producer."""
        self._transactions.close()

    # ---- one transaction ----

    def _has_many_outputs(self) -> bool:
        work = self._work
        if not work.scheduler.has_outputs:
            return False
        with work.lock:
            return sum(len(owned.outputs) for owned in work.scheduler.partitions.values()) >= MANY_OUTPUTS

    def _commit(self, partitions: Iterable[tuple[str, int]] | None) -> None:
        if self._has_failed:
            return
        try:
            if self._in_doubt is not None:
                self._end_doubt(self._in_doubt)
            content = self._content(partitions)
            if content.offsets:
                self._write(content)
        except (TransactionAbortedError, TransactionInDoubtError):
            raise
        except MembershipError:
            self._has_failed = True
            raise

    def _write(self, content: _Content) -> None:
        """Write a transaction, and note its offsets as committed."""
        metadata = self._consumer.consumer_group_metadata()
        try:
            self._transactions.commit(content.outputs, listed(content.offsets), metadata)
        except TransactionAbortedError as aborted:
            if aborted.code == KafkaError.OFFSET_METADATA_TOO_LARGE:
                self._limit.halve()
            raise
        except TransactionInDoubtError:
            self._in_doubt = content
            raise
        except FencedError as fenced:
            if fenced.is_final:
                raise
            # The next poll performs the loss, or the member joins again; its partitions were given up then.
            raise TransactionAbortedError(str(fenced), KafkaError.UNKNOWN_MEMBER_ID) from fenced
        self._note(content)

    def _end_doubt(self, content: _Content) -> None:
        """Determine the result of a transaction; nothing is written before."""
        if self._transactions.was_committed(listed(content.offsets)):
            self._note(content)
        self._in_doubt = None

    def _note(self, content: _Content) -> None:
        """Note that a transaction was committed, for the partitions that were not given up meanwhile."""
        scheduler = self._work.scheduler
        with self._work.lock:
            for owned, number in content.taken:
                if scheduler.partitions.get(owned.partition) is owned:
                    del owned.outputs[:number]
                    scheduler.committed({owned.partition: content.offsets[owned.partition]})

    def _content(self, partitions: Iterable[tuple[str, int]] | None) -> _Content:
        scheduler = self._work.scheduler
        with self._work.lock:
            offsets = {
                partition: at
                for partition, at in scheduler.commits(partitions).items()
                if _describes(at, scheduler.partitions[partition])
            }
            taken = [
                (scheduler.partitions[partition], len(scheduler.partitions[partition].outputs)) for partition in offsets
            ]
            outputs = [output for owned, _ in taken for output in owned.outputs]
        return _Content(offsets, outputs, taken)


def _describes(at: OffsetAndMetadata, owned: OwnedPartition) -> bool:
    """Return whether a commit describes all finished records.

    It does not if a broker has a smaller limit than expected: then the metadata omits the highest records, and their
    outputs would be written twice, by this owner and the next one. The partition waits until its metadata is shorter.
    """
    beyond = owned.offsets.finished_beyond
    if not beyond:
        return True
    described = decode(at.metadata, at.offset)
    return described is not None and described.count == beyond
