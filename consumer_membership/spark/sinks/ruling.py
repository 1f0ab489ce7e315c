"""The rule of every fenced sink: who may write a batch, and from which offset on.

A sink keeps the fence of who wrote a partition last beside the data, published together with it. The next batch is
held against it:

- the stored rank is higher: whoever holds the batch was replaced, and nothing of it is written. By a later attempt of
  the same member, or by a later run of its pipeline, it was replaced for good. Another member of its own run, or of
  another pipeline in the group, had the partition while it was away: it can come back;
- the stored offset lies behind the batch's first: an attempt died after it had written and before Kafka heard of it,
  so these records are there already and are left out;
- otherwise the batch is written, and its fence stored.

Pure: no store is read or written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.errors import FencedError
from consumer_membership.spark.context import Fence, Partition, SinkContext, described, is_of_a_later_run


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFence:
    """What a sink keeps of a partition: up to where it is written, by whom, and with which rank.

    `writer` is the `group.instance.id` of the member that wrote last.
    """

    next_offset: int
    epoch: int
    attempt: int
    writer: str

    @property
    def rank(self) -> tuple[int, int]:
        """As `Fence.rank`."""
        return (self.epoch, self.attempt)


#: Of a partition that nobody has written yet: every rank is higher, and no record is there.
UNWRITTEN = StoredFence(next_offset=0, epoch=-1, attempt=-1, writer="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What is left to write of a batch.

    `positions` has the offset from which each partition of the batch is to be written, and `fences` what to store with
    it. `is_empty`: every record is there already. `is_whole`: none is.
    """

    positions: Mapping[Partition, int]
    fences: Mapping[Partition, StoredFence]
    is_empty: bool
    is_whole: bool


def rule(context: SinkContext, stored: Mapping[Partition, StoredFence], *, remedy: str) -> Ruling:
    """What may be written of a batch, given what is stored of its partitions; `stored` may lack some.

    `remedy` is the end of the error's text: what to do if the group was deleted, so that its epochs began anew.

    Raises:
        FencedError: somebody with a higher rank wrote one of the partitions. Nothing of the batch may be written.
    """
    positions: dict[Partition, int] = {}
    fences: dict[Partition, StoredFence] = {}
    is_empty = is_whole = True
    for part, fence in zip(context.ranges, context.fences, strict=True):
        place = part.place
        last = stored.get(place, UNWRITTEN)
        if last.rank > fence.rank:
            raise _fenced(context, fence, last, remedy)
        positions[place] = max(part.first, last.next_offset)
        is_empty = is_empty and last.next_offset >= part.next_offset
        is_whole = is_whole and last.next_offset <= part.first
        fences[place] = StoredFence(
            next_offset=max(part.next_offset, last.next_offset),
            epoch=fence.epoch,
            attempt=fence.attempt,
            writer=context.instance_id,
        )
    return Ruling(positions=positions, fences=fences, is_empty=is_empty, is_whole=is_whole)


def said(context: SinkContext) -> str:
    """The partitions and offsets of a batch, for a text."""
    return described(context.ranges)


def _fenced(context: SinkContext, mine: Fence, last: StoredFence, remedy: str) -> FencedError:
    return FencedError(
        f"group {mine.group!r}, {mine.topic}-{mine.partition}: {context.instance_id!r} (epoch {mine.epoch}, attempt"
        f" {mine.attempt}) was replaced: {last.writer!r} (epoch {last.epoch}, attempt {last.attempt}) wrote last, up to"
        f" offset {last.next_offset}. Nothing of this batch was written ({said(context)}). If nobody replaced it but"
        f" the group was deleted and its epochs began anew, {remedy}",
        is_final=_is_final(context, last),
    )


def _is_final(context: SinkContext, last: StoredFence) -> bool:
    """Whether the place in the group that this attempt has is another's for good."""
    if last.attempt <= context.attempt:
        return False
    pipeline = last.writer.rpartition("-")[0]
    is_replaced = pipeline == context.pipeline and is_of_a_later_run(last.attempt, than=context.attempt)
    return last.writer == context.instance_id or is_replaced
