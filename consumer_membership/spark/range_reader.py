"""The tasks of a bounded read: each reads fixed ranges of offsets, and hands them on as Arrow batches.

A task is no member of the group and commits nothing, so that it may be repeated, run twice, or be left behind by its
driver: it only ever reads the same offsets again. What it needs is the right to read the topic.
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
from consumer_membership.spark.batches import place_of, record_batch, without_collections
from consumer_membership.spark.context import Partition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

#: Rows in a batch at most, and what they may weigh: the JVM holds a batch as a whole.
READ_BATCH_RECORDS = 10_000
READ_BATCH_BYTES = 32 << 20
#: Rows of the first batch, when nobody knows yet what a record weighs.
_FIRST_RECORDS = 500
#: How long a batch gathers at most. A partition's end that is no record's offset is only seen when it is over.
_SLICE_S = 0.1
#: So long without a record, and the broker is asked what has become of the partitions.
_LOOK_S = 3.0
_ASK_S = 10.0

_EOF = KafkaError._PARTITION_EOF
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})

#: What a task reads at least of a partition that is shared: below it, starting a fetch costs more than it saves.
LEAST_OFFSETS = 10_000

#: What each task needs beside the caller's own keys; `auto.offset.reset` makes offsets that are gone an error.
TASK_CONFIG: Mapping[str, object] = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # librdkafka takes no more; how fast Spark takes the rows is its own affair.
    "max.poll.interval.ms": 86_400_000,
}


def task_config(config: Mapping[str, object], group: str) -> dict[str, object]:
    """What a task's consumer is made from; its group is none, but librdkafka asks for a name.

    Callbacks and loggers stay with the driver's member, but for oauth_cb: a task needs tokens of its own, and the
    application's callback travels where what the driver keeps beside it (a lock) does not.
    """
    name = f"{group}-reader-task"
    plain = {key: value for key, value in config.items() if isinstance(value, str | int | float)}
    tokens = {key: config[key] for key in ("oauth_cb",) if key in config}
    ours = ConsumerConfig.from_mapping({"client.id": f"spark-{name}", **plain, **tokens, "group.id": name})
    return {**ours.fetcher_config(), **tokens, **TASK_CONFIG}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """The records of one partition from offset `first` to before offset `end`; none where both are the same.

    There may be fewer records than offsets: compaction and transactions leave gaps.
    """

    topic: str
    partition: int
    first: int
    end: int

    @property
    def place(self) -> Partition:
        """Topic and partition."""
        return (self.topic, self.partition)

    @property
    def offsets(self) -> int:
        """How many offsets there are."""
        return self.end - self.first

    def __str__(self) -> str:
        """As errors name it."""
        return f"{self.topic}[{self.partition}] from offset {self.first} to before {self.end}"


def shared_out(ranges: Sequence[ReadRange], tasks: int) -> tuple[tuple[ReadRange, ...], ...]:
    """What each of at most `tasks` tasks reads: about the same number of offsets each, and every offset once.

    A partition is cut only where the even share ends, and never into pieces below `LEAST_OFFSETS`; a task has at most
    one piece of a partition. Little is read by fewer tasks.
    """
    share = max(-(-sum(each.offsets for each in ranges) // tasks), LEAST_OFFSETS)
    shares: list[list[ReadRange]] = []
    room = 0
    for whole in ranges:
        first = whole.first
        while first < whole.end:
            if room <= 0 and len(shares) < tasks:
                shares.append([])
                room = share
            taken = _piece(whole.end - first, room, is_last=len(shares) == tasks)
            if taken:
                piece = ReadRange(topic=whole.topic, partition=whole.partition, first=first, end=first + taken)
                shares[-1].append(piece)
            first += taken
            room = room - taken if taken else 0
    return tuple(map(tuple, shares))


def _piece(left: int, room: int, *, is_last: bool) -> int:
    """How much of what is left of a partition goes where there is so much room; 0: it begins elsewhere."""
    if is_last or left < room + LEAST_OFFSETS:
        return left
    return room if room >= LEAST_OFFSETS else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReader:
    """What travels to the tasks: the ranges of each of them, by the numbers that Spark gives them as input.

    `config` is a `confluent_kafka.Consumer`'s. A task that gets no record for `timeout_s` fails.
    """

    config: Mapping[str, object]
    shares: tuple[tuple[ReadRange, ...], ...]
    columns: tuple[str, ...]
    timeout_s: float

    def function(self) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
        """What `mapInArrow` takes: a plain function, for Spark looks at its parameters."""

        def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from self.read(self.shares[number])

        return read

    def read(self, share: Sequence[ReadRange]) -> Iterator[pa.RecordBatch]:
        """The records of these ranges.

        Raises:
            DrainError: offsets are gone, a topic is, or nothing came in time; the text names partition and offsets.
        """
        reading = RangeReading(self.config, share, self.timeout_s)
        with closing(reading), without_collections():  # GeneratorExit, too, when Spark has enough or cancels the task
            for messages in reading.messages():
                yield record_batch(messages, self.columns)


class RangeReading:
    """One task's consumer, and how far it is in each range.

    `on_loss` is told of offsets that are gone, and what is there is read; without it they are an error.
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
        self._ranges = {each.place: each for each in share}
        self._positions = {each.place: each.first for each in share}
        #: The ranges that are not read to their end.
        self._open = set(self._ranges)
        #: What librdkafka last complained of: connections, rights. It goes on by itself, so it is for the text only.
        self._complaint = ""
        self._consumer = LibrdkafkaConsumer({**config, "error_cb": self._note_complaint})
        self._consumer.assign([TopicPartition(each.topic, each.partition, each.first) for each in share])

    def close(self) -> None:
        """Let the connections go."""
        self._consumer.close()

    def messages(self) -> Iterator[list[Message]]:
        """The records, some at a time, until the ranges are read."""
        limit = _FIRST_RECORDS
        heard_at = looked_at = monotonic()
        while self._open:
            found = self._consumer.consume(min(limit, self._left), _SLICE_S)
            if found:
                records = self._taken(found)
                if records:
                    weight = max(len(records[0]), len(records[-1]), 1)
                    limit = max(1, min(READ_BATCH_RECORDS, READ_BATCH_BYTES // weight))
                    yield records
                heard_at = looked_at = monotonic()
                continue
            now = monotonic()
            if now - looked_at > _LOOK_S:
                self._look()
                looked_at = monotonic()
            if now - heard_at > self._timeout_s:
                self._give_up(f"nothing came for {self._timeout_s:g} s", self._complaint)

    @property
    def _left(self) -> int:
        """How many records there may be at most; so the last one is handed on when it comes."""
        return sum(self._ranges[place].end - self._positions[place] for place in self._open)

    def _taken(self, found: list[Message]) -> list[Message]:
        """Note what was found; the records that belong to the ranges."""
        if any(map(Message.error, found)):
            for message in found:
                self._hear(message)
            found = [message for message in found if message.error() is None]
        # librdkafka's own account: per record only where a range's end was passed.
        is_beyond = False
        for at in self._consumer.position([TopicPartition(*place) for place in self._open]):
            place, end = (at.topic, at.partition), self._ranges[(at.topic, at.partition)].end
            is_beyond |= at.offset > end
            self._positions[place] = max(self._positions[place], min(at.offset, end))
        self._finish({place for place in self._open if self._positions[place] >= self._ranges[place].end})
        return [message for message in found if self._is_wanted(message)] if is_beyond else found

    def _is_wanted(self, message: Message) -> bool:
        return (message.offset() or 0) < self._ranges[place_of(message)].end

    def _finish(self, places: set[Partition]) -> None:
        places &= self._open
        self._open -= places
        if places and self._open:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in places])

    def _hear(self, message: Message) -> None:
        """An event among the records: the end of a partition, or an error."""
        error, topic, partition = message.error(), message.topic(), message.partition()
        if error is None:
            return
        if topic is None or partition is None or (topic, partition) not in self._ranges:
            self._complaint = error.str()
            return
        if error.code() == _EOF:
            # A tail of compacted records, or of transactions' markers, has no record at its last offset.
            self._positions[topic, partition] = max(self._positions[topic, partition], message.offset() or 0)
            return
        if self._on_loss is not None and error.code() in _OUT_OF_RANGE | _GONE:
            self._look_at((topic, partition))
            return
        cause = "these offsets are not in the log (any more)" if error.code() in _OUT_OF_RANGE else "it cannot be read"
        self._give_up(cause, error.str(), (topic, partition))

    def _look(self) -> None:
        """Ask the broker what has become of the ranges from which nothing comes."""
        for place in sorted(self._open):
            if not self._look_at(place):
                return  # whoever does not answer for one partition is not asked for the next

    def _look_at(self, place: Partition) -> bool:
        """Ask for one range; whether there was an answer."""
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), _ASK_S)
        except KafkaException as failed:
            if failed.args[0].code() in _GONE:
                self._lose(place, self._ranges[place].end, "the topic was deleted meanwhile", failed.args[0].str())
                return True
            self._complaint = failed.args[0].str()
            return False
        there = f"the log has offsets {low} to before {high} now"
        if high < self._ranges[place].end:
            self._lose(place, self._ranges[place].end, there)
        elif low > self._positions[place]:
            self._lose(place, min(low, self._ranges[place].end), there)
        return True

    def _lose(self, place: Partition, next_offset: int, cause: str, words: str = "") -> None:
        """Go on at an offset because those before it are gone; give up where that is an error."""
        if self._on_loss is None:
            self._give_up(cause, words, place)
        first = self._positions[place]
        self._on_loss(f"{self._ranges[place]}: {first} to before {next_offset} are gone: {cause}")
        self._positions[place] = next_offset
        if next_offset >= self._ranges[place].end:
            self._finish({place})
        else:
            self._consumer.seek(TopicPartition(*place, next_offset))

    def _give_up(self, cause: str, words: str, *places: Partition) -> NoReturn:
        named = ", ".join(f"{self._ranges[p]} (read up to {self._positions[p]})" for p in places or sorted(self._open))
        raise DrainError(f"{named}: {cause}{': ' if words else ''}{words}")

    def _note_complaint(self, error: KafkaError) -> None:
        self._complaint = error.str()
