"""Requests on the wire, field by field and version by version, decoded with kio."""

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
from tests.wire.classic import SUBSCRIBED, heartbeat_order, join_order, leave_order, sync_order
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
def test_joining_heartbeat_has_all_fields(version: int) -> None:
    """H13, H16: A join carries all fields in both versions, and an empty list of partitions, not null."""
    api = Api.CONSUMER_GROUP_HEARTBEAT
    entity = on_the_wire(requests.consumer_group_heartbeat(only(api, version), "g", JOIN), api, version)
    assert (entity.group_id, entity.member_id, entity.member_epoch) == ("g", "m", 0)
    assert (entity.instance_id, entity.rack_id, entity.server_assignor) == ("i", "r", "uniform")
    assert entity.rebalance_timeout == timedelta(minutes=5)
    assert entity.subscribed_topic_names == ("a", "b")
    assert entity.topic_partitions == ()
    assert hasattr(entity, "subscribed_topic_regex") is (version == 1)


@pytest.mark.parametrize("version", [0, 1])
def test_steady_heartbeat_omits_unchanged_fields(version: int) -> None:
    """H13, H16: Null, and -1 for the timeout, mean "unchanged" on the wire."""
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
def test_heartbeat_sends_pattern_unchanged(pattern: str | None) -> None:
    """H30, H31: Null keeps the pattern, "" removes it, and any other text sets it."""
    heartbeat = Heartbeat(member_id="m", member_epoch=0, topics=(), pattern=pattern)
    entity = on_the_wire(requests.consumer_group_heartbeat(VERSIONS, "g", heartbeat), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert entity.subscribed_topic_regex == pattern
    assert entity.subscribed_topic_names == ()


def test_heartbeat_with_pattern_in_version_0_raises() -> None:
    """H32 (client): Version 0 has no pattern, so the request raises an error with Java's message."""
    heartbeat = Heartbeat(member_id="m", member_epoch=0, topics=(), pattern="orders-.*")
    with pytest.raises(UnsupportedProtocolError, match="does not support regular expressions resolution"):
        requests.consumer_group_heartbeat(only(Api.CONSUMER_GROUP_HEARTBEAT, 0), "g", heartbeat)


def test_heartbeat_raises_if_broker_lacks_topic_ids() -> None:
    """Some brokers offer the heartbeat but only Metadata 8, so members could not resolve topic ids."""
    offered = {Api.CONSUMER_GROUP_HEARTBEAT.value: VersionRange(0, 1), Api.METADATA.value: VersionRange(0, 8)}
    with pytest.raises(UnsupportedProtocolError, match=r"Metadata \(api key 3\)"):
        requests.consumer_group_heartbeat(BrokerVersions(offered), "g", JOIN)


def test_heartbeat_with_empty_pattern_works_in_version_0() -> None:
    """Version 0 has no pattern, so removing one changes nothing."""
    heartbeat = Heartbeat(member_id="m", member_epoch=0, topics=("a",), pattern="")
    call = requests.consumer_group_heartbeat(only(Api.CONSUMER_GROUP_HEARTBEAT, 0), "g", heartbeat)
    assert on_the_wire(call, Api.CONSUMER_GROUP_HEARTBEAT, 0).subscribed_topic_names == ("a",)


def test_heartbeat_groups_and_sorts_owned_partitions() -> None:
    """H14: Owned partitions are sent by topic id; equal ownership produces equal bytes."""
    owned = frozenset(TopicIdPartition(topic, number) for topic in (B, A) for number in (2, 0, 1))
    heartbeat = Heartbeat(member_id="m", member_epoch=5, owned=owned)
    entity = on_the_wire(requests.consumer_group_heartbeat(VERSIONS, "g", heartbeat), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert [(topic.topic_id, topic.partitions) for topic in entity.topic_partitions] == [(A, (0, 1, 2)), (B, (0, 1, 2))]


@pytest.mark.parametrize("epoch", [-1, -2])
def test_leave_heartbeat_sends_negative_epoch(epoch: int) -> None:
    """The negative epochs of a leave are sent unchanged."""
    heartbeat = Heartbeat(member_id="m", member_epoch=epoch, instance_id="i", owned=frozenset())
    entity = on_the_wire(requests.consumer_group_heartbeat(VERSIONS, "g", heartbeat), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert (entity.member_epoch, entity.instance_id, entity.topic_partitions) == (epoch, "i", ())


def test_heartbeat_limits_rebalance_timeout_to_int32() -> None:
    """A longer max.poll.interval.ms is capped at 24 days instead of failing."""
    heartbeat = Heartbeat(member_id="m", member_epoch=0, rebalance_timeout_s=float(10**9))
    entity = on_the_wire(requests.consumer_group_heartbeat(VERSIONS, "g", heartbeat), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert entity.rebalance_timeout == timedelta(milliseconds=2**31 - 1)


def test_offset_commit_has_member_epoch_instance_and_offsets() -> None:
    """Rules 3.6: Version 9 sends the epoch as generation and -1 for an unknown leader epoch."""
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


def requested(topics: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Return the partitions of an OffsetFetch."""
    return [(topic.name, topic.partition_indexes) for topic in topics]


@pytest.mark.parametrize("version", [6, 7])
def test_offset_fetch_before_version_8_has_one_group(version: int) -> None:
    """Version 6, the mock cluster's, has no flag for stable offsets; version 7 has; neither has members."""
    api = Api.OFFSET_FETCH
    call = requests.offset_fetch(only(api, version), "g", PARTITIONS, member_id="m", member_epoch=5)
    entity = on_the_wire(call, api, version)
    assert entity.group_id == "g"
    assert requested(entity.topics) == [("a", (0,)), ("b", (0, 1))]
    assert getattr(entity, "require_stable", None) is (None if version == 6 else True)


@pytest.mark.parametrize("version", [8, 9])
def test_offset_fetch_from_version_8_has_batch_of_groups(version: int) -> None:
    """Version 8 introduces the batch, and version 9 the member (rules 3.7)."""
    api = Api.OFFSET_FETCH
    call = requests.offset_fetch(only(api, version), "g", PARTITIONS, member_id="m", member_epoch=5)
    entity = on_the_wire(call, api, version)
    (group,) = entity.groups
    assert (group.group_id, entity.require_stable) == ("g", True)
    assert requested(group.topics) == [("a", (0,)), ("b", (0, 1))]
    assert getattr(group, "member_id", None) == (None if version == 8 else "m")
    assert getattr(group, "member_epoch", None) == (None if version == 8 else 5)


def test_offset_fetch_without_member_sends_null_id() -> None:
    """Rules 3.7: Without a member id, the id is null and the epoch -1, which every group accepts."""
    call = requests.offset_fetch(VERSIONS, "g", PARTITIONS, member_epoch=5, require_stable=False)
    entity = on_the_wire(call, Api.OFFSET_FETCH, 9)
    (group,) = entity.groups
    assert (group.member_id, group.member_epoch, entity.require_stable) == (None, -1, False)


def test_find_coordinator_sends_one_key_or_batch() -> None:
    """Rules 2.5: The key type is 0; version 3 sends one key, and version 4 a batch of one."""
    api = Api.FIND_COORDINATOR
    single = on_the_wire(requests.find_coordinator(only(api, 3), "g"), api, 3)
    batch = on_the_wire(requests.find_coordinator(only(api, 4), "g"), api, 4)
    assert (single.key, single.key_type) == ("g", 0)
    assert (batch.coordinator_keys, batch.key_type) == (("g",), 0)


def test_find_coordinators_sends_one_batch_or_one_request_for_each_group() -> None:
    """KIP-699: Version 4 has several groups in one request."""
    api = Api.FIND_COORDINATOR
    singles = [on_the_wire(call, api, 3).key for call in requests.find_coordinators(only(api, 3), ("g", "h"))]
    batches = [
        on_the_wire(call, api, 4).coordinator_keys for call in requests.find_coordinators(only(api, 4), ("g", "h"))
    ]
    assert (singles, batches) == (["g", "h"], [("g", "h")])


def test_metadata_request_of_version_7_rejects_topic_ids() -> None:
    """Version 7 has names, or null for all; a request by id raises an error that names the needed release."""
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


def test_metadata_request_of_version_7_equals_protocol_guide_bytes() -> None:
    """The layout has an older header, lengths of 2 and 4 bytes, and no tagged fields."""
    call = requests.metadata_of_names(only(Api.METADATA, 7), ["t"])
    assert encode(call, 5, "c") == bytes.fromhex("00000013 0003 0007 00000005 0001 63 00000001 0001 74 00")


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_request_selects_topics_by_name_or_id_or_all(version: int) -> None:
    """KIP-516: Topics are requested by name or id, null requests all; only names may create topics."""
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
def test_list_offsets_request_has_timestamps_and_isolation_level(
    version: int,
    read_committed: bool,  # noqa: FBT001
    level: int,
) -> None:
    """With read_committed, the end is the last stable offset (KIP-98)."""
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


def test_list_offsets_request_of_version_2_equals_protocol_guide_bytes() -> None:
    """The layout is replica, isolation level, then topics with partition and timestamp."""
    call = requests.list_offsets(only(Api.LIST_OFFSETS, 2), {TopicPartition("t", 3): -2}, read_committed=True)
    assert encode(call, 5, "c") == bytes.fromhex(
        "00000027 0002 0002 00000005 0001 63 ffffffff 01 00000001 0001 74 00000001 00000003 fffffffffffffffe"
    )


# ---- of a classic member ---------------------------------------------------------------------------------------------


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("version", [5, 9])
def test_join_request_offers_assignors_in_order(version: int) -> None:
    """Rules 4.1: Each entry has the assignor's name and a subscription; version 8 adds the reason."""
    call = requests.join_group(only(Api.JOIN_GROUP, version), "g", join_order(instance_id="i"))
    entity = on_the_wire(call, Api.JOIN_GROUP, version)
    assert (entity.group_id, entity.member_id, entity.group_instance_id) == ("g", "m", "i")
    assert (entity.session_timeout, entity.rebalance_timeout) == (timedelta(seconds=45), timedelta(seconds=300))
    assert entity.protocol_type == "consumer"
    assert [protocol.name for protocol in entity.protocols] == ["cooperative-sticky", "range"]
    assert [decode_subscription(protocol.metadata) for protocol in entity.protocols] == [SUBSCRIBED, SUBSCRIBED]
    assert getattr(entity, "reason", None) == ("because" if version == 9 else None)
    assert call.version == version


def test_join_request_has_own_subscription_for_each_assignor() -> None:
    """User data and version differ by assignor."""
    sticky = MemberSubscription(topics=frozenset("t"), user_data=b"sticky", version=1)
    plain = MemberSubscription(topics=frozenset("t"))
    call = requests.join_group(
        only(Api.JOIN_GROUP, 9), "g", join_order(protocols=(("sticky", sticky), ("range", plain)))
    )
    entity = on_the_wire(call, Api.JOIN_GROUP, 9)
    assert [decode_subscription(protocol.metadata) for protocol in entity.protocols] == [sticky, plain]


def test_join_request_shortens_reason_and_limits_timeout() -> None:
    """Java limits a reason to 255 characters; the timeout is capped at the longest duration."""
    order = join_order(reason="x" * 300, rebalance_timeout_s=1e9, member_id="")
    entity = on_the_wire(requests.join_group(only(Api.JOIN_GROUP, 9), "g", order), Api.JOIN_GROUP, 9)
    assert (entity.reason, entity.member_id) == ("x" * 255, "")
    assert entity.rebalance_timeout == timedelta(milliseconds=2**31 - 1)


@pytest.mark.parametrize("version", [3, 5])
def test_leaders_sync_request_has_assignment_for_each_member(version: int) -> None:
    """Each assignment has its member's version; the request has the protocol's name from version 5."""
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


def test_followers_sync_request_has_no_assignments() -> None:
    """A follower only requests its own assignment."""
    call = requests.sync_group(only(Api.SYNC_GROUP, 5), "g", sync_order())
    assert on_the_wire(call, Api.SYNC_GROUP, 5).assignments == ()


@pytest.mark.parametrize("version", [3, 4])
def test_classic_heartbeat_has_member_instance_and_generation(version: int) -> None:
    """Each version carries a static member's instance id."""
    call = requests.classic_heartbeat(only(Api.HEARTBEAT, version), "g", heartbeat_order(instance_id="i"))
    entity = on_the_wire(call, Api.HEARTBEAT, version)
    assert (entity.group_id, entity.generation_id, entity.member_id, entity.group_instance_id) == ("g", 5, "m", "i")
    assert call.version == version


@pytest.mark.parametrize("version", [4, 5])
def test_leave_request_has_one_member(version: int) -> None:
    """Rules 4.8: A leave carries member id, instance id and reason."""
    call = requests.leave_group(only(Api.LEAVE_GROUP, version), "g", leave_order(instance_id="i"))
    entity = on_the_wire(call, Api.LEAVE_GROUP, version)
    (member,) = entity.members
    assert (entity.group_id, member.member_id, member.group_instance_id) == ("g", "m", "i")
    assert getattr(member, "reason", None) == ("the consumer is being closed" if version == 5 else None)


def commit_order() -> CommitOffsets:
    """Build a commit whose epoch is the generation."""
    return CommitOffsets(
        commit_id=1, offsets={T0: OffsetAndMetadata(offset=7)}, member_id="m", member_epoch=5, instance_id="i"
    )


@pytest.mark.parametrize("version", [8, 9])
def test_classic_commit_has_generation_in_each_version(version: int) -> None:
    """Brokers before 4.0 offer version 8, which has the same fields."""
    call = requests.offset_commit(only(Api.OFFSET_COMMIT, version), "g", commit_order(), is_classic=True)
    entity = on_the_wire(call, Api.OFFSET_COMMIT, version)
    assert (entity.generation_id_or_member_epoch, entity.member_id, entity.group_instance_id) == (5, "m", "i")


def test_consumer_protocol_commit_requires_version_9() -> None:
    """Rules 3.6: The broker accepts no lower version from such a member."""
    with pytest.raises(UnsupportedProtocolError, match="needed in version 9, but the broker offers versions 8 of it"):
        requests.offset_commit(only(Api.OFFSET_COMMIT, 8), "g", commit_order())


def test_join_request_raises_if_broker_lacks_classic_protocol() -> None:
    """The broker is older than Kafka 2.4 or serves other protocols only."""
    with pytest.raises(UnsupportedProtocolError, match=r"JoinGroup \(api key 11\).* Apache Kafka 2\.4 or later"):
        requests.join_group(BrokerVersions(), "g", join_order())


# ---- about a group, by any client ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_describe_consumer_group_omits_authorized_operations(version: int) -> None:
    """KIP-848: The request names one group and skips authorized operations, which cost the broker work."""
    api = Api.CONSUMER_GROUP_DESCRIBE
    call = requests.describe_consumer_group(only(api, version), "g")
    entity = on_the_wire(call, api, version)
    assert (entity.group_ids, entity.include_authorized_operations) == (("g",), False)
    assert call.version == version


@pytest.mark.parametrize("version", [5, 6])
def test_describe_classic_group_keeps_its_version(version: int) -> None:
    """Only the response of version 6 differs, so the call keeps its version for decoding."""
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
def test_remove_members_sends_one_request(version: int) -> None:
    """Rules 3.5: Each member has a member id, an instance id or both, and a reason if the version has one."""
    api = Api.LEAVE_GROUP
    entity = on_the_wire(requests.remove_members(only(api, version), "g", MEMBERS, "because"), api, version)
    assert entity.group_id == "g"
    assert [(one.member_id, one.group_instance_id) for one in entity.members] == [("m", None), ("", "i"), ("n", "j")]
    assert [getattr(one, "reason", None) for one in entity.members] == ["because" if version == 5 else None] * 3


def test_remove_members_shortens_long_reason() -> None:
    """Java limits a reason to 255 characters; no reason is null."""
    call = requests.remove_members(VERSIONS, "g", MEMBERS[:1], "x" * 300)
    assert on_the_wire(call, Api.LEAVE_GROUP, 5).members[0].reason == "x" * 255
    call = requests.remove_members(VERSIONS, "g", MEMBERS[:1], None)
    assert on_the_wire(call, Api.LEAVE_GROUP, 5).members[0].reason is None


def test_describe_group_config_requests_keys() -> None:
    """DescribeConfigs of resource type GROUP (32) returns the values that the coordinator uses."""
    entity = on_the_wire(requests.describe_group_config(VERSIONS, "g"), Api.DESCRIBE_CONFIGS, 4)
    (resource,) = entity.resources
    assert (resource.resource_type, resource.resource_name) == (32, "g")
    assert resource.configuration_keys == ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    assert (entity.include_synonyms, entity.include_documentation) == (False, False)


@pytest.mark.parametrize("version", [8, 9])
def test_all_committed_request_has_null_topics(version: int) -> None:
    """Null requests all topics; without a member and stable offsets, open transactions do not delay it."""
    api = Api.OFFSET_FETCH
    entity = on_the_wire(requests.all_committed(only(api, version), "g"), api, version)
    (group,) = entity.groups
    assert (group.group_id, group.topics, entity.require_stable) == ("g", None, False)
    assert (getattr(group, "member_id", None), getattr(group, "member_epoch", -1)) == (None, -1)


@pytest.mark.parametrize("version", [6, 7])
def test_all_committed_request_before_version_8_has_one_group(version: int) -> None:
    """Brokers before Kafka 3.0 and Redpanda have no batch; null requests all topics there as well."""
    api = Api.OFFSET_FETCH
    entity = on_the_wire(requests.all_committed(only(api, version), "g"), api, version)
    assert (entity.group_id, entity.topics) == ("g", None)
    assert getattr(entity, "require_stable", None) is (None if version == 6 else False)


@pytest.mark.parametrize("api", [Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_GROUPS, Api.LEAVE_GROUP])
def test_request_raises_if_broker_lacks_api(api: Api) -> None:
    """The message names the API and the broker release that has it."""
    build = {
        Api.CONSUMER_GROUP_DESCRIBE: requests.describe_consumer_group,
        Api.DESCRIBE_GROUPS: requests.describe_classic_group,
        Api.LEAVE_GROUP: lambda versions, group: requests.remove_members(versions, group, MEMBERS, None),
    }[api]
    with pytest.raises(UnsupportedProtocolError, match=rf"{api.title} \(api key {api.value}\)"):
        build(only(Api.METADATA, 12), "g")
