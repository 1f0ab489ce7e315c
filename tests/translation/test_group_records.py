"""Coordinators' group records, from bytes that Apache Kafka 4.4.0 wrote and from this package's tables."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.translation import group_records as gr
from consumer_membership.types import GroupProtocol, OffsetAndMetadata, TopicIdPartition, TopicPartition
from consumer_membership.wire.codec import Fields, MalformedError, write_data
from consumer_membership.wire.schema import Table

ID = UUID(int=7)
#: A key and a value that a broker wrote.
MEMBER_KEY = b"\x00\x05\x00\x10gours-930524989c\x00\x16txR-aFgcTN-QopYQQfGsbA"
MEMBER = b"\x00\x00\x00\x00\x02a\x0b/127.0.0.1\x02\rt-c76c2da9fa\x01\x00\x04\x93\xe0\x00\x01\x00\x01\x00"


def written(number: int | None, table: Table, version: int, values: Fields) -> bytes:
    """Return a key of this kind, or a value in this version."""
    begin = version if number is None else number
    return begin.to_bytes(2, "big") + write_data(table, version, values)


def of_member(number: int, table: Table) -> bytes:
    """Return the key of a record about member `m`."""
    return written(number, table, 0, {"group_id": "g", "member_id": "m"})


def test_group_record_reads_member_from_broker_bytes() -> None:
    """A null structure in a tagged field is a zero; a record without a value means that the member left."""
    read = gr.group_record(MEMBER_KEY, MEMBER)
    assert isinstance(read, gr.MemberRecorded)
    assert read.member is not None
    assert (read.member.client_id, read.member.host) == ("a", "127.0.0.1")
    assert (read.member.topics, read.member.protocol) == (frozenset({"t-c76c2da9fa"}), GroupProtocol.CONSUMER)
    gone = gr.MemberRecorded(member_id="txR-aFgcTN-QopYQQfGsbA", member=None)
    assert gr.group_record(MEMBER_KEY, None) == gone


@pytest.mark.parametrize("version", range(5))
def test_group_record_reads_commit_of_each_version(version: int) -> None:
    """Versions from 3 on have a leader epoch."""
    key = written(1, gr.OFFSET_COMMIT_KEY, 0, {"group": "g", "topic": "t", "partition": 3})
    values = {"offset": 9, "leader_epoch": 4, "metadata": "m", "commit_timestamp": 1}
    read = gr.group_record(key, written(None, gr.OFFSET_COMMIT_VALUE, version, values))
    committed = OffsetAndMetadata(offset=9, leader_epoch=4 if version >= 3 else None, metadata="m")
    assert read == gr.OffsetRecorded(partition=TopicPartition("t", 3), committed=committed)
    assert gr.group_record(key, None) == gr.OffsetRecorded(partition=TopicPartition("t", 3), committed=None)


@pytest.mark.parametrize("version", range(5))
def test_group_record_reads_classic_group_of_each_version(version: int) -> None:
    """The record contains the members; consumers' blobs are decoded."""
    key = written(2, gr.GROUP_METADATA_KEY, 0, {"group": "g"})
    member = {
        "member_id": "m",
        "group_instance_id": "i",
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout": 1,
        "session_timeout": 2,
        "subscription": b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff",
        "assignment": b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x05\xff\xff\xff\xff",
    }
    group = {
        "protocol_type": "consumer",
        "generation": 6,
        "protocol": "range",
        "leader": "m",
        "current_state_timestamp": 0,
        "members": [member],
    }
    read = gr.group_record(key, written(None, gr.GROUP_METADATA_VALUE, version, group))
    assert isinstance(read, gr.ClassicGroupRecorded)
    assert read.group is not None
    (described,) = read.group.members
    assert (read.generation, read.group.state, read.group.assignor) == (6, "Stable", "range")
    assert described.instance_id == ("i" if version >= 3 else None)
    assert (described.topics, described.assignment) == ({"t"}, {TopicPartition("t", 5)})
    assert gr.group_record(key, None) == gr.ClassicGroupRecorded(generation=-1, group=None)


def test_group_record_reads_epochs_targets_and_assignments() -> None:
    """In a consumer group, partitions pending revocation are separate from retained partitions."""
    group_key = written(3, gr.CONSUMER_GROUP_METADATA_KEY, 0, {"group_id": "g"})
    target_key = written(6, gr.TARGET_METADATA_KEY, 0, {"group_id": "g"})
    epoch = written(None, gr.CONSUMER_GROUP_METADATA_VALUE, 0, {"epoch": 4, "metadata_hash": 1})
    target_epoch = written(None, gr.TARGET_METADATA_VALUE, 0, {"assignment_epoch": 3})
    assert gr.group_record(group_key, epoch) == gr.GroupEpochRecorded(epoch=4)
    assert gr.group_record(group_key, None) == gr.GroupEpochRecorded(epoch=None)
    assert gr.group_record(target_key, target_epoch) == gr.TargetEpochRecorded(epoch=3)
    assert gr.group_record(target_key, None) == gr.TargetEpochRecorded(epoch=None)
    some = [{"topic_id": ID, "partitions": (1, 2)}]
    both = frozenset({TopicIdPartition(ID, 1), TopicIdPartition(ID, 2)})
    key = of_member(7, gr.TARGET_MEMBER_KEY)
    target = written(None, gr.TARGET_MEMBER_VALUE, 0, {"topic_partitions": some})
    assert gr.group_record(key, target) == gr.TargetRecorded(member_id="m", target=both)
    assert gr.group_record(key, None) == gr.TargetRecorded(member_id="m", target=None)
    key = of_member(8, gr.CURRENT_ASSIGNMENT_KEY)
    has = {
        "member_epoch": 4,
        "previous_member_epoch": 3,
        "state": 1,
        "assigned_partitions": [],
        "partitions_pending_revocation": [{**some[0], "assignment_epochs": (3, 3)}],
    }
    read = gr.group_record(key, written(None, gr.CURRENT_ASSIGNMENT_VALUE, 0, has))
    assert read == gr.AssignmentRecorded(member_id="m", epoch=4, assigned=frozenset(), revoking=both, previous_epoch=3)
    gone = gr.AssignmentRecorded(member_id="m", epoch=-1, assigned=frozenset(), revoking=frozenset())
    assert gr.group_record(key, None) == gone


def test_is_of_group_compares_whole_group_id() -> None:
    """A group id that is a prefix of another one is a different group."""
    assert gr.is_of_group(MEMBER_KEY, "gours-930524989c")
    assert not gr.is_of_group(MEMBER_KEY, "gours")
    assert not gr.is_of_group(b"", "g")


def test_group_record_ignores_unknown_kind_and_rejects_unknown_version() -> None:
    """An unknown kind of record returns None; an unknown version raises an error for that record."""
    assert gr.group_record(b"\x00\x10\x00\x01g", b"\x00\x00") is None
    with pytest.raises(MalformedError, match="version 1; up to 0"):
        gr.group_record(MEMBER_KEY, b"\x00\x01" + MEMBER[2:])


@given(st.integers(0, len(MEMBER_KEY)), st.integers(0, len(MEMBER)))
def test_truncated_group_record_raises_malformed_error(key: int, value: int) -> None:
    """A truncated record raises MalformedError or returns None, and nothing else."""
    if (key, value) != (len(MEMBER_KEY), len(MEMBER)):
        try:
            read = gr.group_record(MEMBER_KEY[:key], MEMBER[:value])
        except MalformedError:
            return
        assert read is None
