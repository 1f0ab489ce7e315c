"""What a sink is called with beside its records, and what a sink is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from confluent_kafka import TopicPartition

from consumer_membership.spark.fence import Fence


class BatchFormat(StrEnum):
    """What a sink gets as its batch."""

    #: `list[confluent_kafka.Message]`
    MESSAGES = "messages"
    #: `pyarrow.RecordBatch` with the columns of `batches.SCHEMA`
    ARROW = "arrow"
    #: `pandas.DataFrame` with the same columns
    PANDAS = "pandas"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The records of one partition in a batch: from `first` to before `next_offset`, `records` of them.

    There may be fewer records than offsets: compaction and transactions leave gaps.
    """

    topic: str
    partition: int
    first: int
    next_offset: int
    records: int

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return (self.topic, self.partition)


class Ownership(Protocol):
    """What a context asks the member."""

    def verify(self) -> None:
        """Return when the coordinator confirmed the member after this call; raise if it did not."""
        ...

    def group_metadata(self) -> bytes:
        """What `Producer.send_offsets_to_transaction` wants."""
        ...

    def commit_metadata(self, part: OffsetRange) -> str:
        """What the run notes beside the offset that follows these records; "" for nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """One call of a sink: which task makes it, and which records it is about.

    `ranges` and `fences` have one entry for each partition in the batch, in the same order (by topic, then partition);
    records of one partition are in the order of their offsets. `instance` counts from 0, `instance_id` is the static
    member's `group.instance.id`, `attempt` is the number in the fences, and `instances` how many members the run has,
    None where the task cannot know.
    """

    group: str
    pipeline: str
    instance: int
    instances: int | None
    instance_id: str
    attempt: int
    batch_format: BatchFormat
    ranges: tuple[OffsetRange, ...]
    fences: tuple[Fence, ...]
    ownership: Ownership

    def verify(self) -> None:
        """Return if the coordinator confirms, after this call began, that this member is what it takes itself for.

        For a sink that cannot keep a fence: it narrows the time in which a replaced task may still write to the one
        between this call and the write; a fence closes it.

        Raises:
            FencedError: it was replaced, or has lost its place for a while.
            TransportError: the coordinator did not answer, or not to the point.
        """
        self.ownership.verify()

    def group_metadata(self) -> bytes:
        """The member as `Producer.send_offsets_to_transaction` wants it (KIP-447)."""
        return self.ownership.group_metadata()

    def offsets(self) -> list[TopicPartition]:
        """The group's offsets behind this batch as `Producer.send_offsets_to_transaction` wants them.

        A drain's account of its records is in their metadata, and is committed by whoever commits the offsets.
        """
        found = []
        for part in self.ranges:
            note = self.ownership.commit_metadata(part)
            # Left out where there is nothing to note: confluent-kafka takes no None, and commits a NUL for "".
            found.append(
                TopicPartition(*part.place, part.next_offset, metadata=note)
                if note
                else TopicPartition(*part.place, part.next_offset)
            )
        return found


BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


class Sink(Protocol[BatchT_contra]):
    """Anything that takes a batch: a function, or an object that is sent to the tasks (it must be picklable).

    It has done its work when it returns: then the offsets are committed. It may be called again with records that it
    has seen, whenever the call before failed or its task was lost.

    An object may have `prepare(instance, instance_id)`, called once in each attempt of a task before it joins the
    group, `close()`, called once after the last batch, and `commits_offsets = True`, if it commits the group's offsets
    itself (in a transaction of its own).
    """

    def __call__(self, batch: BatchT_contra, context: SinkContext) -> None:
        """Write the batch."""
        ...
