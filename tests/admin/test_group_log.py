"""The partition of a group in the coordinator's log, which records are kept, and how far back they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from consumer_membership.admin.group_log import (
    EarlierRecords,
    LaterRecords,
    PartRead,
    RawRecord,
    partition_of,
)
from consumer_membership.translation import group_records as gr
from consumer_membership.types import TopicPartition
from consumer_membership.wire.codec import Fields, write_data
from consumer_membership.wire.schema import Table

ID = UUID(int=7)


@pytest.mark.parametrize(
    ("group_id", "java_hash"), [("test", 3_556_498), ("\U0001f600", 1_772_899), ("polygenelubricants", -(1 << 31))]
)
def test_partition_of_uses_javas_string_hash(group_id: str, java_hash: int) -> None:
    """The hash covers UTF-16 and is signed; the smallest integer has no absolute value and counts as 0."""
    assert partition_of(group_id, 50) == (0 if java_hash == -(1 << 31) else abs(java_hash) % 50)


# ---- a log -----------------------------------------------------------------------------------------------------------


def written(number: int, table: Table, version: int, values: Fields) -> bytes:
    """Return a key of this kind, or a value of this version."""
    return number.to_bytes(2, "big") + write_data(table, version, values)


def commit(at: float, partition: int, offset: int) -> RawRecord:
    """Return a commit of the group, at this offset of the log."""
    key = written(1, gr.OFFSET_COMMIT_KEY, 0, {"group": "g", "topic": "t", "partition": partition})
    values = {"offset": offset, "leader_epoch": -1, "metadata": "", "commit_timestamp": 0}
    return RawRecord(0, at, key, written(3, gr.OFFSET_COMMIT_VALUE, 3, values))


def member_key(kind: int, table: Table, name: str) -> bytes:
    """Return the key of a record about a member."""
    return written(kind, table, 0, {"group_id": "g", "member_id": name})


def subscribed(name: str) -> RawRecord:
    """Return a record of a member with its subscription."""
    values: Fields = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "c",
        "client_host": "/h",
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": 1,
        "server_assignor": None,
        "classic_member_metadata": None,
    }
    return RawRecord(
        0, 0.0, member_key(5, gr.MEMBER_METADATA_KEY, name), written(0, gr.MEMBER_METADATA_VALUE, 0, values)
    )


def target(name: str) -> RawRecord:
    """Return a record of an empty target assignment."""
    value = written(0, gr.TARGET_MEMBER_VALUE, 0, {"topic_partitions": ()})
    return RawRecord(0, 0.0, member_key(7, gr.TARGET_MEMBER_KEY, name), value)


def assignment(name: str, epoch: int, previous: int) -> RawRecord:
    """Return a record of an empty current assignment at this epoch."""
    values: Fields = {
        "member_epoch": epoch,
        "previous_member_epoch": previous,
        "state": 0,
        "assigned_partitions": (),
        "partitions_pending_revocation": (),
    }
    key = member_key(8, gr.CURRENT_ASSIGNMENT_KEY, name)
    return RawRecord(0, 0.0, key, written(0, gr.CURRENT_ASSIGNMENT_VALUE, 0, values))


def gone(record: RawRecord) -> RawRecord:
    """Return the tombstone of a record."""
    return record._replace(value=None)


def later(records: Iterable[RawRecord], grain_s: float = 0.0, stable: int = 100_000) -> LaterRecords:
    """Return the records that are kept of these consecutive records."""
    kept = LaterRecords(grain_s, stable)
    for offset, record in enumerate(records):
        kept.take(record._replace(offset=offset))
    kept.flush()
    return kept


def committed(kept: LaterRecords) -> list[tuple[float, int, int]]:
    """Return time, partition and offset of each kept commit."""
    return [
        (one.at, one.fact.partition.partition, one.fact.committed.offset)
        for one in kept.records
        if isinstance(one.fact, gr.OffsetRecorded) and one.fact.committed is not None
    ]


# ---- since the moment ------------------------------------------------------------------------------------------------


def test_later_records_keep_last_commit_of_each_interval() -> None:
    """The last commit of each partition is kept; without an interval, all commits are kept."""
    log = [commit(10.0, 0, 1), commit(10.5, 1, 1), commit(11.9, 0, 2), commit(12.0, 0, 3), commit(13.0, 0, 4)]
    assert committed(later(log, 2.0)) == [(10.5, 1, 1), (11.9, 0, 2), (13.0, 0, 4)]
    assert len(committed(later(log))) == len(log)


def test_later_records_keep_commits_before_and_after_change() -> None:
    """Each change is a sample that shows the committed offsets of that time."""
    kept = later([commit(10.0, 0, 1), subscribed("m"), commit(10.1, 0, 2)], 60.0)
    assert [type(one.fact) for one in kept.records] == [gr.OffsetRecorded, gr.MemberRecorded, gr.OffsetRecorded]


def test_later_records_count_commits_after_last_stable_offset() -> None:
    """Dropped commits count as well, but no other records of the group."""
    kept = later([commit(10.0, 0, 1), commit(10.0, 0, 2), subscribed("m"), commit(10.0, 0, 3)], 60.0, stable=1)
    assert kept.unsettled == 2


def test_later_records_are_bounded_by_intervals_and_partitions() -> None:
    """The number of kept records does not depend on the number of commits."""
    assert len(later((commit(n / 1_000, n % 3, n) for n in range(10_000)), 1.0).records) == 3 * 10


def test_later_records_seek_earlier_state_except_of_joined_members() -> None:
    """A member that subscribes first and has no previous epoch has just joined."""
    old, new = subscribed("old"), subscribed("new")
    log = [new, target("new"), assignment("new", 5, 0), assignment("old", 5, 4), gone(old), commit(1.0, 0, 1)]
    keys = {assignment("old", 0, 0).key, old.key, commit(1.0, 0, 1).key}
    assert later(log).sought() == keys
    # The member existed before: this is another subscription or a second assignment.
    for log in ([new, assignment("new", 5, 4)], [assignment("new", 5, 4), new, assignment("new", 5, 0)], [new]):
        assert later(log).sought() == {one.key for one in log}


# ---- before it -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Log:
    """A log partition that records its reads and stops reading below an offset."""

    records: dict[int, RawRecord]
    others: frozenset[int] = frozenset()
    stops_below: int = 0
    asked: list[tuple[int, int]] = field(default_factory=list)

    def part(self, begin: int, end: int, take: Callable[[RawRecord], None]) -> PartRead:
        """Return the records as a broker returns them."""
        self.asked.append((begin, end))
        found = [offset for offset in sorted({*self.records, *self.others}) if begin <= offset < end]
        for offset in found:
            if offset in self.records:
                take(self.records[offset]._replace(offset=offset))
        return PartRead(begin >= self.stops_below, len(found), found[-1] if found else -1)


KEY = commit(0.0, 0, 0).key


def test_earlier_records_find_latest_of_each_key_backwards() -> None:
    """The log is read backwards until all sought keys are found; each part is twice as long as the previous part."""
    log = Log({900_000: commit(9.0, 0, 9), 890_000: commit(8.0, 0, 8), 100_000: commit(1.0, 1, 1)})
    near = EarlierRecords(frozenset({KEY}))
    assert near.read(log.part, 0, 1_000_000)
    assert [(one.at, type(one.fact)) for one in near.records] == [(9.0, gr.OffsetRecorded)]
    assert log.asked == [(950_000, 1_000_000), (850_000, 950_000)]
    log.asked.clear()
    far = EarlierRecords(None)
    assert far.read(log.part, 0, 1_000_000)
    assert [one.at for one in far.records] == [1.0, 9.0]
    assert log.asked[-1][0] == 0


def test_earlier_records_read_one_part_without_sought_keys() -> None:
    """The last record before the start time shows how much compaction removed after it."""
    log = Log({}, others=frozenset({999_990}))
    nothing = EarlierRecords(frozenset())
    assert nothing.read(log.part, 0, 1_000_000)
    assert (nothing.gap_from, nothing.records, len(log.asked)) == (999_991, (), 1)


def test_earlier_records_ignore_incomplete_part() -> None:
    """A part that was not read completely is ignored, because its unread rest may have newer records of these keys."""
    log = Log({960_000: commit(9.0, 1, 1), 900_000: commit(8.0, 0, 8)}, stops_below=900_001)
    cut = EarlierRecords(frozenset({KEY}))
    assert not cut.read(log.part, 0, 1_000_000)
    partitions = [one.fact.partition for one in cut.records if isinstance(one.fact, gr.OffsetRecorded)]
    assert partitions == [TopicPartition("t", 1)]


def test_records_of_unknown_version_are_counted_as_unreadable() -> None:
    """Records of an unknown version are counted as unreadable, before and after the start time."""
    strange = commit(1.0, 0, 1)._replace(value=b"\x00\x63")
    earlier = EarlierRecords(None)
    assert earlier.read(Log({5: strange}).part, 0, 10)
    assert (earlier.unreadable, later([strange]).unreadable) == (1, 1)
