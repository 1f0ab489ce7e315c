"""Reads what a coordinator wrote down of one group: its partition of `__consumer_offsets`, from start to end.

It is no member of anything and commits nothing: librdkafka fetches, `wire/group_records` says what the records mean.
The topic is compacted, so that the latest record of each key is there, and with it how the group was before any moment;
of what happened in between as much is there as compaction has left, which is counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership.errors import GroupError, MembershipError, TransportError
from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.wire.codec import MalformedError
from consumer_membership.wire.group_records import (
    AssignmentRecorded,
    ClassicGroupRecorded,
    GroupEpochRecorded,
    GroupRecord,
    MemberRecorded,
    OffsetRecorded,
    TargetEpochRecorded,
    TargetRecorded,
    group_record,
    is_of_group,
)

__all__ = [
    "AssignmentRecorded",
    "ClassicGroupRecorded",
    "GroupEpochRecorded",
    "GroupLog",
    "GroupRecord",
    "LoggedRecord",
    "MemberRecorded",
    "OffsetRecorded",
    "TargetEpochRecorded",
    "TargetRecorded",
    "partition_of",
    "read_group_log",
]

TOPIC = "__consumer_offsets"
_BATCH = 10_000
_SLICE_S = 0.5
#: It is no member, and commits nothing.
_READER: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    # A commit within a transaction counts once that has ended well.
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "log_level": 0,
}


class LoggedRecord(NamedTuple):
    """What was written, and when (seconds since 1970, by the broker's clock)."""

    at: float
    fact: GroupRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLog:
    """The records of one group.

    `before` has the latest of each key from before the moment, `records` all since then, both in the order of the log.
    `offsets` are how many offsets of the whole partition were given since then, and since the last record before it
    that is left: what is missing in between may be of either side. `kept` is how many records of those were found: the
    rest was compacted, or marks ends of transactions. Not `is_whole`: there was no time to read on.
    `unreadable` records are of a later version than is known.
    """

    before: tuple[LoggedRecord, ...]
    records: tuple[LoggedRecord, ...]
    offsets: int
    kept: int
    unreadable: int
    is_whole: bool


def partition_of(group_id: str, count: int) -> int:
    """Which of so many partitions has the group: by Java's hash of a text, as the coordinator finds it."""
    units = group_id.encode("utf-16-be")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return 0 if signed == -(1 << 31) else abs(signed) % count


def read_group_log(config: Mapping[str, object], group_id: str, since: float, timeout_s: float) -> GroupLog:
    """What was written of the group since this moment, and how it was before; `config` says how to reach the cluster.

    Raises:
        GroupError: the topic may not be read, or is not there.
        TransportError: no broker answered in time.
    """
    deadline = time.monotonic() + timeout_s
    handle = LibrdkafkaConsumer({**config, **_READER, "group.id": group_id})
    try:
        count = _partitions(handle, timeout_s)
        partition = partition_of(group_id, count)
        start, end = handle.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=timeout_s)
        moment = TopicPartition(TOPIC, partition, max(0, int(since * 1000)))
        found = handle.offsets_for_times([moment], timeout=timeout_s)[0].offset
        handle.assign([TopicPartition(TOPIC, partition, start)])
        return _Reading(group_id, start, found if found >= 0 else end).read(handle, end, deadline)
    except KafkaException as error:
        raise _refusal(error.args[0]) from error
    finally:
        handle.close()


def _partitions(handle: LibrdkafkaConsumer, timeout_s: float) -> int:
    topic = handle.list_topics(TOPIC, timeout=timeout_s).topics[TOPIC]
    if topic.error is not None:
        raise KafkaException(topic.error)
    return len(topic.partitions)


class _Reading:
    """What was read of one partition until now."""

    def __init__(self, group_id: str, start: int, since_offset: int) -> None:
        self._group_id = group_id
        #: Behind the last record from before the moment.
        self._gap_from = start
        self._since_offset = since_offset
        self._before: dict[bytes, LoggedRecord] = {}
        self._records: list[LoggedRecord] = []
        self._kept = self._unreadable = 0

    def read(self, handle: LibrdkafkaConsumer, end: int, deadline: float) -> GroupLog:
        is_at_end = end <= 0
        while not is_at_end and time.monotonic() < deadline:
            for message in handle.consume(_BATCH, _SLICE_S):
                error = message.error()
                if error is None:
                    self._take(message)
                    is_at_end = is_at_end or (message.offset() or 0) >= end - 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
                    is_at_end = True
                elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED and not error.retriable():
                    raise KafkaException(error)  # it needs nothing of the group, whose coordinator it asks for
        return GroupLog(
            before=tuple(self._before.values()),
            records=tuple(self._records),
            offsets=end - self._gap_from if self._since_offset < end else 0,
            kept=self._kept,
            unreadable=self._unreadable,
            is_whole=is_at_end,
        )

    def _take(self, message: Message) -> None:
        offset = message.offset() or 0
        is_new = offset >= self._since_offset
        if is_new:
            self._kept += 1
        else:
            self._gap_from = offset + 1
        key, value = message.key(), message.value()
        if not isinstance(key, bytes) or not is_of_group(key, self._group_id):
            return
        try:
            fact = group_record(key, value if isinstance(value, bytes) else None)
        except MalformedError:
            self._unreadable += 1
            return
        if fact is None:
            return
        record = LoggedRecord(message.timestamp()[1] / 1000, fact)
        if is_new:
            self._records.append(record)
        else:
            # Behind the others: the order of a group's records matters.
            self._before.pop(key, None)
            self._before[key] = record


def _refusal(error: KafkaError) -> MembershipError:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        needed = f"{TOPIC} may not be read by this client ({error.name()}): it needs the ACL operations DESCRIBE and "
        return GroupError(f"{needed}READ on that topic", error.code())
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001
        return GroupError(f"{TOPIC} is not there: nobody has committed or joined in this cluster", error.code())
    return TransportError(f"{TOPIC} could not be read: {error.str()}")
