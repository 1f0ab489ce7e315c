"""Commits the offsets of finished records: periodically, and before partitions are given up.

Each commit contains, for each partition, the offset of its first unfinished record, and as metadata the finished
records beyond it. The member sends commits in the order in which they are made, so that no committed offset goes back.

The outputs of a record are acknowledged by the brokers before a commit covers the record. `TransactionalCommits` writes
outputs and offsets together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from math import inf
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import OutputError
from consumer_membership.processing.outputs import OutputProducer
from consumer_membership.processing.work import Work
from consumer_membership.runtime.application.partition_offsets import placed
from consumer_membership.types import Instant, OffsetAndMetadata, TopicPartition

_log = partial(logging.getLogger, "consumer_membership.processing")

#: How soon outputs are passed to the producer, once a handler has returned one.
_OUTPUTS_S = 0.05
#: How long a commit waits for the acknowledgments of outputs: periodically, and before partitions are given up.
_PERIODIC_FLUSH_S, _FINAL_FLUSH_S = 1.0, 10.0


class FinishedCommits(Protocol):
    """Commits the offsets of finished records, with their outputs; used by the poll loop only."""

    #: Whether a record that an earlier owner finished must not be processed again.
    must_not_repeat: bool

    @property
    def tick_s(self) -> float:
        """The longest time between two calls of `tick`."""

    def prepare(self) -> None:
        """Called with each assignment, before its committed offsets are read."""

    def tick(self, now: Instant) -> None:
        """Commit if it is time.

        Raises:
            MembershipError: outputs cannot be written, so the processor has to end.
        """

    def on_commit(self, error: KafkaError | None, partitions: list[PartitionOffset]) -> None:
        """Receive the result of a commit of the consumer; called in a poll."""

    def commit(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Commit all finished records of these partitions and wait for the result; failures are logged."""

    def close(self) -> None:
        """Release what the commits needed."""


class MetadataLimit:
    """The broker's limit of commit metadata in bytes, as far as it is known.

    A broker with a smaller limit rejects a commit with OFFSET_METADATA_TOO_LARGE; then the limit is halved until the
    broker accepts.
    """

    def __init__(self, work: Work, value: int) -> None:
        self._work = work
        self.value = value

    def halve(self) -> bool:
        """Halve the limit; return whether there is a smaller one."""
        if not self.value:
            return False
        self.value //= 2
        _log().warning(
            "The broker rejects commits whose metadata has more bytes than its offset.metadata.max.bytes; continuing "
            "with %d bytes. Set offset.metadata.max.bytes of the processor to the broker's value",
            self.value,
        )
        with self._work.lock:
            for owned in self._work.scheduler.partitions.values():
                owned.offsets.capacity = self.value
        return True


class OffsetCommits:
    """Commits offsets with the member's requests.

    Args:
        consumer: The consumer.
        work: The scheduler under its lock.
        interval_s: How often offsets are committed.
        limit: The limit of the metadata.
        outputs: Writes outputs; the offset of a record is committed when they are acknowledged.
    """

    must_not_repeat = False

    def __init__(
        self, consumer: Consumer, work: Work, interval_s: float, limit: MetadataLimit, outputs: OutputProducer
    ) -> None:
        self._consumer = consumer
        self._work = work
        self._interval_s = interval_s
        self._limit = limit
        self._outputs = outputs
        self._due_at = work.now() + interval_s
        #: Whether a periodic commit has not been answered yet.
        self._is_pending = False

    @property
    def tick_s(self) -> float:
        """The longest time between two calls of `tick`; short once handlers have returned outputs."""
        return _OUTPUTS_S if self._outputs.has_started else inf

    def prepare(self) -> None:
        """Do nothing."""

    def tick(self, now: Instant) -> None:
        """Pass outputs to the producer; begin a commit if the interval is over and the last one is answered.

        Raises:
            OutputError: an output cannot be written.
        """
        if self._is_pending or now < self._due_at:
            if self._work.scheduler.has_outputs:
                self._send_outputs()
            return
        offsets = self._offsets(None, _PERIODIC_FLUSH_S)
        if offsets is None:
            return
        self._due_at = now + self._interval_s
        if offsets:
            self._is_pending = True
            self._consumer.commit(offsets=listed(offsets), asynchronous=True)

    def on_commit(self, error: KafkaError | None, partitions: list[PartitionOffset]) -> None:  # noqa: ARG002 - see the protocol
        """Receive the result of a periodic commit; called in a poll."""
        self._is_pending = False
        self._note(partitions)

    def commit(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Commit the finished records of these partitions, again with a smaller limit if the metadata is too large."""
        given_up = list(partitions)
        try:
            while offsets := self._offsets(given_up, _FINAL_FLUSH_S):
                limit = self._limit.value
                self._commit_now(offsets)
                if self._limit.value == limit:
                    return
        except OutputError as refused:
            _log().warning("Offsets of finished records are not committed: %s", refused)
            return
        if offsets is None:
            _log().warning("Offsets of finished records are not committed: their outputs are not acknowledged")

    def close(self) -> None:
        """Release the producer of outputs."""
        self._outputs.close()

    def _commit_now(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            self._note(self._consumer.commit(offsets=listed(offsets), asynchronous=False))
        except KafkaException as refused:
            error = refused.args[0]
            if error.code() != KafkaError.OFFSET_METADATA_TOO_LARGE or not self._limit.halve():
                _log().warning("Offset commit for partitions %s failed: %s", _named(offsets), error.str())

    def _offsets(
        self, partitions: Iterable[tuple[str, int]] | None, flush_s: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        """Return the offsets to commit, when all outputs before them are acknowledged; None if they are not."""
        with self._work.lock:
            offsets = self._work.scheduler.commits(partitions)
            outputs = self._work.scheduler.take_outputs()
        self._outputs.send(outputs)
        return offsets if self._outputs.flush(flush_s) else None

    def _send_outputs(self) -> None:
        with self._work.lock:
            outputs = self._work.scheduler.take_outputs()
        self._outputs.send(outputs)

    def _note(self, partitions: list[PartitionOffset]) -> None:
        """Note committed offsets; log the others."""
        done: dict[TopicPartition, OffsetAndMetadata] = {}
        is_too_large = False
        for one in partitions:
            partition = TopicPartition(one.topic, one.partition)
            if one.error is None:
                done[partition] = OffsetAndMetadata(offset=one.offset, metadata=one.metadata or "")
            elif one.error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                is_too_large = True
            else:
                _log().warning("Offset commit for partition %s-%d failed: %s", *partition, one.error.str())
        with self._work.lock:
            self._work.scheduler.committed(done)
        if is_too_large and self._limit.halve():
            self._due_at = self._work.now()


def listed(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[PartitionOffset]:
    """Return offsets and metadata as confluent-kafka takes them."""
    return [placed(PartitionOffset, partition, at) for partition, at in offsets.items()]


def _named(offsets: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(offsets))
