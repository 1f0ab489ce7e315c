"""The domain's wishes on the wire, field by field and version by version, read back with kio."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.membership.effects import CommitOffsets, Heartbeat
from consumer_membership.types import OffsetAndMetadata, TopicIdPartition, TopicPartition
from consumer_membership.wire import requests
from consumer_membership.wire.frames import encode
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange
from tests.wire.frames import VERSIONS, on_the_wire, only

A, B = UUID(int=0xA), UUID(int=0xB)


JOIN = Heartbeat(
    member_id="m",
    member_epoch=0,
    instance_id="i",
    rack_id="r",
    rebalance_timeout_s=300.0,
    topics=("a", "b"),
    assignor="uniform",
    owned=frozenset(),
)


@pytest.mark.parametrize("version", [0, 1])
def test_joining_heartbeat_states_everything(version: int) -> None:
    """H13, H16: the join carries all fields in both versions, and an empty list of partitions, not null."""
    api = Api.CONSUMER_GROUP_HEARTBEAT
    entity = on_the_wire(requests.consumer_group_heartbeat(only(api, version), "g", JOIN), api, version)
    assert (entity.group_id, entity.member_id, entity.member_epoch) == ("g", "m", 0)
    assert (entity.instance_id, entity.rack_id, entity.server_assignor) == ("i", "r", "uniform")
    assert entity.rebalance_timeout == timedelta(minutes=5)
    assert entity.subscribed_topic_names == ("a", "b")
    assert entity.topic_partitions == ()
    assert hasattr(entity, "subscribed_topic_regex") is (version == 1)


@pytest.mark.parametrize("version", [0, 1])
def test_steady_heartbeat_states_nothing_else(version: int) -> None:
    """H13, H16: None is null on the wire, and -1 for the timeout: unchanged."""
    api = Api.CONSUMER_GROUP_HEARTBEAT
    steady = Heartbeat(member_id="m", member_epoch=5)
    entity = on_the_wire(requests.consumer_group_heartbeat(only(api, version), "g", steady), api, version)
    assert (entity.member_id, entity.member_epoch) == ("m", 5)
    assert entity.rebalance_timeout == timedelta(milliseconds=-1)
    assert [
        entity.instance_id,
        entity.rack_id,
        entity.subscribed_topic_names,
        entity.server_assignor,
        entity.topic_partitions,
    ] == [None] * 5


@pytest.mark.parametrize("pattern", [None, "", "orders-.*"])
def test_pattern_is_sent_as_it_is(pattern: str | None) -> None:
    """H30, H31: null leaves the pattern, "" removes it, anything else sets it."""
    heartbeat = Heartbeat(member_id="m", member_epoch=0, topics=(), pattern=pattern)
    entity = on_the_wire(requests.consumer_group_heartbeat(VERSIONS, "g", heartbeat), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert entity.subscribed_topic_regex == pattern
    assert entity.subscribed_topic_names == ()


def test_pattern_is_refused_where_the_broker_cannot_take_one() -> None:
    """H32 (client): version 0 has no pattern; Java's words say so."""
    heartbeat = Heartbeat(member_id="m", member_epoch=0, topics=(), pattern="orders-.*")
    with pytest.raises(UnsupportedProtocolError, match="does not support regular expressions resolution"):
        requests.consumer_group_heartbeat(only(Api.CONSUMER_GROUP_HEARTBEAT, 0), "g", heartbeat)


def test_broker_that_cannot_name_topic_ids_is_no_broker_of_the_consumer_protocol() -> None:
    """Some implementations offer the heartbeat and stop at Metadata 8: the member would never learn what it owns."""
    offered = {Api.CONSUMER_GROUP_HEARTBEAT.value: VersionRange(0, 1), Api.METADATA.value: VersionRange(0, 8)}
    with pytest.raises(UnsupportedProtocolError, match=r"Metadata \(api key 3\)"):
        requests.consumer_group_heartbeat(BrokerVersions(offered), "g", JOIN)


def test_no_pattern_to_remove_is_no_reason_to_refuse() -> None:
    """With version 0 there never was a pattern, so "" says nothing new."""
    heartbeat = Heartbeat(member_id="m", member_epoch=0, topics=("a",), pattern="")
    call = requests.consumer_group_heartbeat(only(Api.CONSUMER_GROUP_HEARTBEAT, 0), "g", heartbeat)
    assert on_the_wire(call, Api.CONSUMER_GROUP_HEARTBEAT, 0).subscribed_topic_names == ("a",)


def test_acknowledged_partitions_are_grouped_by_topic_and_sorted() -> None:
    """H14: what is owned goes out by topic id; equal ownership gives equal bytes."""
    owned = frozenset(TopicIdPartition(topic, number) for topic in (B, A) for number in (2, 0, 1))
    heartbeat = Heartbeat(member_id="m", member_epoch=5, owned=owned)
    entity = on_the_wire(requests.consumer_group_heartbeat(VERSIONS, "g", heartbeat), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert [(topic.topic_id, topic.partitions) for topic in entity.topic_partitions] == [(A, (0, 1, 2)), (B, (0, 1, 2))]


@pytest.mark.parametrize("epoch", [-1, -2])
def test_leave_carries_its_epoch(epoch: int) -> None:
    """The negative epochs of a leave pass as they are."""
    heartbeat = Heartbeat(member_id="m", member_epoch=epoch, instance_id="i", owned=frozenset())
    entity = on_the_wire(requests.consumer_group_heartbeat(VERSIONS, "g", heartbeat), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert (entity.member_epoch, entity.instance_id, entity.topic_partitions) == (epoch, "i", ())


def test_timeout_beyond_int32_is_the_longest_that_can_be_said() -> None:
    """An endless max.poll.interval.ms does not fail, it is cut to 24 days."""
    heartbeat = Heartbeat(member_id="m", member_epoch=0, rebalance_timeout_s=float(10**9))
    entity = on_the_wire(requests.consumer_group_heartbeat(VERSIONS, "g", heartbeat), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert entity.rebalance_timeout == timedelta(milliseconds=2**31 - 1)


def test_commit_carries_member_epoch_instance_and_every_offset() -> None:
    """Rules 3.6: version 9, the epoch in the generation's place, -1 for an unknown leader epoch."""
    commit = CommitOffsets(
        commit_id=1,
        offsets={
            TopicPartition("b", 1): OffsetAndMetadata(offset=2**40, leader_epoch=3, metadata="half"),
            TopicPartition("a", 0): OffsetAndMetadata(offset=0),
            TopicPartition("b", 0): OffsetAndMetadata(offset=7),
        },
        member_id="m",
        member_epoch=5,
        instance_id="i",
    )
    entity = on_the_wire(requests.offset_commit(VERSIONS, "g", commit), Api.OFFSET_COMMIT, 9)
    assert (entity.group_id, entity.generation_id_or_member_epoch, entity.member_id) == ("g", 5, "m")
    assert entity.group_instance_id == "i"
    assert {
        (topic.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
        for topic in entity.topics
        for p in topic.partitions
    } == {("a", 0): (0, -1, ""), ("b", 0): (7, -1, ""), ("b", 1): (2**40, 3, "half")}
    assert [topic.name for topic in entity.topics] == ["a", "b"]


PARTITIONS = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)]


def asked(topics: Any) -> list[tuple[str, tuple[int, ...]]]:  # noqa: ANN401
    """The partitions that an OffsetFetch names."""
    return [(topic.name, topic.partition_indexes) for topic in topics]


@pytest.mark.parametrize("version", [6, 7])
def test_offset_fetch_of_one_group(version: int) -> None:
    """Version 6, the mock cluster's, cannot ask for stable offsets only; 7 can; neither knows members."""
    api = Api.OFFSET_FETCH
    call = requests.offset_fetch(only(api, version), "g", PARTITIONS, member_id="m", member_epoch=5)
    entity = on_the_wire(call, api, version)
    assert entity.group_id == "g"
    assert asked(entity.topics) == [("a", (0,)), ("b", (0, 1))]
    assert getattr(entity, "require_stable", None) is (None if version == 6 else True)


@pytest.mark.parametrize("version", [8, 9])
def test_offset_fetch_of_several_groups(version: int) -> None:
    """From version 8 on groups are asked in a batch; 9 says who asks (rules 3.7)."""
    api = Api.OFFSET_FETCH
    call = requests.offset_fetch(only(api, version), "g", PARTITIONS, member_id="m", member_epoch=5)
    entity = on_the_wire(call, api, version)
    (group,) = entity.groups
    assert (group.group_id, entity.require_stable) == ("g", True)
    assert asked(group.topics) == [("a", (0,)), ("b", (0, 1))]
    assert getattr(group, "member_id", None) == (None if version == 8 else "m")
    assert getattr(group, "member_epoch", None) == (None if version == 8 else 5)


def test_offset_fetch_of_nobody_states_no_member() -> None:
    """Rules 3.7: without member id the id is null and the epoch -1, which every group accepts."""
    call = requests.offset_fetch(VERSIONS, "g", PARTITIONS, member_epoch=5, require_stable=False)
    entity = on_the_wire(call, Api.OFFSET_FETCH, 9)
    (group,) = entity.groups
    assert (group.member_id, group.member_epoch, entity.require_stable) == (None, -1, False)


def test_find_coordinator_in_both_forms() -> None:
    """Rules 2.5: key type 0; one key up to version 3, a batch of one from 4 on."""
    api = Api.FIND_COORDINATOR
    single = on_the_wire(requests.find_coordinator(only(api, 3), "g"), api, 3)
    batch = on_the_wire(requests.find_coordinator(only(api, 4), "g"), api, 4)
    assert (single.key, single.key_type) == ("g", 0)
    assert (batch.coordinator_keys, batch.key_type) == (("g",), 0)


def test_metadata_of_brokers_without_topic_ids() -> None:
    """Version 7: names or null for all, and no word of ids; to ask by id is refused with the release that can."""
    api = Api.METADATA
    versions = only(api, 7)
    by_name = on_the_wire(requests.metadata_of_names(versions, ["b", "a", "b"], may_create=True), api, 7)
    of_all = on_the_wire(requests.metadata_of_names(versions, None), api, 7)
    of_none = on_the_wire(requests.metadata_of_names(versions, ()), api, 7)
    assert [topic.name for topic in by_name.topics] == ["a", "b"]
    assert [entity.allow_auto_topic_creation for entity in (by_name, of_all)] == [True, False]
    assert (of_all.topics, of_none.topics) == (None, ())
    with pytest.raises(UnsupportedProtocolError, match=r"needed in version 12, 13.* Apache Kafka 3\.0 or later"):
        requests.metadata_of_ids(versions, {A})


def test_metadata_in_version_7_byte_by_byte() -> None:
    """The protocol guide's layout: an older header, lengths of 2 and 4 bytes, no tagged fields."""
    call = requests.metadata_of_names(only(Api.METADATA, 7), ["t"])
    assert encode(call, 5, "c") == bytes.fromhex("00000013 0003 0007 00000005 0001 63 00000001 0001 74 00")


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_name_by_id_and_of_all(version: int) -> None:
    """KIP-516: topics are asked for by name or by id, null asks for all; only names may create topics."""
    api = Api.METADATA
    versions = only(api, version)
    by_name = on_the_wire(requests.metadata_of_names(versions, ["b", "a", "b"], may_create=True), api, version)
    by_id = on_the_wire(requests.metadata_of_ids(versions, {B, A}), api, version)
    of_all = on_the_wire(requests.metadata_of_names(versions, None), api, version)
    of_none = on_the_wire(requests.metadata_of_names(versions, ()), api, version)
    assert [(topic.name, topic.topic_id) for topic in by_name.topics] == [("a", None), ("b", None)]
    assert [(topic.name, topic.topic_id) for topic in by_id.topics] == [(None, A), (None, B)]
    assert [entity.allow_auto_topic_creation for entity in (by_name, by_id, of_all)] == [True, False, False]
    assert (of_all.topics, of_none.topics) == (None, ())


@pytest.mark.parametrize("version", [2, 7])
@pytest.mark.parametrize(("read_committed", "level"), [(False, 0), (True, 1)])
def test_list_offsets_states_timestamps_and_isolation(
    version: int,
    read_committed: bool,  # noqa: FBT001
    level: int,
) -> None:
    """With read_committed the end is the last stable offset (KIP-98)."""
    wanted = {
        TopicPartition("a", 1): requests.LATEST_TIMESTAMP,
        TopicPartition("a", 0): requests.EARLIEST_TIMESTAMP,
        TopicPartition("b", 0): 1_700_000_000_000,
    }
    call = requests.list_offsets(only(Api.LIST_OFFSETS, version), wanted, read_committed=read_committed)
    entity = on_the_wire(call, Api.LIST_OFFSETS, version)
    assert (entity.replica_id, entity.isolation_level) == (-1, level)
    assert {(topic.name, p.partition_index): p.timestamp for topic in entity.topics for p in topic.partitions} == {
        ("a", 0): -2,
        ("a", 1): -1,
        ("b", 0): 1_700_000_000_000,
    }


def test_list_offsets_in_version_2_byte_by_byte() -> None:
    """The protocol guide's layout: replica, isolation level, topics with partition and timestamp."""
    call = requests.list_offsets(only(Api.LIST_OFFSETS, 2), {TopicPartition("t", 3): -2}, read_committed=True)
    assert encode(call, 5, "c") == bytes.fromhex(
        "00000027 0002 0002 00000005 0001 63 ffffffff 01 00000001 0001 74 00000001 00000003 fffffffffffffffe"
    )
