"""The rule of all fenced sinks: which attempt may write a batch, and from which offset on.

A sink stores the fence of the last writer of a partition together with the data. Each batch is compared with it:

- The stored rank is higher: this attempt was replaced, and nothing of the batch is written. If a later attempt of the
  same member or a later run of its pipeline has written, the replacement is permanent. If another member of its run, or
  of another pipeline in the group, has written, it owned the partition in the meantime, and this member can return.
- The stored offset is after the first offset of the batch: an attempt died after it had written, and before it
  committed to Kafka. These records are left out.
- Otherwise the batch is written, and its fence is stored.

This module reads and writes no store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.errors import FencedError
from consumer_membership.spark.context import Fence, Partition, SinkContext, described, is_of_a_later_run


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFence:
    """The stored fence of a partition: the next offset, and the rank of the last writer.

    `writer` is the `group.instance.id` of the last writer.
    """

    next_offset: int
    epoch: int
    attempt: int
    writer: str

    @property
    def rank(self) -> tuple[int, int]:
        """The rank, as in `Fence.rank`."""
        return (self.epoch, self.attempt)


#: The fence of a partition without data: every rank is higher.
UNWRITTEN = StoredFence(next_offset=0, epoch=-1, attempt=-1, writer="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The part of a batch that must be written.

    `positions` has the first offset to write of each partition, `fences` the fences to store with it. `is_empty`: all
    records are written already. `is_whole`: no record is written yet.
    """

    positions: Mapping[Partition, int]
    fences: Mapping[Partition, StoredFence]
    is_empty: bool
    is_whole: bool


def rule(context: SinkContext, stored: Mapping[Partition, StoredFence], *, remedy: str) -> Ruling:
    """Return the part of a batch to write, given the stored fences of its partitions (without data: no fence).

    `remedy` is the end of the error's text: what to do if the group was deleted and its epochs started again.

    Raises:
        FencedError: a writer with a higher rank wrote one of the partitions; nothing of the batch may be written.
    """
    positions: dict[Partition, int] = {}
    fences: dict[Partition, StoredFence] = {}
    is_empty = is_whole = True
    for part, fence in zip(context.ranges, context.fences, strict=True):
        partition = part.topic_partition
        last = stored.get(partition, UNWRITTEN)
        if last.rank > fence.rank:
            raise _fenced(context, fence, last, remedy)
        positions[partition] = max(part.first, last.next_offset)
        is_empty = is_empty and last.next_offset >= part.next_offset
        is_whole = is_whole and last.next_offset <= part.first
        fences[partition] = StoredFence(
            next_offset=max(part.next_offset, last.next_offset),
            epoch=fence.epoch,
            attempt=fence.attempt,
            writer=context.instance_id,
        )
    return Ruling(positions=positions, fences=fences, is_empty=is_empty, is_whole=is_whole)


def batch_name(context: SinkContext) -> str:
    """Return the partitions and offsets of a batch, for messages."""
    return described(context.ranges)


def _fenced(context: SinkContext, mine: Fence, last: StoredFence, remedy: str) -> FencedError:
    return FencedError(
        f"group {mine.group!r}, {mine.topic}-{mine.partition}: {context.instance_id!r} (epoch {mine.epoch}, attempt"
        f" {mine.attempt}) was replaced: {last.writer!r} (epoch {last.epoch}, attempt {last.attempt}) wrote last, up to"
        f" offset {last.next_offset}. Nothing of this batch was written ({batch_name(context)}). If it was not"
        f" replaced, but the group was deleted and its epochs started again, {remedy}",
        is_final=_is_final(context, last),
    )


def _is_final(context: SinkContext, last: StoredFence) -> bool:
    """Return whether this attempt has permanently lost its place in the group."""
    if last.attempt <= context.attempt:
        return False
    pipeline = last.writer.rpartition("-")[0]
    is_replaced = pipeline == context.pipeline and is_of_a_later_run(last.attempt, than=context.attempt)
    return last.writer == context.instance_id or is_replaced
