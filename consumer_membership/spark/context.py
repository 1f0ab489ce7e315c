"""The interface of sinks (`Sink`), and the context that a sink receives with each batch (`SinkContext`).

Kafka refuses the commit of a replaced member, but cannot refuse its writes to other systems: a task that was stopped,
or whose machine was cut off, continues where it was. So a sink stores a fencing token (`Fence`) with the data, in the
same transaction, and rejects a writer with an older token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

from confluent_kafka import Message, TopicPartition

from consumer_membership.clients.lease import Lease
from consumer_membership.errors import LeaseOverError

#: A partition, by topic and number.
Partition: TypeAlias = tuple[str, int]


class BatchFormat(StrEnum):
    """The type of the batches that a sink receives."""

    #: `list[confluent_kafka.Message]`
    MESSAGES = "messages"
    #: `pyarrow.RecordBatch` with the columns of `batches.schema()`
    ARROW = "arrow"
    #: `pandas.DataFrame` with the same columns
    PANDAS = "pandas"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The records of one partition in a batch: the offsets from `first` up to, not including, `next_offset`.

    `records` may be smaller than the number of offsets, because compaction and transactions leave gaps.
    """

    topic: str
    partition: int
    first: int
    next_offset: int
    records: int

    @property
    def topic_partition(self) -> Partition:
        """The topic and the partition number."""
        return (self.topic, self.partition)


#: A message names this many partitions of a batch, and the number of the others.
_NAMED = 3


def described(ranges: Sequence[OffsetRange]) -> str:
    """Return the partitions and offsets of a batch for a message of limited length: `orders-0@17`, `orders-0@0..99`."""
    named = [f"{one.topic}-{one.partition}@{_offsets(one)}" for one in ranges[:_NAMED]]
    if len(ranges) > _NAMED:
        named.append(f"and {len(ranges) - _NAMED} more partitions")
    return ", ".join(named)


def _offsets(one: OffsetRange) -> str:
    last = one.next_offset - 1
    return str(last) if one.first == last else f"{one.first}..{last}"


def name_record(raised: BaseException, message: Message) -> None:
    """Add the record at which an exception was raised as a note; the `SinkError` shows it."""
    raised.add_note(f"at record {message.topic()}-{message.partition()}@{message.offset()}")


def notes_of(raised: BaseException) -> list[str]:
    """Return the notes of an exception."""
    return list(getattr(raised, "__notes__", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The fencing token of the writer of one partition in a batch.

    Attributes:
        group: The group.
        topic: The topic.
        partition: The partition number.
        next_offset: The offset that the group commits after the batch.
        epoch: The member epoch (classic: the generation) at which the records were fetched. It grows whenever a
            partition moves to another member.
        attempt: The number of the task's attempt. It grows with each run of a pipeline and with each attempt of a task
            (`attempt_number`), and so distinguishes attempts of one member, which a takeover leaves at one epoch.
    """

    group: str
    topic: str
    partition: int
    next_offset: int
    epoch: int
    attempt: int

    @property
    def topic_partition(self) -> Partition:
        """The topic and the partition number."""
        return (self.topic, self.partition)

    @property
    def rank(self) -> tuple[int, int]:
        """The epoch and the attempt; a writer with a lower rank than the last writer must not write."""
        return (self.epoch, self.attempt)


#: The low bits of an attempt number. Spark counts the task attempts of one application from 0; larger numbers carry.
_TASK_BITS = 20
#: The distance between the numbers of a run and a later run that has seen it: enough for 63 billion task attempts.
RUN_SPACING = 60_000


def attempt_number(run_number: int, task_attempt_id: int) -> int:
    """Return a 64-bit number that grows with each run of a pipeline, and within a run with each attempt.

    `run_number` is that of `MemberPlan`, `task_attempt_id` is `TaskContext.taskAttemptId()`.
    """
    return (run_number << _TASK_BITS) + task_attempt_id


def run_within(attempt: int) -> int:
    """Return the run number of an attempt; exact unless its application had more than 2**20 task attempts."""
    return attempt >> _TASK_BITS


def is_of_a_later_run(attempt: int, than: int) -> bool:
    """Return whether an attempt certainly belongs to a later run of the pipeline than another attempt.

    False for two runs that did not see each other and started within a minute.
    """
    return attempt - than >= RUN_SPACING << _TASK_BITS


class TaskOwnership(Protocol):
    """The member's methods that a `SinkContext` uses."""

    def verify(self) -> None:
        """Return when the coordinator has confirmed the member after this call; raise an error if it does not."""
        ...

    def group_metadata(self) -> bytes:
        """Return the argument for `Producer.send_offsets_to_transaction`."""
        ...

    def commit_metadata(self, part: OffsetRange) -> str:
        """Return the metadata of the commit after these records; "" for none."""
        ...

    @property
    def has_leases(self) -> bool:
        """Whether leases are enabled (`ownership.lease.enable`)."""
        ...

    def lease(self, partition: Partition) -> Lease:
        """Return the lease of a partition in the batch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """The context of one sink call: the task that makes it, and the records of the batch.

    Attributes:
        group: The group.
        pipeline: The pipeline, the first part of the instance ids.
        instance: The number of the member, from 0.
        instances: The number of members of the run; None if the task does not know it.
        instance_id: The `group.instance.id` of the static member.
        attempt: The number of the task's attempt, as in the fences.
        batch_format: The format of the batch.
        ranges: The offsets of each partition in the batch, sorted by topic and partition. Records of a partition are in
            the order of their offsets.
        fences: The fencing token of each partition in the batch, in the order of `ranges`.
        ownership: The member; used by the methods of this class.
        cluster_config: The keys of the job's configuration with which another client, such as a producer, connects to
            the same brokers.
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
    cluster_config: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)

    def verify(self) -> None:
        """Return if the coordinator confirms, after the start of this call, that this member still owns its place.

        For a sink that cannot store a fence. A replaced task can then write only in the time between this call and the
        write; only a fence prevents that.

        Raises:
            FencedError: the member was replaced, or has temporarily lost its place in the group.
            TransportError: the coordinator did not respond, or its response does not answer the question.
        """
        self.ownership.verify()

    def lease(self, partition: Partition) -> Lease:
        """Return the lease of a partition in the batch: until when this task may work on it.

        Requires `ownership.lease.enable` in the configuration of the job. Never blocks.

        Raises:
            KafkaException: leases are not enabled.
            LeaseOverError: the partition is not owned.
        """
        return self.ownership.lease(partition)

    @contextmanager
    def guard(self, at_least_s: float = 0.0) -> Iterator[None]:
        """Guard a block that works on the batch with the leases of all its partitions.

        It refuses to begin after the end of a lease, or with less than `at_least_s` seconds remaining. At the end of
        the block it raises `LeaseOverError` if a lease did not hold: nest it in the transaction of the target system,
        which is then rolled back. If the member is still in its group, the sink is called again with the same batch.

        Raises:
            KafkaException: leases are not enabled.
            LeaseOverError: a lease is over, or ends too soon.
        """
        with ExitStack() as guards:
            for part in self.ranges:
                guards.enter_context(self.lease(part.topic_partition).guard(at_least_s))
            yield

    def check_leases(self) -> None:
        """Return if the leases of all partitions hold, or leases are not enabled.

        The sinks of this package call it immediately before they commit to their target.

        Raises:
            LeaseOverError: a lease is over.
        """
        if not self.ownership.has_leases:
            return
        for part in self.ranges:
            lease = self.lease(part.topic_partition)
            if not lease.holds:
                raise LeaseOverError(
                    f"the lease of {part.topic}-{part.partition} is over; nothing was written of "
                    f"{described(self.ranges)}"
                )

    def group_metadata(self) -> bytes:
        """Return the group metadata for `Producer.send_offsets_to_transaction` (KIP-447)."""
        return self.ownership.group_metadata()

    def offsets(self) -> list[TopicPartition]:
        """Return the offsets to commit after this batch, for `Producer.send_offsets_to_transaction`.

        Their metadata has a drain's count of its records, so commit them unchanged.
        """
        noted = [(part, self.ownership.commit_metadata(part)) for part in self.ranges]
        # Empty metadata is left out: confluent-kafka rejects None, and commits a NUL for "".
        return [
            TopicPartition(*part.topic_partition, part.next_offset, metadata=note)
            if note
            else TopicPartition(*part.topic_partition, part.next_offset)
            for part, note in noted
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkUse:
    """The way in which a job is about to use its sink; the argument of a sink's `check_use`.

    Attributes:
        group: The group whose records the sink receives.
        batch_format: The format of the batches.
        partitions: The partitions of the topics.
        is_on_driver: Whether this process is the driver, which can reach the same files, databases and brokers as its
            tasks. A Spark Connect client may be on another network, so it must not check the output.
        cluster_config: As in `SinkContext`; empty if no brokers are configured.
    """

    group: str
    batch_format: BatchFormat
    partitions: tuple[Partition, ...]
    is_on_driver: bool
    cluster_config: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)


BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


class Sink(Protocol[BatchT_contra]):
    """A callable that takes a batch: a function, or an object that can be pickled and is sent to the tasks.

    When the sink returns, the offsets of the batch are committed. The sink may be called again with the same records if
    the previous call failed or its task was lost.

    An object may have these members:

    - `prepare(instance, instance_id)`, called once in each attempt of a task before it joins the group;
    - `close()`, called once after the last batch;
    - `commits_offsets = True`, if the sink commits the group's offsets in its own transaction;
    - `check_use(use)`, called before a job starts. It raises `ConfigurationError` for a use that cannot work, and
      returns a description of the output for `check`.
    """

    def __call__(self, batch: BatchT_contra, context: SinkContext) -> None:
        """Write the batch."""
        ...
