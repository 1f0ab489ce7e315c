"""The domain's wishes on the wire, field by field and version by version, read back with kio."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.membership.effects import CommitOffsets, Heartbeat
from consumer_membership.translation import requests
from consumer_membership.translation.consumer_protocol import decode_assignment, decode_subscription
from consumer_membership.translation.requests import MemberIdentity
from consumer_membership.types import OffsetAndMetadata, TopicIdPartition, TopicPartition
from consumer_membership.wire.codec import encode
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange
from tests.wire.classic import SUBSCRIBED, beat_order, join_order, leave_order, sync_order
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


def asked(topics: Any) -> list[tuple[str, tuple[int, ...]]]:
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


# ---- of a classic member ---------------------------------------------------------------------------------------------


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("version", [5, 9])
def test_join_offers_each_assignor_in_its_order(version: int) -> None:
    """Rules 4.1: the name is the assignor's, the metadata a subscription; the reason from version 8."""
    call = requests.join_group(only(Api.JOIN_GROUP, version), "g", join_order(instance_id="i"))
    entity = on_the_wire(call, Api.JOIN_GROUP, version)
    assert (entity.group_id, entity.member_id, entity.group_instance_id) == ("g", "m", "i")
    assert (entity.session_timeout, entity.rebalance_timeout) == (timedelta(seconds=45), timedelta(seconds=300))
    assert entity.protocol_type == "consumer"
    assert [protocol.name for protocol in entity.protocols] == ["cooperative-sticky", "range"]
    assert [decode_subscription(protocol.metadata) for protocol in entity.protocols] == [SUBSCRIBED, SUBSCRIBED]
    assert getattr(entity, "reason", None) == ("because" if version == 9 else None)
    assert call.version == version


def test_each_assignor_has_a_subscription_of_its_own() -> None:
    """User data differs by assignor, and the version by what the assignor's members can read."""
    sticky = MemberSubscription(topics=frozenset("t"), user_data=b"sticky", version=1)
    plain = MemberSubscription(topics=frozenset("t"))
    call = requests.join_group(
        only(Api.JOIN_GROUP, 9), "g", join_order(protocols=(("sticky", sticky), ("range", plain)))
    )
    entity = on_the_wire(call, Api.JOIN_GROUP, 9)
    assert [decode_subscription(protocol.metadata) for protocol in entity.protocols] == [sticky, plain]


def test_join_is_cut_to_what_the_wire_can_hold() -> None:
    """Java's limit for a reason (255); the longest duration for a longer one."""
    order = join_order(reason="x" * 300, rebalance_timeout_s=1e9, member_id="")
    entity = on_the_wire(requests.join_group(only(Api.JOIN_GROUP, 9), "g", order), Api.JOIN_GROUP, 9)
    assert (entity.reason, entity.member_id) == ("x" * 255, "")
    assert entity.rebalance_timeout == timedelta(milliseconds=2**31 - 1)


@pytest.mark.parametrize("version", [3, 5])
def test_leaders_sync_has_an_assignment_for_each_member(version: int) -> None:
    """In the version that the member wants; the protocol's name from version 5."""
    order = sync_order(
        instance_id="i",
        assignments={"n": frozenset({T1}), "m": frozenset({T0}), "empty": frozenset()},
        user_data={"n": b"n's"},
        versions={"n": 0, "m": 9},
    )
    call = requests.sync_group(only(Api.SYNC_GROUP, version), "g", order)
    entity = on_the_wire(call, Api.SYNC_GROUP, version)
    assert (entity.group_id, entity.generation_id, entity.member_id, entity.group_instance_id) == ("g", 5, "m", "i")
    blobs = {one.member_id: one.assignment for one in entity.assignments}
    assert {name: decode_assignment(blob).partitions for name, blob in blobs.items()} == order.assignments
    assert {name: decode_assignment(blob).user_data for name, blob in blobs.items()} == {
        "n": b"n's",
        "m": None,
        "empty": None,
    }
    assert {name: int.from_bytes(blob[:2], "big") for name, blob in blobs.items()} == {"n": 0, "m": 3, "empty": 3}
    named = (getattr(entity, "protocol_type", None), getattr(entity, "protocol_name", None))
    assert named == (("consumer", "range") if version == 5 else (None, None))
    assert call.version == version


def test_followers_sync_is_empty() -> None:
    """It only asks."""
    call = requests.sync_group(only(Api.SYNC_GROUP, 5), "g", sync_order())
    assert on_the_wire(call, Api.SYNC_GROUP, 5).assignments == ()


@pytest.mark.parametrize("version", [3, 4])
def test_heartbeat_names_member_instance_and_generation(version: int) -> None:
    """A static member's instance id in each."""
    call = requests.classic_heartbeat(only(Api.HEARTBEAT, version), "g", beat_order(instance_id="i"))
    entity = on_the_wire(call, Api.HEARTBEAT, version)
    assert (entity.group_id, entity.generation_id, entity.member_id, entity.group_instance_id) == ("g", 5, "m", "i")
    assert call.version == version


@pytest.mark.parametrize("version", [4, 5])
def test_leave_is_of_one_member(version: int) -> None:
    """Rules 4.8: member id, instance id and reason."""
    call = requests.leave_group(only(Api.LEAVE_GROUP, version), "g", leave_order(instance_id="i"))
    entity = on_the_wire(call, Api.LEAVE_GROUP, version)
    (member,) = entity.members
    assert (entity.group_id, member.member_id, member.group_instance_id) == ("g", "m", "i")
    assert getattr(member, "reason", None) == ("the consumer is being closed" if version == 5 else None)


def commit_order() -> CommitOffsets:
    """A commit's order, with the generation where the epoch stands."""
    return CommitOffsets(
        commit_id=1, offsets={T0: OffsetAndMetadata(offset=7)}, member_id="m", member_epoch=5, instance_id="i"
    )


@pytest.mark.parametrize("version", [8, 9])
def test_classic_commit_has_the_generation_in_every_version(version: int) -> None:
    """Brokers before 4.0 have version 8, of the same fields."""
    call = requests.offset_commit(only(Api.OFFSET_COMMIT, version), "g", commit_order(), is_classic=True)
    entity = on_the_wire(call, Api.OFFSET_COMMIT, version)
    assert (entity.generation_id_or_member_epoch, entity.member_id, entity.group_instance_id) == (5, "m", "i")


def test_commit_of_the_consumer_protocol_still_needs_version_9() -> None:
    """Rules 3.6: the broker takes none below from such a member."""
    with pytest.raises(UnsupportedProtocolError, match="needed in version 9, and the broker offers versions 8 of it"):
        requests.offset_commit(only(Api.OFFSET_COMMIT, 8), "g", commit_order())


def test_broker_without_the_classic_protocol_is_named() -> None:
    """One below Kafka 2.4, or one that serves other protocols only."""
    with pytest.raises(UnsupportedProtocolError, match=r"JoinGroup \(api key 11\).* Apache Kafka 2\.4 or later"):
        requests.join_group(BrokerVersions(), "g", join_order())


# ---- about a group, by anybody ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_describe_names_the_group_and_asks_for_no_rights(version: int) -> None:
    """KIP-848: one group; the authorized operations would cost the broker work that nobody reads."""
    api = Api.CONSUMER_GROUP_DESCRIBE
    call = requests.describe_consumer_group(only(api, version), "g")
    entity = on_the_wire(call, api, version)
    assert (entity.group_ids, entity.include_authorized_operations) == (("g",), False)
    assert call.version == version


@pytest.mark.parametrize("version", [5, 6])
def test_describe_of_a_classic_group(version: int) -> None:
    """Version 6 differs in its answer only, which has a message, so the answer is read in the version it has."""
    api = Api.DESCRIBE_GROUPS
    call = requests.describe_classic_group(only(api, version), "g")
    entity = on_the_wire(call, api, version)
    assert (entity.groups, entity.include_authorized_operations) == (("g",), False)
    assert call.version == version


MEMBERS = (
    MemberIdentity(member_id="m"),
    MemberIdentity(instance_id="i"),
    MemberIdentity(member_id="n", instance_id="j"),
)


@pytest.mark.parametrize("version", [4, 5])
def test_members_are_removed_in_one_request(version: int) -> None:
    """Rules 3.5: member id, instance id or both, each with the reason where the version has one."""
    api = Api.LEAVE_GROUP
    entity = on_the_wire(requests.remove_members(only(api, version), "g", MEMBERS, "because"), api, version)
    assert entity.group_id == "g"
    assert [(one.member_id, one.group_instance_id) for one in entity.members] == [("m", None), ("", "i"), ("n", "j")]
    assert [getattr(one, "reason", None) for one in entity.members] == ["because" if version == 5 else None] * 3


def test_long_reason_is_cut() -> None:
    """Java's limit; a reason is for people, and none is null."""
    call = requests.remove_members(VERSIONS, "g", MEMBERS[:1], "x" * 300)
    assert on_the_wire(call, Api.LEAVE_GROUP, 5).members[0].reason == "x" * 255
    call = requests.remove_members(VERSIONS, "g", MEMBERS[:1], None)
    assert on_the_wire(call, Api.LEAVE_GROUP, 5).members[0].reason is None


def test_configuration_is_asked_for_by_key() -> None:
    """DescribeConfigs of the resource type GROUP (32): what the coordinator uses for this group's members."""
    entity = on_the_wire(requests.describe_group_config(VERSIONS, "g"), Api.DESCRIBE_CONFIGS, 4)
    (resource,) = entity.resources
    assert (resource.resource_type, resource.resource_name) == (32, "g")
    assert resource.configuration_keys == ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    assert (entity.include_synonyms, entity.include_documentation) == (False, False)


@pytest.mark.parametrize("version", [8, 9])
def test_everything_committed_is_a_null_list_of_topics(version: int) -> None:
    """OffsetFetch as nobody: null asks for all; an open transaction does not hold the answer back."""
    api = Api.OFFSET_FETCH
    entity = on_the_wire(requests.all_committed(only(api, version), "g"), api, version)
    (group,) = entity.groups
    assert (group.group_id, group.topics, entity.require_stable) == ("g", None, False)
    assert (getattr(group, "member_id", None), getattr(group, "member_epoch", -1)) == (None, -1)


@pytest.mark.parametrize("version", [6, 7])
def test_everything_committed_of_one_group(version: int) -> None:
    """Brokers before Kafka 3.0 and Redpanda know no batch; null asks for all there too."""
    api = Api.OFFSET_FETCH
    entity = on_the_wire(requests.all_committed(only(api, version), "g"), api, version)
    assert (entity.group_id, entity.topics) == ("g", None)
    assert getattr(entity, "require_stable", None) is (None if version == 6 else False)


@pytest.mark.parametrize("api", [Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_GROUPS, Api.LEAVE_GROUP])
def test_broker_without_the_api_is_refused(api: Api) -> None:
    """The text names the API and which broker has it."""
    build = {
        Api.CONSUMER_GROUP_DESCRIBE: requests.describe_consumer_group,
        Api.DESCRIBE_GROUPS: requests.describe_classic_group,
        Api.LEAVE_GROUP: lambda versions, group: requests.remove_members(versions, group, MEMBERS, None),
    }[api]
    with pytest.raises(UnsupportedProtocolError, match=rf"{api.title} \(api key {api.value}\)"):
        build(only(Api.METADATA, 12), "g")
