"""Read a group's records from its partition of `__consumer_offsets`, newest part first.

The reader does not join a group and commits nothing: librdkafka fetches, and `translation/group_records` decodes.
First all records since a point in time are read, which the broker's time index finds. Then the state at that time is
read backwards from there, part by part. The topic is compacted: the latest record of each key always exists, but
earlier records may have been deleted. The deleted ones are counted.

The partition contains the records of many groups; records of other groups are dropped by their keys. Memory for this
group is bounded: of several commits of a partition within `grain_s`, only the last one is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership.errors import GroupError, MembershipError, TransportError
from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.translation.group_records import (
    AssignmentRecorded,
    ClassicGroupRecorded,
    GroupEpochRecorded,
    GroupRecord,
    MemberRecorded,
    OffsetRecorded,
    TargetEpochRecorded,
    TargetRecorded,
    group_record,
    is_commit,
    is_of_group,
)
from consumer_membership.wire.codec import MalformedError

__all__ = [
    "AssignmentRecorded",
    "ClassicGroupRecorded",
    "GroupEpochRecorded",
    "GroupLog",
    "GroupRecord",
    "LogQuery",
    "LoggedRecord",
    "MemberRecorded",
    "OffsetRecorded",
    "ReadingProgress",
    "TargetEpochRecorded",
    "TargetRecorded",
    "partition_of",
    "read_group_log",
]

TOPIC = "__consumer_offsets"
_BATCH = 10_000
_SLICE_S = 0.25
#: The size of the first part that is read backwards, in offsets; each further part is twice as long, because most keys
#: are found near the end.
_FIRST_PART = 50_000
#: The share of the timeout for reading forward, so that time remains to read the state at the start.
_FORWARD_SHARE = 0.75
#: The reader does not join a group and commits nothing.
_READER: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    # A commit in a transaction counts only after the transaction was committed. After the last stable offset another
    # handle reads uncommitted records, because most groups do not use transactions.
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # With the default, librdkafka pauses for a second each time that its queue is full, which dominates a long read.
    "fetch.queue.backoff.ms": 5,
    # The default is 64 MB for each of the two handles; this is enough for half a second of reading.
    "queued.max.messages.kbytes": 16_384,
    "log_level": 0,
}


class LoggedRecord(NamedTuple):
    """A decoded record and its time (seconds since 1970, by the broker's clock)."""

    at: float
    fact: GroupRecord


class ReadingProgress(NamedTuple):
    """The number of offsets that were read, and the maximum number to read."""

    partition: int
    done: int
    most: int


#: Called after each batch; returns False to stop reading.
ContinueReading = Callable[[ReadingProgress], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """The group to read, the start time and the options.

    `grain_s`: of several commits of a partition within this number of seconds, keep the last one, unless another record
    of the group is between them; 0 keeps all. `is_known_now`: the current state of the group is known, so that the read
    backwards is limited to keys that have changed since the start time.
    """

    group_id: str
    since: float
    timeout_s: float
    grain_s: float = 0.0
    is_known_now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLog:
    """The records of one group.

    `before` has the latest record of each key before the start time, `records` the records since then, both in log
    order. `offsets` is the number of offsets that the partition assigned since the last remaining record before the
    start time. `kept` is how many of them still have a record; the others were compacted or are transaction markers.
    `is_whole` is false if the timeout ended before the end of the log was reached, and `knows_before` is false if it
    ended before the state at the start time was complete. `unreadable` counts records of an unknown, later version.
    `unsettled` counts the group's commits after the start of an open transaction of any group; those in transactions
    take effect only if the transaction commits.
    """

    before: tuple[LoggedRecord, ...]
    records: tuple[LoggedRecord, ...]
    offsets: int
    kept: int
    unreadable: int
    is_whole: bool
    knows_before: bool
    unsettled: int = 0


def partition_of(group_id: str, count: int) -> int:
    """Return the group's partition of `__consumer_offsets`, computed with Java's string hash like the coordinator."""
    units = group_id.encode("utf-16-be")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return 0 if signed == -(1 << 31) else abs(signed) % count


def read_group_log(config: Mapping[str, object], query: LogQuery, should_continue: ContinueReading) -> GroupLog:
    """Return the group's records since a time and its state before; `config` has the connection settings.

    Raises:
        GroupError: The topic may not be read or does not exist.
        TransportError: No broker responded within the timeout.
    """
    begun, timeout_s = time.monotonic(), query.timeout_s
    settings = {**config, **_READER, "group.id": query.group_id}
    handle = LibrdkafkaConsumer(settings)
    uncommitted = LibrdkafkaConsumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        partition = partition_of(query.group_id, _partitions(handle, timeout_s))
        whole = TopicPartition(TOPIC, partition)
        # The end is read first, so that records written in between are not part of the result.
        start, end = uncommitted.get_watermark_offsets(whole, timeout=timeout_s)
        stable = min(end, handle.get_watermark_offsets(whole, timeout=timeout_s)[1])
        moment = TopicPartition(TOPIC, partition, max(0, int(query.since * 1000)))
        found = uncommitted.offsets_for_times([moment], timeout=timeout_s)[0].offset
        since = min(found, end) if found >= 0 else end
        pieces = (_Piece(start, stable, handle), _Piece(stable, end, uncommitted))
        reader = _Reader(pieces, query.group_id, partition, end - start, should_continue)
        reader.deadline = begun + timeout_s * _FORWARD_SHARE
        later = LaterRecords(query.grain_s, stable)
        forward = reader.read(since, end, later.take)
        later.flush()
        earlier = EarlierRecords(later.sought() if query.is_known_now and forward.is_whole else None)
        reader.deadline = begun + timeout_s
        knows_before = earlier.read(reader.read, start, since)
    except KafkaException as error:
        raise _refusal(error.args[0]) from error
    finally:
        handle.close()
        uncommitted.close()
    gap_from = earlier.gap_from if earlier.gap_from is not None else start if knows_before else since
    return GroupLog(
        before=earlier.records,
        records=tuple(later.records),
        offsets=end - gap_from if since < end else 0,
        kept=forward.kept,
        unreadable=later.unreadable + earlier.unreadable,
        is_whole=forward.is_whole,
        knows_before=knows_before,
        unsettled=later.unsettled,
    )


def _partitions(handle: LibrdkafkaConsumer, timeout_s: float) -> int:
    topic = handle.list_topics(TOPIC, timeout=timeout_s).topics[TOPIC]
    if topic.error is not None:
        raise KafkaException(topic.error)
    return len(topic.partitions)


class RawRecord(NamedTuple):
    """An undecoded record of the group."""

    offset: int
    at: float
    key: bytes
    value: bytes | None


class PartRead(NamedTuple):
    """Whether a part was read completely, its number of records of any group, and the last record's offset (or -1)."""

    is_whole: bool
    kept: int
    last: int


#: Reads the offsets of a part and passes the group's records to a function.
ReadsPart = Callable[[int, int, Callable[[RawRecord], None]], PartRead]


class _Piece(NamedTuple):
    """The offsets that a handle reads."""

    begin: int
    end: int
    handle: LibrdkafkaConsumer


class _Reader:
    """Reads parts of one partition until a deadline, and reports the progress."""

    def __init__(
        self, pieces: Sequence[_Piece], group_id: str, partition: int, most: int, should_continue: ContinueReading
    ) -> None:
        self._pieces = pieces
        self._group_id = group_id
        self._partition = partition
        self._most = most
        self._should_continue = should_continue
        self._done = 0
        self._is_ended = False
        self.deadline = 0.0

    def read(self, begin: int, end: int, take: Callable[[RawRecord], None]) -> PartRead:
        """Pass each record of the group in this range of offsets to `take`."""
        is_whole, kept, last = True, 0, -1
        for piece in self._pieces:
            lower, upper = max(begin, piece.begin), min(end, piece.end)
            if is_whole and lower < upper:
                read = self._read_piece(piece.handle, lower, upper, take)
                is_whole, kept, last = read.is_whole, kept + read.kept, max(last, read.last)
        return PartRead(is_whole, kept, last)

    def _read_piece(
        self, handle: LibrdkafkaConsumer, begin: int, end: int, take: Callable[[RawRecord], None]
    ) -> PartRead:
        kept, last, reached = 0, -1, begin
        handle.assign([TopicPartition(TOPIC, self._partition, begin)])
        while reached < end and time.monotonic() < self.deadline and not self._is_ended:
            for message in _batch(handle):
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    reached = offset + 1
                    if offset >= end:
                        break
                    kept, last = kept + 1, offset
                    self._hand_on(message, offset, take)
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached = end
                elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED and not error.retriable():
                    raise KafkaException(error)  # an error about the group is ignored: only the topic is read
            done = self._done + min(reached, end) - begin
            self._is_ended = not self._should_continue(ReadingProgress(self._partition, done, self._most))
        handle.unassign()
        self._done += end - begin
        return PartRead(reached >= end, kept, last)

    def _hand_on(self, message: Message, offset: int, take: Callable[[RawRecord], None]) -> None:
        key, value = message.key(), message.value()
        if isinstance(key, bytes) and is_of_group(key, self._group_id):
            at = message.timestamp()[1] / 1000
            take(RawRecord(offset, at, key, value if isinstance(value, bytes) else None))


def _batch(handle: LibrdkafkaConsumer) -> Iterator[Message]:
    """Yield the available records; a single `consume` would wait until the batch is full or the timeout is over."""
    yield from handle.consume(1, _SLICE_S)
    yield from handle.consume(_BATCH, 0)


class LaterRecords:
    """The records of a group since the start time in log order, with the last commit of each `grain_s`.

    `stable` is the last stable offset; later commits are counted as unsettled.
    """

    def __init__(self, grain_s: float, stable: int) -> None:
        self._grain_s = grain_s
        self._stable = stable
        self._grain = 0.0
        #: The undecoded commits of the current grain; most of them are replaced by a later one.
        self._commits: dict[bytes, RawRecord] = {}
        self._keys: set[bytes] = set()
        self._of_members: dict[str, set[bytes]] = {}
        self._joined: set[str] = set()
        self._new: set[str] = set()
        self.records: list[LoggedRecord] = []
        self.unreadable = self.unsettled = 0

    def take(self, record: RawRecord) -> None:
        """Add the next record."""
        if not is_commit(record.key):
            self.flush()
            self._read(record)
            return
        self.unsettled += record.offset >= self._stable
        grain = record.at // self._grain_s if self._grain_s > 0 else float(record.offset)
        if grain != self._grain:
            self.flush()
            self._grain = grain
        # Remove and add the key, so that the dictionary stays in log order.
        self._commits.pop(record.key, None)
        self._commits[record.key] = record

    def flush(self) -> None:
        """Decode the commits of the current grain."""
        for record in self._commits.values():
            self._read(record)
        self._commits.clear()

    def sought(self) -> frozenset[bytes]:
        """Return the written keys except those of new members, which have no earlier records."""
        return frozenset(self._keys.difference(*(self._of_members[one] for one in self._new)))

    def _read(self, record: RawRecord) -> None:
        try:
            fact = group_record(record.key, record.value)
        except MalformedError:
            self.unreadable += 1
            return
        if fact is None:
            return
        self.records.append(LoggedRecord(record.at, fact))
        self._keys.add(record.key)
        if isinstance(fact, MemberRecorded | TargetRecorded | AssignmentRecorded):
            self._note_member(record.key, fact)

    def _note_member(self, key: bytes, fact: MemberRecorded | TargetRecorded | AssignmentRecorded) -> None:
        known = self._of_members.setdefault(fact.member_id, set())
        if isinstance(fact, MemberRecorded) and fact.member is not None and not known:
            self._joined.add(fact.member_id)
        # A new member writes its subscription first, and its first assignment has no previous epoch.
        is_first = isinstance(fact, AssignmentRecorded) and fact.previous_epoch == 0 and key not in known
        if is_first and fact.member_id in self._joined:
            self._new.add(fact.member_id)
        known.add(key)


class EarlierRecords:
    """The latest record of each key of a group before the start time.

    `sought` is the set of keys to find; None reads back to the start of the log.
    """

    def __init__(self, sought: frozenset[bytes] | None) -> None:
        self._sought = sought
        self._found: dict[bytes, RawRecord] = {}
        #: The offset after the last record of any group before the start time.
        self.gap_from: int | None = None
        self.records: tuple[LoggedRecord, ...] = ()
        self.unreadable = 0

    def read(self, part: ReadsPart, start: int, end: int) -> bool:
        """Read back until all sought keys are found or the start is reached; return false if the time ran out."""
        length, upper, is_whole = _FIRST_PART, end, True
        while is_whole and upper > start and not self._is_enough():
            lower = max(start, upper - length)
            is_whole = self._read_part(part, lower, upper)
            upper, length = lower, length * 2
        self.records = tuple(self._facts())
        return is_whole

    def _is_enough(self) -> bool:
        return self.gap_from is not None and self._sought is not None and self._found.keys() >= self._sought

    def _read_part(self, part: ReadsPart, lower: int, upper: int) -> bool:
        found: dict[bytes, RawRecord] = {}

        def take(record: RawRecord) -> None:
            found[record.key] = record

        read = part(lower, upper, take)
        if not read.is_whole:
            # The part that was not read may contain a later record of the same key.
            return False
        if self.gap_from is None and read.last >= 0:
            self.gap_from = read.last + 1
        # Parts are read backwards, so a record that was found earlier is newer.
        self._found = found | self._found
        return True

    def _facts(self) -> Iterator[LoggedRecord]:
        for record in sorted(self._found.values()):
            try:
                fact = group_record(record.key, record.value)
            except MalformedError:
                self.unreadable += 1
                continue
            if fact is not None:
                yield LoggedRecord(record.at, fact)


def _refusal(error: KafkaError) -> MembershipError:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        denied = f"{TOPIC} may not be read by this client ({error.name()}): allow the ACL operations DESCRIBE and "
        return GroupError(f"{denied}READ on that topic", error.code())
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return GroupError(f"{TOPIC} does not exist: no group has been used in this cluster", error.code())
    return TransportError(f"{TOPIC} could not be read: {error.str()}")
