"""Where a coordinator writes a group down, what of it is kept, and how far back is read."""

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
def test_partition_of_a_group_is_by_javas_hash(group_id: str, java_hash: int) -> None:
    """Over UTF-16, with sign; the least number has no absolute value, and counts as 0."""
    assert partition_of(group_id, 50) == (0 if java_hash == -(1 << 31) else abs(java_hash) % 50)


# ---- a log -----------------------------------------------------------------------------------------------------------


def written(number: int, table: Table, version: int, values: Fields) -> bytes:
    """A key of this kind, or a value of this version."""
    return number.to_bytes(2, "big") + write_data(table, version, values)


def commit(at: float, partition: int, offset: int) -> RawRecord:
    """A commit of the group, at this offset of the log."""
    key = written(1, gr.OFFSET_COMMIT_KEY, 0, {"group": "g", "topic": "t", "partition": partition})
    values = {"offset": offset, "leader_epoch": -1, "metadata": "", "commit_timestamp": 0}
    return RawRecord(0, at, key, written(3, gr.OFFSET_COMMIT_VALUE, 3, values))


def member_key(kind: int, table: Table, name: str) -> bytes:
    """The key of a record about a member."""
    return written(kind, table, 0, {"group_id": "g", "member_id": name})


def subscribed(name: str) -> RawRecord:
    """A member, with its subscription."""
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
    """That a member is to have nothing."""
    value = written(0, gr.TARGET_MEMBER_VALUE, 0, {"topic_partitions": ()})
    return RawRecord(0, 0.0, member_key(7, gr.TARGET_MEMBER_KEY, name), value)


def assignment(name: str, epoch: int, previous: int) -> RawRecord:
    """That a member has nothing, at this epoch."""
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
    """What takes it back."""
    return record._replace(value=None)


def later(records: Iterable[RawRecord], grain_s: float = 0.0, stable: int = 100_000) -> LaterRecords:
    """What is kept of these, which stand one behind the other."""
    kept = LaterRecords(grain_s, stable)
    for offset, record in enumerate(records):
        kept.take(record._replace(offset=offset))
    kept.flush()
    return kept


def committed(kept: LaterRecords) -> list[tuple[float, int, int]]:
    """When, of which partition, and what."""
    return [
        (one.at, one.fact.partition.partition, one.fact.committed.offset)
        for one in kept.records
        if isinstance(one.fact, gr.OffsetRecorded) and one.fact.committed is not None
    ]


# ---- since the moment ------------------------------------------------------------------------------------------------


def test_of_commits_within_a_grain_the_last_one_is_kept() -> None:
    """Of each partition, in the order of the last ones; without a grain all of them are kept."""
    log = [commit(10.0, 0, 1), commit(10.5, 1, 1), commit(11.9, 0, 2), commit(12.0, 0, 3), commit(13.0, 0, 4)]
    assert committed(later(log, 2.0)) == [(10.5, 1, 1), (11.9, 0, 2), (13.0, 0, 4)]
    assert len(committed(later(log))) == len(log)


def test_commits_on_either_side_of_a_change_are_both_kept() -> None:
    """A look stands at each change, and shows what was committed then."""
    kept = later([commit(10.0, 0, 1), subscribed("m"), commit(10.1, 0, 2)], 60.0)
    assert [type(one.fact) for one in kept.records] == [gr.OffsetRecorded, gr.MemberRecorded, gr.OffsetRecorded]


def test_commits_behind_the_last_stable_offset_are_counted() -> None:
    """Those that are not kept, too, and nothing else of the group."""
    kept = later([commit(10.0, 0, 1), commit(10.0, 0, 2), subscribed("m"), commit(10.0, 0, 3)], 60.0, stable=1)
    assert kept.unsettled == 2


def test_memory_is_bounded_by_grains_and_partitions() -> None:
    """However much was committed."""
    assert len(later((commit(n / 1_000, n % 3, n) for n in range(10_000)), 1.0).records) == 3 * 10


def test_what_was_written_must_have_been_there_before_but_for_members_who_joined() -> None:
    """A member joined that subscribed first, and whose first assignment has no epoch before it."""
    old, new = subscribed("old"), subscribed("new")
    log = [new, target("new"), assignment("new", 5, 0), assignment("old", 5, 4), gone(old), commit(1.0, 0, 1)]
    keys = {assignment("old", 0, 0).key, old.key, commit(1.0, 0, 1).key}
    assert later(log).sought() == keys
    # It was there: this is another subscription, or a second assignment.
    for log in ([new, assignment("new", 5, 4)], [assignment("new", 5, 4), new, assignment("new", 5, 0)], [new]):
        assert later(log).sought() == {one.key for one in log}


# ---- before it -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Log:
    """A partition; what of it was read, and up to which offset there is time for."""

    records: dict[int, RawRecord]
    others: frozenset[int] = frozenset()
    stops_below: int = 0
    asked: list[tuple[int, int]] = field(default_factory=list)

    def part(self, begin: int, end: int, take: Callable[[RawRecord], None]) -> PartRead:
        """As a broker gives it."""
        self.asked.append((begin, end))
        found = [offset for offset in sorted({*self.records, *self.others}) if begin <= offset < end]
        for offset in found:
            if offset in self.records:
                take(self.records[offset]._replace(offset=offset))
        return PartRead(begin >= self.stops_below, len(found), found[-1] if found else -1)


KEY = commit(0.0, 0, 0).key


def test_latest_of_each_key_is_found_backwards() -> None:
    """As far as something is sought; each further part is twice as long."""
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


def test_one_part_is_read_although_nothing_is_sought() -> None:
    """Where the last record before the moment is says what compaction took behind it."""
    log = Log({}, others=frozenset({999_990}))
    nothing = EarlierRecords(frozenset())
    assert nothing.read(log.part, 0, 1_000_000)
    assert (nothing.gap_from, nothing.records, len(log.asked)) == (999_991, (), 1)


def test_part_that_was_not_read_to_its_end_does_not_count() -> None:
    """What came of it may have been overwritten in what did not come."""
    log = Log({960_000: commit(9.0, 1, 1), 900_000: commit(8.0, 0, 8)}, stops_below=900_001)
    cut = EarlierRecords(frozenset({KEY}))
    assert not cut.read(log.part, 0, 1_000_000)
    told = [one.fact.partition for one in cut.records if isinstance(one.fact, gr.OffsetRecorded)]
    assert told == [TopicPartition("t", 1)]


def test_record_of_a_later_version_is_counted() -> None:
    """On either side of the moment."""
    strange = commit(1.0, 0, 1)._replace(value=b"\x00\x63")
    earlier = EarlierRecords(None)
    assert earlier.read(Log({5: strange}).part, 0, 10)
    assert (earlier.unreadable, later([strange]).unreadable) == (1, 1)
