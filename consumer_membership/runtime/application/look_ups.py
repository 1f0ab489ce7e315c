"""Look-ups of librdkafka's own that are cut short: their late answers would move a partition that begins elsewhere.

librdkafka looks up where a logical start is, and where `auto.offset.reset` is when a position is not in the log any
more. If the partition is given up or sought while the question is on its way, it takes the answer for outdated and
starts a timer of 0.5 s that looks up again, whatever start the partition has by then
(`rd_kafka_toppar_offset_retry`, 2.16): it would go on from its beginning once more, or from its end. Nothing that a
program may call stops that timer. It is the handle's, so that such a partition is fetched by another handle.

The group's partitions start at numbers, nearly always; so this costs a look at what the handle knows where a partition
begins, and nothing of a record.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException

from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.types import TopicPartition

if TYPE_CHECKING:
    from consumer_membership.librdkafka import LibrdkafkaConsumer

#: The end of the log that comes with a fetch's error; before the first answer librdkafka has OFFSET_INVALID.
_REFUSED = -1
#: Starts that the group's coordinator tells; nothing but `auto.offset.reset` is looked up after that.
_LEFT_OFF = (OFFSET_INVALID, OFFSET_STORED)


class LookUps:
    """Which of one handle's partitions may be looked up; used under the handle's lock.

    `resets_by_itself`: the handle has an `auto.offset.reset` by which it looks up.
    """

    def __init__(self, *, resets_by_itself: bool) -> None:
        self._resets_by_itself = resets_by_itself
        #: Partitions whose logical start is the group's: their leaders did not tell a number in time.
        self._of_group: set[TopicPartition] = set()
        self._cut_short: set[TopicPartition] = set()
        #: Whether one of those begins elsewhere: the handle is to be made anew before a record is taken from it.
        self.has_stale_lookup = False

    def left_to_handle(self, partition: TopicPartition) -> None:
        """The group's partition begins at a logical offset."""
        self._of_group.add(partition)

    def cut_short(self, handle: LibrdkafkaConsumer, partition: TopicPartition, offset: int) -> None:
        """A partition with this logical start is given up, or sought, before its first record.

        One that was fetched since it was made known is looked up no more. The group's may have been fetched in an
        earlier assignment, and count always: there are few, and an application may have many that nobody writes to.
        """
        is_looked_up = self._resets_by_itself or offset not in _LEFT_OFF
        if is_looked_up and (partition in self._of_group or _end_known(handle, partition) < 0):
            self._cut_short.add(partition)
        self._of_group.discard(partition)

    def begins(self, handle: LibrdkafkaConsumer, partition: TopicPartition) -> None:
        """The handle was told to begin with this partition, or to go on elsewhere.

        If the last that it heard of the partition is an error, it may be that the position is gone.
        """
        self._of_group.discard(partition)
        is_reset = self._resets_by_itself and _end_known(handle, partition) == _REFUSED
        if is_reset or partition in self._cut_short:
            self.has_stale_lookup = True

    def forget(self) -> None:
        """Another handle fetches now."""
        self._cut_short.clear()
        self.has_stale_lookup = False


def _end_known(handle: LibrdkafkaConsumer, partition: TopicPartition) -> int:
    """The end of the log as the last fetch's answer has it; waits for nothing."""
    with suppress(KafkaException):  # it does not know the partition
        known = handle.get_watermark_offsets(PartitionOffset(*partition), cached=True)
        if known is not None:
            return known[1]
    return OFFSET_INVALID
