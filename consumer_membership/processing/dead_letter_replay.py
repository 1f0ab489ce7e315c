"""Read a dead-letter topic, and put its records back to their original topics, once each.

A replay has a consumer group of its own, without members. Each of its transactions contains records for the original
topics and the offsets of their dead letters in this group. If the process is killed, the brokers abort the open
transaction, and the next replay with the same group continues from the committed offsets; its transactional id is the
same, so it also fences a process that still runs. Readers of the original topics need
`isolation.level=read_committed` (the default of librdkafka and of this package, not of Java) to skip aborted records.

A replay may select some of the dead letters. The offsets replayed beyond the first one that was left out are in the
metadata of the committed offset (`UnfinishedOffsets`), so a later replay puts back only the others.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer_membership.errors import FencedError, InternalError, MembershipError, TransactionAbortedError
from consumer_membership.processing.dead_letter_headers import DeadLetter
from consumer_membership.processing.dead_letter_topic import DeadLetterTopic, LetterSelection
from consumer_membership.processing.dead_letters import NO_CLIENT_LIMIT
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.outputs import ClientConfig, OutputRecord
from consumer_membership.processing.transactional_producer import TransactionalProducer
from consumer_membership.translation.offset_metadata import decode
from consumer_membership.types import OffsetAndMetadata

_log = partial(logging.getLogger, "consumer_membership.processing")

#: The most records of a transaction, and about how many bytes it may have.
TRANSACTION_RECORDS, _TRANSACTION_BYTES = 500, 10_000_000
#: The default of offset.metadata.max.bytes.
_METADATA_BYTES = 4096
#: Another producer has the transactional id.
_FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A selected dead letter that was not replayed, and the reason."""

    partition: int
    offset: int
    reason: str


@dataclass(slots=True, kw_only=True)
class ReplayReport:
    """What a replay did.

    Attributes:
        replayed: The number of records by target topic.
        replayed_before: The number of selected dead letters that an earlier replay had put back, of those that were
            read.
        duplicates: The number of dead letters of records that this replay has already put back. A record has several
            if its processor was killed before the commit, or if it failed in several groups.
        started_at: The first offset that was read, for each partition whose earlier dead letters were all replayed.
        left_out: The selected dead letters that could not be replayed.
    """

    replayed: Counter[str] = field(default_factory=Counter)
    replayed_before: int = 0
    duplicates: int = 0
    started_at: dict[int, int] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)


class DeadLetterReplay:
    """Puts the selected dead letters back, up to the present ends of the partitions.

    The record has its original key, value and timestamp, and its original headers with the number of replays. In its
    original topic it gets its original partition, so that it follows the other records of its key. If the topic would
    reject or soon delete a record with that timestamp, the record gets the present time. Several dead letters of one
    record put it back once.

    Args:
        source: The dead-letter topic, with the group of the replay.
        selection: The dead letters to replay.
        to: The topic for all records; None: their original topics.
        transaction_records: The most records of a transaction.
    """

    def __init__(
        self,
        source: DeadLetterTopic,
        selection: LetterSelection,
        *,
        to: str | None = None,
        transaction_records: int = TRANSACTION_RECORDS,
    ) -> None:
        self._source = source
        self._selection = selection
        self._to = to
        self._transaction_records = transaction_records
        self._targets: dict[str, _Target | None] = {}
        self._seen: set[bytes] = set()
        self.report = ReplayReport()

    def run(self, *, is_dry_run: bool = False) -> ReplayReport:
        """Replay the dead letters; with `is_dry_run` only report what would be replayed.

        Raises:
            ConfigurationError: the topic or a partition does not exist.
            FencedError: another replay with the same group was started.
            TransactionAbortedError: a transaction failed. Earlier ones were committed; another replay continues there.
            GroupError: a broker rejected a request.
            TransportError: no broker responded.
        """
        partitions = self._source.selected_partitions(self._selection)
        writer = None if is_dry_run else _Writer(self._source)
        try:
            # After the start of the producer: no earlier replay can still commit offsets.
            committed = self._source.committed(partitions)
            bounds = [self._source.bounds(partition) for partition in partitions]
            for partition, (first, end) in zip(partitions, bounds, strict=True):
                self._replay(partition, first, end, committed.get(partition), writer)
        finally:
            if writer is not None:
                writer.close()
        return self.report

    def _replay(
        self, partition: int, first: int, end: int, committed: OffsetAndMetadata | None, writer: _Writer | None
    ) -> None:
        start = first
        if committed is not None and committed.offset > first:
            self.report.started_at[partition] = start = committed.offset
        finished = None if committed is None else decode(committed.metadata, committed.offset)
        offsets = UnfinishedOffsets(None if committed is None else committed.offset, finished, _METADATA_BYTES)
        batch = _Batch(partition, offsets)
        for record in self._source.records(partition, start, self._selection.end_within(end)):
            if sum(self.report.replayed.values()) + len(batch.outputs) == self._selection.most:
                break
            letter = DeadLetter.of(record)
            is_new = offsets.admit(letter.offset)
            if not self._selection.includes(letter):
                continue
            if not is_new:
                self.report.replayed_before += 1
                continue
            if (output := self._output(letter)) is None:
                continue
            if not offsets.start(letter.offset):
                reason = (
                    "the offsets that were replayed out of order no longer fit into the metadata of a commit; replay "
                    "the earlier dead letters first, or use another group"
                )
                self._leave_out(letter, reason)
                continue
            offsets.finish(letter.offset)
            batch.add(output, is_duplicate=self._is_duplicate(letter))
            if batch.size >= _TRANSACTION_BYTES or len(batch.outputs) == self._transaction_records:
                self._commit(batch, writer)
        self._commit(batch, writer)

    def _is_duplicate(self, letter: DeadLetter) -> bool:
        """Return whether this replay has already put back the record of another dead letter."""
        identity = letter.identity
        if identity is None:
            return False
        is_duplicate = identity in self._seen
        self._seen.add(identity)
        return is_duplicate

    def _output(self, letter: DeadLetter) -> OutputRecord | None:
        """Return the record to write; None if it cannot be replayed, which is reported."""
        topic = self._to or letter.original_topic
        if topic is None:
            self._leave_out(letter, "its headers have no original topic; choose a topic with --to")
            return None
        if topic not in self._targets:
            self._targets[topic] = _Target.found(self._source, topic)
        target = self._targets[topic]
        if target is None:
            self._leave_out(letter, f"topic {topic!r} does not exist; create it, or choose another one with --to")
            return None
        return OutputRecord(
            topic=topic,
            value=letter.value,
            key=letter.key,
            headers=letter.replayed_headers(),
            partition=target.partition_of(letter),
            timestamp_ms=target.timestamp_of(letter),
        )

    def _leave_out(self, letter: DeadLetter, reason: str) -> None:
        self.report.left_out.append(LeftOut(partition=letter.partition, offset=letter.offset, reason=reason))

    def _commit(self, batch: _Batch, writer: _Writer | None) -> None:
        outputs, duplicates = batch.take()
        if not outputs and not duplicates:
            return
        offset = batch.offsets.to_commit()
        if offset is None:
            raise InternalError(f"{len(outputs)} dead letters are finished, but there is no offset to commit")
        if writer is not None:
            where = TopicPartition(self._source.topic, batch.partition, offset.offset, offset.metadata)
            writer.commit(outputs, where)
        batch.offsets.committed(offset)
        self.report.replayed.update(output.topic for output in outputs)
        self.report.duplicates += duplicates


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A topic to which records are replayed."""

    name: str
    partitions: int
    oldest_ms: float

    @classmethod
    def found(cls, source: DeadLetterTopic, name: str) -> _Target | None:
        """Return the topic, or None if it does not exist."""
        partitions = source.partition_count(name)
        if partitions is None:
            return None
        return cls(name=name, partitions=partitions, oldest_ms=time.time() * 1000 - source.greatest_age_ms(name))

    def partition_of(self, letter: DeadLetter) -> int | None:
        """Return the original partition; None: the key decides, in another topic or if the partition does not exist."""
        partition = letter.original_partition
        is_there = self.name == letter.original_topic and partition is not None and partition < self.partitions
        return partition if is_there else None

    def timestamp_of(self, letter: DeadLetter) -> int | None:
        """Return the original timestamp; None, which means the present time, if the topic would delete the record."""
        # Connect's dead letters have the original timestamp themselves.
        own = letter.original_timestamp_ms
        timestamp_ms = letter.timestamp_ms if own is None else own
        return timestamp_ms if timestamp_ms is not None and timestamp_ms >= self.oldest_ms else None


class _Batch:
    """The records of the next transaction, all from one partition."""

    def __init__(self, partition: int, offsets: UnfinishedOffsets) -> None:
        self.partition = partition
        self.offsets = offsets
        self.outputs: list[OutputRecord] = []
        self.size = 0
        self._duplicates = 0

    def add(self, output: OutputRecord, *, is_duplicate: bool) -> None:
        """Add a record; of a duplicate only the offset is part of the transaction."""
        if is_duplicate:
            self._duplicates += 1
            return
        self.outputs.append(output)
        self.size += output.size

    def take(self) -> tuple[list[OutputRecord], int]:
        """Remove and return the records and the number of duplicates."""
        taken = self.outputs, self._duplicates
        self.outputs, self.size, self._duplicates = [], 0, 0
        return taken


class _Writer:
    """Writes the transactions of one replay; its start fences an earlier replay with the same group."""

    def __init__(self, source: DeadLetterTopic) -> None:
        self._group = source.group
        self._metadata = source.group_metadata()
        self._config: ClientConfig = {
            **source.cluster_config,
            "transactional.id": source.group,
            # A key without an original partition gets the partition that Java's producers choose.
            "partitioner": "murmur2_random",
            "message.max.bytes": NO_CLIENT_LIMIT,
            "compression.type": "lz4",
            "log_level": 0,
        }
        self._producer = self._started()
        self._is_in_transaction = False

    def _started(self) -> TransactionalProducer:
        producer = TransactionalProducer(self._config, _log())
        try:
            producer.start()
        except KafkaException as refused:
            raise self._error(refused.args[0].str(), refused.args[0].code()) from refused
        return producer

    def commit(self, outputs: Sequence[OutputRecord], offset: TopicPartition) -> None:
        """Write the records and the offset of their dead letters, or neither."""
        if self._producer.may_have_late_requests:
            self._producer.close()
            self._producer = self._started()
        producer = self._producer
        try:
            producer.begin()
            self._is_in_transaction = True
            for output in outputs:
                producer.produce(output)
            producer.send_offsets([offset], self._metadata)
            producer.commit()
            self._is_in_transaction = False
        except KafkaException as refused:
            text = producer.failures.first or refused.args[0].str()
            self._abort()
            raise self._error(text, refused.args[0].code()) from refused
        except BaseException:
            self._abort()
            raise

    def _abort(self) -> None:
        with suppress(KafkaException):  # the brokers abort it at the start of the next replay
            self._producer.abort()
            self._is_in_transaction = False

    def _error(self, text: str, code: int) -> MembershipError:
        if code in _FENCED:
            return FencedError(f"another replay with group {self._group!r} was started", is_final=True)
        return TransactionAbortedError(
            f"a transaction failed: {text}; another replay with group {self._group!r} continues after the last "
            "committed transaction",
            code,
        )

    def close(self) -> None:
        """Release the producer."""
        if not self._is_in_transaction:  # otherwise it would wait for the brokers without a limit
            self._producer.close()
