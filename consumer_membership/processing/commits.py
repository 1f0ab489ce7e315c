"""FinishedCommits the offsets of finished records: periodically, and before partitions are given up.

Each commit contains, for each partition, the offset of its first unfinished record, and as metadata the finished
records beyond it. The member sends commits in the order in which they are made, so that none goes back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.clients.consumer import Consumer
from consumer_membership.processing.work import Work
from consumer_membership.types import Instant, OffsetAndMetadata, TopicPartition

_log = logging.getLogger("consumer_membership.processing")


class FinishedCommits(Protocol):
    """FinishedCommits the offsets of finished records, with their outputs; used by the poll loop only."""

    def tick(self, now: Instant) -> None:
        """Commit if it is time; does not wait longer than one request takes."""

    def commit(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Commit all finished records of these partitions and wait for the result; failures are logged."""

    def close(self) -> None:
        """Release what the commits needed."""


class OffsetCommits:
    """FinishedCommits offsets without outputs.

    `limit` is the broker's limit of the metadata in bytes, as far as it is known: a broker with a smaller limit rejects
    a commit with OFFSET_METADATA_TOO_LARGE, and then the limit is halved until the broker accepts.
    """

    def __init__(self, consumer: Consumer, work: Work, interval_s: float, limit: int) -> None:
        self._consumer = consumer
        self._work = work
        self._interval_s = interval_s
        self.limit = limit
        self._due_at = monotonic() + interval_s
        #: Whether a periodic commit has not been answered yet.
        self._is_pending = False

    def tick(self, now: Instant) -> None:
        """Begin a commit if the interval is over and the last one is answered."""
        if self._is_pending or now < self._due_at:
            return
        self._due_at = now + self._interval_s
        offsets = self._offsets(None)
        if offsets:
            self._is_pending = True
            self._consumer.commit(offsets=_listed(offsets), asynchronous=True)

    def on_commit(self, _: KafkaError | None, partitions: list[PartitionOffset]) -> None:
        """Receive the result of a periodic commit; called in a poll."""
        self._is_pending = False
        self._note(partitions)

    def commit(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Commit the finished records of these partitions, again with a smaller limit if the metadata is too large."""
        given_up = list(partitions)
        while offsets := self._offsets(given_up):
            limit = self.limit
            try:
                self._note(self._consumer.commit(offsets=_listed(offsets), asynchronous=False))
            except KafkaException as refused:
                error = refused.args[0]
                if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE and self._shrink():
                    continue
                _log.warning("Offset commit for partitions %s failed: %s", _named(offsets), error.str())
                return
            if self.limit == limit:
                return

    def close(self) -> None:
        """Release nothing: the consumer is the processor's."""

    def _offsets(self, partitions: Iterable[tuple[str, int]] | None) -> Mapping[TopicPartition, OffsetAndMetadata]:
        with self._work.lock:
            return self._work.scheduler.commits(partitions)

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
                _log.warning("Offset commit for partition %s-%d failed: %s", *partition, one.error.str())
        with self._work.lock:
            self._work.scheduler.committed(done)
        if is_too_large:
            self._shrink()

    def _shrink(self) -> bool:
        """Halve the limit of the metadata; return whether there is a smaller one."""
        if not self.limit:
            return False
        self.limit //= 2
        _log.warning(
            "The broker rejects commits whose metadata has more bytes than its offset.metadata.max.bytes; continuing "
            "with %d bytes. Set offset.metadata.max.bytes of the processor to the broker's value",
            self.limit,
        )
        with self._work.lock:
            for owned in self._work.scheduler.partitions.values():
                owned.offsets.capacity = self.limit
        self._due_at = monotonic()
        return True


def _listed(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[PartitionOffset]:
    return [PartitionOffset(*partition, at.offset, at.metadata, at.leader_epoch) for partition, at in offsets.items()]


def _named(offsets: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(offsets))
