"""Reads what a coordinator wrote down of one group: its partition of `__consumer_offsets`, the latest part first.

It is not a member and commits nothing: librdkafka fetches, and `translation/group_records` decodes the records.
First everything since a moment is read, which the broker's index of times finds; then how the group was before it, from
there backwards, part by part. The topic is compacted, so that the latest record of each key is there, however old it
is; of what happened in between as much is there as compaction has left, which is counted.

The records of all groups of the partition are fetched, and those of others dropped by their keys. What is kept of this
group is bounded by what was asked for: of many commits of a partition within one `grain_s` the last one.
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
#: How many offsets are read back at first; each further part is twice as long: most of what is looked for is near.
_FIRST_PART = 50_000
#: The share of the time that reading forward may take: how the group was before is nothing to do without.
_FORWARD_SHARE = 0.75
#: It is no member, and commits nothing.
_READER: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    # A commit within a transaction counts once that has ended well; behind the first one that is open (the last stable
    # offset) another handle reads on, for of most groups nothing there is in a transaction.
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # librdkafka rests for a second, by default, each time that its queue is full: most of the time of a long log.
    "fetch.queue.backoff.ms": 5,
    # 64 MB by default, for each of two handles: half a second of reading is enough.
    "queued.max.messages.kbytes": 16_384,
    "log_level": 0,
}


class LoggedRecord(NamedTuple):
    """What was written, and when (seconds since 1970, by the broker's clock)."""

    at: float
    fact: GroupRecord


class ReadingProgress(NamedTuple):
    """How many offsets of the partition are behind the reader, and of how many at most."""

    partition: int
    done: int
    most: int


#: Told after each batch; False: read no further.
GoesOn = Callable[[ReadingProgress], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """What is read of which group.

    `grain_s`: of commits of a partition that come within so many seconds the last one is enough, unless something else
    of the group lies between them; 0: all. `is_known_now`: how the group is at this moment is known, so that only what
    has changed since the other one has to be looked for before it.
    """

    group_id: str
    since: float
    timeout_s: float
    grain_s: float = 0.0
    is_known_now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLog:
    """The records of one group.

    `before` has the latest of each key from before the moment, `records` what was asked for since then, both in the
    order of the log. `offsets` are how many offsets of the whole partition were given since then, and since the last
    record before it that is left: what is missing in between may be of either side. `kept` is how many records of those
    were found: the rest was compacted, or marks ends of transactions. Not `is_whole`: there was no time to read on to
    the end. Not `knows_before`: nor back to everything that changed. `unreadable` records are of a later version than
    is known. `unsettled` commits of the group stand behind the begin of a transaction of any group that is open: those
    of them that are in transactions count, or not, by how these end.
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
    """Which of so many partitions has the group: by Java's hash of a text, as the coordinator finds it."""
    units = group_id.encode("utf-16-be")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return 0 if signed == -(1 << 31) else abs(signed) % count


def read_group_log(config: Mapping[str, object], question: LogQuery, goes_on: GoesOn) -> GroupLog:
    """What was written of the group since a moment, and how it was before; `config` says how to reach the cluster.

    Raises:
        GroupError: the topic may not be read, or is not there.
        TransportError: no broker answered in time.
    """
    begun, timeout_s = time.monotonic(), question.timeout_s
    settings = {**config, **_READER, "group.id": question.group_id}
    handle = LibrdkafkaConsumer(settings)
    hasty = LibrdkafkaConsumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        partition = partition_of(question.group_id, _partitions(handle, timeout_s))
        whole = TopicPartition(TOPIC, partition)
        # In this order: what is written in between is behind the end.
        start, end = hasty.get_watermark_offsets(whole, timeout=timeout_s)
        stable = min(end, handle.get_watermark_offsets(whole, timeout=timeout_s)[1])
        moment = TopicPartition(TOPIC, partition, max(0, int(question.since * 1000)))
        found = hasty.offsets_for_times([moment], timeout=timeout_s)[0].offset
        since = min(found, end) if found >= 0 else end
        pieces = (_Piece(start, stable, handle), _Piece(stable, end, hasty))
        reader = _Reader(pieces, question.group_id, partition, end - start, goes_on)
        reader.deadline = begun + timeout_s * _FORWARD_SHARE
        later = LaterRecords(question.grain_s, stable)
        forward = reader.read(since, end, later.take)
        later.flush()
        earlier = EarlierRecords(later.sought() if question.is_known_now and forward.is_whole else None)
        reader.deadline = begun + timeout_s
        knows_before = earlier.read(reader.read, start, since)
    except KafkaException as error:
        raise _refusal(error.args[0]) from error
    finally:
        handle.close()
        hasty.close()
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
    """A record of the group as it stands in the log."""

    offset: int
    at: float
    key: bytes
    value: bytes | None


class PartRead(NamedTuple):
    """Whether all of a part was read, how many records of any group it has, and the offset of the last one (or -1)."""

    is_whole: bool
    kept: int
    last: int


#: Reads a part, from one offset up to another, and hands on what is the group's.
ReadsPart = Callable[[int, int, Callable[[RawRecord], None]], PartRead]


class _Piece(NamedTuple):
    """From where up to where a handle reads."""

    begin: int
    end: int
    handle: LibrdkafkaConsumer


class _Reader:
    """Reads parts of one partition, until a moment, and says how far it is."""

    def __init__(self, pieces: Sequence[_Piece], group_id: str, partition: int, most: int, goes_on: GoesOn) -> None:
        self._pieces = pieces
        self._group_id = group_id
        self._partition = partition
        self._most = most
        self._goes_on = goes_on
        self._done = 0
        self._is_ended = False
        self.deadline = 0.0

    def read(self, begin: int, end: int, take: Callable[[RawRecord], None]) -> PartRead:
        """Give each record of the group at these offsets to `take`."""
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
                    raise KafkaException(error)  # it needs nothing of the group, whose coordinator it asks for
            done = self._done + min(reached, end) - begin
            self._is_ended = not self._goes_on(ReadingProgress(self._partition, done, self._most))
        handle.unassign()
        self._done += end - begin
        return PartRead(reached >= end, kept, last)

    def _hand_on(self, message: Message, offset: int, take: Callable[[RawRecord], None]) -> None:
        key, value = message.key(), message.value()
        if isinstance(key, bytes) and is_of_group(key, self._group_id):
            at = message.timestamp()[1] / 1000
            take(RawRecord(offset, at, key, value if isinstance(value, bytes) else None))


def _batch(handle: LibrdkafkaConsumer) -> Iterator[Message]:
    """What has come; librdkafka would gather until a batch is full, or all of the time is over."""
    yield from handle.consume(1, _SLICE_S)
    yield from handle.consume(_BATCH, 0)


class LaterRecords:
    """The records of a group since the moment, in the order of the log; of commits the last of each grain.

    `stable`: the last stable offset; commits from there on are counted.
    """

    def __init__(self, grain_s: float, stable: int) -> None:
        self._grain_s = grain_s
        self._stable = stable
        self._grain = 0.0
        #: The commits of this grain, not read yet: of most there is a later one.
        self._commits: dict[bytes, RawRecord] = {}
        self._keys: set[bytes] = set()
        self._of_members: dict[str, set[bytes]] = {}
        self._joined: set[str] = set()
        self._new: set[str] = set()
        self.records: list[LoggedRecord] = []
        self.unreadable = self.unsettled = 0

    def take(self, record: RawRecord) -> None:
        """The next record."""
        if not is_commit(record.key):
            self.flush()
            self._read(record)
            return
        self.unsettled += record.offset >= self._stable
        grain = record.at // self._grain_s if self._grain_s > 0 else float(record.offset)
        if grain != self._grain:
            self.flush()
            self._grain = grain
        # Behind the others: the order of a group's records matters.
        self._commits.pop(record.key, None)
        self._commits[record.key] = record

    def flush(self) -> None:
        """Read the commits that were held back."""
        for record in self._commits.values():
            self._read(record)
        self._commits.clear()

    def sought(self) -> frozenset[bytes]:
        """The keys that were written, but for those of members who joined: of these there was nothing before."""
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
        # Its first record was its subscription, and the first that it has is the first at all: it joined.
        is_first = isinstance(fact, AssignmentRecorded) and fact.previous_epoch == 0 and key not in known
        if is_first and fact.member_id in self._joined:
            self._new.add(fact.member_id)
        known.add(key)


class EarlierRecords:
    """The latest record of each key of a group from before the moment.

    `sought`: as soon as there is one of each of these, it is enough; None: there is no end but the log's start.
    """

    def __init__(self, sought: frozenset[bytes] | None) -> None:
        self._sought = sought
        self._found: dict[bytes, RawRecord] = {}
        #: Behind the last record of any group from before the moment.
        self.gap_from: int | None = None
        self.records: tuple[LoggedRecord, ...] = ()
        self.unreadable = 0

    def read(self, part: ReadsPart, start: int, end: int) -> bool:
        """From this end back to the start, or until nothing more is sought; whether there was time for that."""
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
            # Whatever came may have been overwritten in what did not come.
            return False
        if self.gap_from is None and read.last >= 0:
            self.gap_from = read.last + 1
        # What came earlier stands further back, and is the later one.
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
        needed = f"{TOPIC} may not be read by this client ({error.name()}): it needs the ACL operations DESCRIBE and "
        return GroupError(f"{needed}READ on that topic", error.code())
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return GroupError(f"{TOPIC} is not there: nobody has committed or joined in this cluster", error.code())
    return TransportError(f"{TOPIC} could not be read: {error.str()}")
