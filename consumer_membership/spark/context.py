"""What a sink is called with beside its records, and what a sink is.

Kafka refuses the commit of a member that was replaced, but it cannot refuse what that member writes elsewhere: a task
that was stopped, or whose machine was cut off, goes on where it was. So the sink keeps the token of who wrote last
beside the data, in the same transaction, and refuses an older one (a fencing token): `Fence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

from confluent_kafka import Message, TopicPartition

#: A partition, by topic and number.
Partition: TypeAlias = tuple[str, int]


class BatchFormat(StrEnum):
    """What a sink gets as its batch."""

    #: `list[confluent_kafka.Message]`
    MESSAGES = "messages"
    #: `pyarrow.RecordBatch` with the columns of `batches.schema()`
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
    def place(self) -> Partition:
        """Topic and partition."""
        return (self.topic, self.partition)


#: A text names so many partitions of a batch, and how many more there are.
_NAMED = 3


def described(ranges: Sequence[OffsetRange]) -> str:
    """The records of a batch, for a text: `orders-0@17`, `orders-0@0..99`, and so on, in bounded length."""
    named = [f"{one.topic}-{one.partition}@{_offsets(one)}" for one in ranges[:_NAMED]]
    if len(ranges) > _NAMED:
        named.append(f"and {len(ranges) - _NAMED} more partitions")
    return ", ".join(named)


def _offsets(one: OffsetRange) -> str:
    last = one.next_offset - 1
    return str(last) if one.first == last else f"{one.first}..{last}"


def name_record(raised: BaseException, message: Message) -> None:
    """Add to an exception at which record it was raised; the `SinkError` shows it."""
    raised.add_note(f"at record {message.topic()}-{message.partition()}@{message.offset()}")


def notes_of(raised: BaseException) -> list[str]:
    """What was added to an exception."""
    return list(getattr(raised, "__notes__", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Who writes a batch's records of one partition, and where the next batch begins.

    `epoch` is the member epoch (classic: the generation) at which the records were fetched; it grows whenever a
    partition goes to another member. `attempt` tells attempts of one member apart, which a takeover leaves at the same
    epoch: it grows with each run of a pipeline and with each attempt of a task (`attempt_number`). `next_offset` is
    what the group commits after the batch.
    """

    group: str
    topic: str
    partition: int
    next_offset: int
    epoch: int
    attempt: int

    @property
    def place(self) -> Partition:
        """Topic and partition."""
        return (self.topic, self.partition)

    @property
    def rank(self) -> tuple[int, int]:
        """Who may write: nobody with a lower rank than the last one that wrote."""
        return (self.epoch, self.attempt)


#: Below a run's number; Spark counts the task attempts of one application from 0, and what exceeds these bits carries.
_TASK_BITS = 20
#: Between the numbers of two runs of which the later one saw the earlier one: room for 63 billion task attempts.
RUN_SPACING = 60_000


def attempt_number(run_number: int, task_attempt_id: int) -> int:
    """A number that is larger for a later run of a pipeline, and in one run for a later attempt; fits 64 bits.

    `run_number`: see `MemberPlan`; `task_attempt_id`: `TaskContext.taskAttemptId()`.
    """
    return (run_number << _TASK_BITS) + task_attempt_id


def run_within(attempt: int) -> int:
    """The number of the run that an attempt belongs to, unless its application had more than 2**20 task attempts."""
    return attempt >> _TASK_BITS


def is_of_a_later_run(attempt: int, than: int) -> bool:
    """Whether an attempt certainly belongs to a later run of the pipeline than another one.

    Of two runs that did not see each other and began within a minute this is not certain.
    """
    return attempt - than >= RUN_SPACING << _TASK_BITS


class TaskOwnership(Protocol):
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
    ownership: TaskOwnership

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
        noted = [(part, self.ownership.commit_metadata(part)) for part in self.ranges]
        # Left out where there is nothing to note: confluent-kafka takes no None, and commits a NUL for "".
        return [
            TopicPartition(*part.place, part.next_offset, metadata=note)
            if note
            else TopicPartition(*part.place, part.next_offset)
            for part, note in noted
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkUse:
    """What a job is about to do with its sink: the group's records of these partitions, as batches of this format.

    `is_on_driver`: this process is the driver, which sees the files, databases and brokers that its tasks see. A client
    of Spark Connect may be on another network, so nothing is looked up from it.
    """

    group: str
    batch_format: BatchFormat
    partitions: tuple[Partition, ...]
    is_on_driver: bool


BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


class Sink(Protocol[BatchT_contra]):
    """Anything that takes a batch: a function, or an object that is sent to the tasks (it must be picklable).

    It has done its work when it returns: then the offsets are committed. It may be called again with records that it
    has seen, whenever the call before failed or its task was lost.

    An object may have `prepare(instance, instance_id)`, called once in each attempt of a task before it joins the
    group, `close()`, called once after the last batch, and `commits_offsets = True`, if it commits the group's offsets
    itself (in a transaction of its own). It may also have `check_use(use)`, called before a job starts: it raises
    `ConfigurationError` for a use that cannot work, and returns what it found of its output, as a text for `check`.
    """

    def __call__(self, batch: BatchT_contra, context: SinkContext) -> None:
        """Write the batch."""
        ...
