"""Offset lookups of librdkafka that are cut short: a late answer could overwrite a newer position.

librdkafka looks up logical start offsets, and applies `auto.offset.reset` when a position is not in the log any more.
If the partition is given up or sought while the request is in flight, librdkafka treats the answer as outdated and
starts a timer of 0.5 s that looks up again, whatever start the partition has by then (`rd_kafka_toppar_offset_retry`,
2.16): the partition would restart at its beginning, or at its end. No call of the API stops that timer. It belongs to
the handle, so another handle has to fetch such a partition.

The group's partitions nearly always start at numbers, so this costs one check of the handle's state when a partition
starts, and nothing per record.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException

from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.types import TopicPartition

if TYPE_CHECKING:
    from consumer_membership.librdkafka import LibrdkafkaConsumer

#: The end of the log that librdkafka has after a fetch error; before the first response it has OFFSET_INVALID.
_REFUSED = -1
#: Starts whose offset the group's coordinator provides; after that, only `auto.offset.reset` needs a lookup.
_WITHOUT_OFFSET = (OFFSET_INVALID, OFFSET_STORED)


class LookUps:
    """The partitions of one handle for which a lookup may be running; used under the handle's lock.

    `resets_by_itself`: the handle has an `auto.offset.reset` for which it looks up offsets.
    """

    def __init__(self, *, resets_by_itself: bool) -> None:
        self._resets_by_itself = resets_by_itself
        #: Partitions of the group with a logical start: their leaders did not return a number in time.
        self._of_group: set[TopicPartition] = set()
        self._cut_short: set[TopicPartition] = set()
        #: Whether a partition with such a lookup starts elsewhere now: the handle has to be replaced before a record is
        #: taken.
        self.has_stale_lookup = False

    def left_to_handle(self, partition: TopicPartition) -> None:
        """Note that this partition of the group begins at a logical offset."""
        self._of_group.add(partition)

    def cut_short(self, handle: LibrdkafkaConsumer, partition: TopicPartition, offset: int) -> None:
        """Note that a partition with this logical start is given up, or sought, before its first record.

        If the handle has a fetch response of the partition, its lookup is over. For a partition of the group, that
        response may be from an earlier assignment, so it always counts; there are few such partitions.
        """
        is_looked_up = self._resets_by_itself or offset not in _WITHOUT_OFFSET
        if is_looked_up and (partition in self._of_group or _end_known(handle, partition) < 0):
            self._cut_short.add(partition)
        self._of_group.discard(partition)

    def begins(self, handle: LibrdkafkaConsumer, partition: TopicPartition) -> None:
        """Note that the handle starts this partition, or continues it at another offset.

        If the partition's last fetch failed, its position may no longer exist, and a lookup may be running.
        """
        self._of_group.discard(partition)
        is_reset = self._resets_by_itself and _end_known(handle, partition) == _REFUSED
        if is_reset or partition in self._cut_short:
            self.has_stale_lookup = True

    def forget(self) -> None:
        """Forget the interrupted lookups: another handle fetches now."""
        self._cut_short.clear()
        self.has_stale_lookup = False


def _end_known(handle: LibrdkafkaConsumer, partition: TopicPartition) -> int:
    """The end of the log according to the last fetch response; does not wait."""
    with suppress(KafkaException):  # it does not know the partition
        known = handle.get_watermark_offsets(PartitionOffset(*partition), cached=True)
        if known is not None:
            return known[1]
    return OFFSET_INVALID
