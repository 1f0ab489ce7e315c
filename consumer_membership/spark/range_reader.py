"""The tasks of a bounded read: each reads fixed offset ranges and returns them as Arrow batches.

A task is not a member of the group and commits nothing. So it may be repeated, run twice, or outlive its driver: it
always reads the same offsets. It needs only READ on the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import DrainError
from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.spark.batches import partition_of, record_batch, without_garbage_collection
from consumer_membership.spark.context import Partition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

#: The largest number of rows in a batch, and their largest size: the JVM holds a batch as a whole.
READ_BATCH_RECORDS = 10_000
READ_BATCH_BYTES = 32 << 20
#: The number of rows in the first batch, when the size of records is not known yet.
_FIRST_RECORDS = 500
#: The longest time to collect a batch. An end that is not the offset of a record is only seen after this time.
_SLICE_S = 0.1
#: After this time without a record, the state of the partitions is requested from the broker.
_CHECK_AFTER_S = 3.0
_REQUEST_TIMEOUT_S = 10.0

_EOF = KafkaError._PARTITION_EOF
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})

#: The smallest piece of a partition for one task: for fewer offsets, starting a fetch costs more than it saves.
LEAST_OFFSETS = 10_000

#: The keys that each task adds to the caller's keys; `auto.offset.reset` makes lost offsets an error.
TASK_CONFIG: Mapping[str, object] = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # The largest value that librdkafka accepts; Spark may take the rows as slowly as it needs.
    "max.poll.interval.ms": 86_400_000,
}


def task_config(config: Mapping[str, object], group: str) -> dict[str, object]:
    """Return the configuration of a task's consumer, which joins no group (librdkafka requires a name for one).

    Callbacks and loggers stay with the driver's member, except oauth_cb: a task needs its own tokens. The callback of
    the application can be pickled; the driver's wrapper, which has a lock, cannot.
    """
    name = f"{group}-reader-task"
    plain = {key: value for key, value in config.items() if isinstance(value, str | int | float)}
    tokens = {key: config[key] for key in ("oauth_cb",) if key in config}
    ours = ConsumerConfig.from_mapping({"client.id": f"spark-{name}", **plain, **tokens, "group.id": name})
    return {**ours.fetcher_config(), **tokens, **TASK_CONFIG}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """The offsets of one partition from `first` up to, not including, `end`; empty if both are equal.

    There may be fewer records than offsets, because compaction and transactions leave gaps.
    """

    topic: str
    partition: int
    first: int
    end: int

    @property
    def topic_partition(self) -> Partition:
        """The topic and the partition number."""
        return (self.topic, self.partition)

    @property
    def offsets(self) -> int:
        """The number of offsets."""
        return self.end - self.first

    def __str__(self) -> str:
        """Return the text for errors."""
        return f"{self.topic}[{self.partition}] from offset {self.first} to before {self.end}"


def divide_ranges(ranges: Sequence[ReadRange], tasks: int) -> tuple[tuple[ReadRange, ...], ...]:
    """Divide ranges among at most `tasks` tasks: about the same number of offsets for each, and every offset once.

    A partition is cut only at the end of an even share, and never into pieces below `LEAST_OFFSETS`. A task has at most
    one piece of a partition. Few offsets are read by fewer tasks.
    """
    share = max(-(-sum(each.offsets for each in ranges) // tasks), LEAST_OFFSETS)
    shares: list[list[ReadRange]] = []
    free = 0
    for whole in ranges:
        first = whole.first
        while first < whole.end:
            if free <= 0 and len(shares) < tasks:
                shares.append([])
                free = share
            taken = _piece(whole.end - first, free, is_last=len(shares) == tasks)
            if taken:
                piece = ReadRange(topic=whole.topic, partition=whole.partition, first=first, end=first + taken)
                shares[-1].append(piece)
            first += taken
            free = free - taken if taken else 0
    return tuple(map(tuple, shares))


def _piece(left: int, free: int, *, is_last: bool) -> int:
    """Return how many of the `left` offsets of a partition go into the `free` part of a share; 0: into the next."""
    if is_last or left < free + LEAST_OFFSETS:
        return left
    return free if free >= LEAST_OFFSETS else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReader:
    """The object that tasks receive: the ranges of each task, by the number that Spark passes to it.

    `config` is the configuration of a `confluent_kafka.Consumer`. A task without a record for `timeout_s` fails.
    """

    config: Mapping[str, object]
    shares: tuple[tuple[ReadRange, ...], ...]
    columns: tuple[str, ...]
    timeout_s: float

    def function(self) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
        """Return the argument for `mapInArrow`: a plain function, because Spark inspects its parameters."""

        def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from self.read(self.shares[number])

        return read

    def read(self, share: Sequence[ReadRange]) -> Iterator[pa.RecordBatch]:
        """Yield the records of these ranges.

        Raises:
            DrainError: offsets or a topic no longer exist, or no record arrived in time; the text names partition and
                offsets.
        """
        reading = RangeReading(self.config, share, self.timeout_s)
        with (
            closing(reading),
            without_garbage_collection(),
        ):  # closed also by GeneratorExit, when Spark cancels the task
            for messages in reading.messages():
                yield record_batch(messages, self.columns)


class RangeReading:
    """One task's consumer, and its position in each range.

    `on_loss` is called with a text about offsets that no longer exist, and the others are read; without it, lost
    offsets raise DrainError.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        share: Sequence[ReadRange],
        timeout_s: float,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._on_loss = on_loss
        self._ranges = {each.topic_partition: each for each in share}
        self._positions = {each.topic_partition: each.first for each in share}
        #: The ranges that are not read to their end.
        self._open = set(self._ranges)
        #: librdkafka's last error, for messages only: librdkafka retries automatically.
        self._last_error = ""
        self._consumer = LibrdkafkaConsumer({**config, "error_cb": self._note_complaint})
        self._consumer.assign([TopicPartition(each.topic, each.partition, each.first) for each in share])

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def messages(self) -> Iterator[list[Message]]:
        """Yield the records in batches, until all ranges are read."""
        limit = _FIRST_RECORDS
        received_at = checked_at = monotonic()
        while self._open:
            found = self._consumer.consume(min(limit, self._left), _SLICE_S)
            if found:
                records = self._taken(found)
                if records:
                    weight = max(len(records[0]), len(records[-1]), 1)
                    limit = max(1, min(READ_BATCH_RECORDS, READ_BATCH_BYTES // weight))
                    yield records
                received_at = checked_at = monotonic()
                continue
            now = monotonic()
            if now - checked_at > _CHECK_AFTER_S:
                self._check_ranges()
                checked_at = monotonic()
            if now - received_at > self._timeout_s:
                self._give_up(f"no record arrived for {self._timeout_s:g} s", self._last_error)

    @property
    def _left(self) -> int:
        """The largest number of records that are left, so that the last record is returned when it arrives."""
        return sum(self._ranges[partition].end - self._positions[partition] for partition in self._open)

    def _taken(self, found: list[Message]) -> list[Message]:
        """Update the positions, and return the records that belong to the ranges."""
        if any(map(Message.error, found)):
            for message in found:
                self._handle_event(message)
            found = [message for message in found if message.error() is None]
        # Positions of librdkafka; records are checked only if an end was passed.
        is_beyond = False
        for at in self._consumer.position([TopicPartition(*partition) for partition in self._open]):
            partition, end = (at.topic, at.partition), self._ranges[(at.topic, at.partition)].end
            is_beyond |= at.offset > end
            self._positions[partition] = max(self._positions[partition], min(at.offset, end))
        self._finish(
            {partition for partition in self._open if self._positions[partition] >= self._ranges[partition].end}
        )
        return [message for message in found if self._is_wanted(message)] if is_beyond else found

    def _is_wanted(self, message: Message) -> bool:
        return (message.offset() or 0) < self._ranges[partition_of(message)].end

    def _finish(self, partitions: set[Partition]) -> None:
        partitions &= self._open
        self._open -= partitions
        if partitions and self._open:
            self._consumer.incremental_unassign([TopicPartition(*partition) for partition in partitions])

    def _handle_event(self, message: Message) -> None:
        """Handle an event: the end of a partition, or an error."""
        error, topic, partition = message.error(), message.topic(), message.partition()
        if error is None:
            return
        if topic is None or partition is None or (topic, partition) not in self._ranges:
            self._last_error = error.str()
            return
        if error.code() == _EOF:
            # After compacted records or transaction markers, there is no record at the last offset.
            self._positions[topic, partition] = max(self._positions[topic, partition], message.offset() or 0)
            return
        if self._on_loss is not None and error.code() in _OUT_OF_RANGE | _GONE:
            self._check_range((topic, partition))
            return
        cause = "these offsets are not in the log" if error.code() in _OUT_OF_RANGE else "it cannot be read"
        self._give_up(cause, error.str(), (topic, partition))

    def _check_ranges(self) -> None:
        """Check with the broker whether the ranges without records still exist."""
        for partition in sorted(self._open):
            if not self._check_range(partition):
                return  # without a response for one partition, the next is not requested

    def _check_range(self, partition: Partition) -> bool:
        """Check whether one range still exists; return False without a response."""
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), _REQUEST_TIMEOUT_S)
        except KafkaException as failed:
            if failed.args[0].code() in _GONE:
                cause = "the topic was deleted during the read"
                self._lose(partition, self._ranges[partition].end, cause, failed.args[0].str())
                return True
            self._last_error = failed.args[0].str()
            return False
        present = f"the log now starts at offset {low} and ends at offset {high}"
        if high < self._ranges[partition].end:
            self._lose(partition, self._ranges[partition].end, present)
        elif low > self._positions[partition]:
            self._lose(partition, min(low, self._ranges[partition].end), present)
        return True

    def _lose(self, partition: Partition, next_offset: int, cause: str, detail: str = "") -> None:
        """Continue at an offset because earlier offsets no longer exist; raise DrainError if loss is an error."""
        if self._on_loss is None:
            self._give_up(cause, detail, partition)
        first = self._positions[partition]
        self._on_loss(f"{self._ranges[partition]}: offsets {first} to before {next_offset} no longer exist: {cause}")
        self._positions[partition] = next_offset
        if next_offset >= self._ranges[partition].end:
            self._finish({partition})
        else:
            self._consumer.seek(TopicPartition(*partition, next_offset))

    def _give_up(self, cause: str, detail: str, *partitions: Partition) -> NoReturn:
        named = ", ".join(
            f"{self._ranges[p]} (read up to {self._positions[p]})" for p in partitions or sorted(self._open)
        )
        raise DrainError(f"{named}: {cause}{': ' if detail else ''}{detail}")

    def _note_complaint(self, error: KafkaError) -> None:
        self._last_error = error.str()
