"""What of the consumed offsets is stored by the application and what is known to be committed.

With `enable.auto.offset.store` a record counts as consumed when it is handed out; without it the application says so
through `store_offsets`, and that is remembered here, because librdkafka has no way to read it back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import OFFSET_INVALID

from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.types import BrokerError, OffsetAndMetadata, Offsets, TopicPartition


class OffsetBook:
    """The offsets of one session. Wants the fair_lock held, as the fetcher does."""

    def __init__(self, fetcher: Fetcher, *, stores_by_itself: bool) -> None:
        self._fetcher = fetcher
        self.stores_by_itself = stores_by_itself
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, int] = {}

    def store(self, partition: TopicPartition, offset: OffsetAndMetadata | None) -> None:
        """Remember what the application has consumed of an assigned partition; None: nothing any more."""
        if offset is None:
            self._stored.pop(partition, None)
        else:
            self._stored[partition] = offset

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget everything of these: their next assignment starts from other facts."""
        for partition in partitions:
            self._stored.pop(partition, None)
            self._committed.pop(partition, None)

    def committed_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that is known to be committed of each of these partitions, where one is."""
        return {partition: self._committed[partition] for partition in partitions if partition in self._committed}

    def uncommitted(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is consumed and not known to be committed, of these partitions (None: of all that are assigned).

        As in librdkafka, only what lies above the offset that is known to be committed: a rewind is committed when
        the application says so itself.
        """
        return {
            partition: offset
            for partition, offset in self.stored().items()
            if offset.offset > self._committed.get(partition, OFFSET_INVALID)
            and (partitions is None or partition in partitions)
        }

    def stored(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What counts as consumed of the assignment, committed or not."""
        return self._fetcher.consumed() if self.stores_by_itself else dict(self._stored)

    def committed(self, offsets: Offsets, errors: Mapping[TopicPartition, BrokerError | None]) -> None:
        """Take in a commit's end."""
        for partition, offset in offsets.items():
            if partition in errors and errors[partition] is None:
                self._committed[partition] = offset.offset
