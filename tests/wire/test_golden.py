"""The codec on frames of the Java client, librdkafka and a real broker, byte for byte.

Recorded by `tests.wire.record_golden`; the first line of `golden/frames.jsonl` describes the recording.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any
from uuid import UUID

import pytest

from consumer_membership.translation.consumer_protocol import decode_assignment, decode_subscription
from consumer_membership.types import TopicPartition
from consumer_membership.wire.codec import Message, decode, read_data, write_data
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.messages import ASSIGNMENT, LAYOUTS, SUBSCRIPTION
from consumer_membership.wire.schema import Table
from consumer_membership.wire.versions import SUPPORTED, Api
from tests.support.versions import NEWEST
from tests.wire.golden_frames import (
    ANSWER,
    FILE,
    JAVA,
    LIBRDKAFKA,
    REQUEST,
    GoldenFrame,
    as_values,
    golden,
    may_end_with,
    message_of,
    sender_of,
    written_again,
)
from tests.wire.record_golden import RECORDS, TELEMETRY, TOPICS, about, pattern_of

#: The versions of golden requests and responses: first the versions of Java, then of librdkafka.
SEEN: Mapping[Api, tuple[tuple[int, ...], tuple[int, ...]]] = {
    Api.LIST_OFFSETS: ((2, 7, 11), (2, 7)),
    Api.METADATA: ((7, 12, 13), (7, 12, 13)),
    Api.OFFSET_COMMIT: ((8, 9, 10), (8, 9)),
    Api.OFFSET_FETCH: ((6, 7, 8, 9, 10), (6, 7, 8, 9)),
    Api.FIND_COORDINATOR: ((3, 4, 6), (2,)),
    Api.JOIN_GROUP: ((5, 9), (5,)),
    Api.HEARTBEAT: ((3, 4), (3,)),
    Api.LEAVE_GROUP: ((4, 5), (1,)),
    Api.SYNC_GROUP: ((3, 5), (3,)),
    Api.DESCRIBE_GROUPS: ((5, 6), (5,)),
    Api.SASL_HANDSHAKE: ((1,), (1,)),
    Api.API_VERSIONS: ((0, 3, 5), (0, 3)),
    Api.DESCRIBE_CONFIGS: ((4,), (1,)),
    Api.SASL_AUTHENTICATE: ((1, 2), (1,)),
    Api.CONSUMER_GROUP_HEARTBEAT: ((0, 1), (1,)),
    Api.CONSUMER_GROUP_DESCRIBE: ((0, 1), (0,)),
    Api.GET_TELEMETRY_SUBSCRIPTIONS: ((0,), (0,)),
    Api.PUSH_TELEMETRY: ((0,), (0,)),
}
#: Versions that this package supports and the recorded librdkafka release does not. Java supports all of them.
NOT_LIBRDKAFKAS: Mapping[Api, tuple[int, ...]] = {
    Api.FIND_COORDINATOR: (3, 4),
    Api.JOIN_GROUP: (9,),
    Api.HEARTBEAT: (4,),
    Api.LEAVE_GROUP: (4, 5),
    Api.SYNC_GROUP: (5,),
    Api.DESCRIBE_GROUPS: (6,),
    Api.DESCRIBE_CONFIGS: (4,),
    Api.SASL_AUTHENTICATE: (2,),
    Api.CONSUMER_GROUP_HEARTBEAT: (0,),
    Api.CONSUMER_GROUP_DESCRIBE: (1,),
}
#: APIs of operators only, which are compared with Kafka's definitions (`test_messages_of_kafka`) and kio instead.
NOT_RECORDED = {Api.LIST_GROUPS, Api.DESCRIBE_PRODUCERS, Api.DESCRIBE_TRANSACTIONS, Api.LIST_TRANSACTIONS}
#: The versions of the structures that members of a classic group exchange (0 to 3).
SEEN_BLOBS: Mapping[tuple[str, str], set[int]] = {
    (SUBSCRIPTION.name, JAVA): {3},
    (SUBSCRIPTION.name, LIBRDKAFKA): {3},
    (ASSIGNMENT.name, JAVA): {3},
    (ASSIGNMENT.name, LIBRDKAFKA): {0},
}
_BLOB_VERSION_BYTES = 2


def ids(frames: tuple[GoldenFrame, ...]) -> list[str]:
    """Return test ids, numbered within each kind."""
    counted: defaultdict[str, int] = defaultdict(int)
    names = []
    for one in frames:
        kind = f"{one.client}-{one.api.title}-v{one.version}-{one.direction}"
        counted[kind] += 1
        names.append(f"{kind}-{counted[kind]}")
    return names


def frames_of(api: Api, version: int, direction: str, client: str | None = None) -> Iterator[GoldenFrame]:
    """Yield the frames of a kind."""
    for one in golden():
        if (one.api, one.version, one.direction) == (api, version, direction) and client in {None, one.client}:
            yield one


def frame_with(
    client: str, api: Api, version: int, direction: str, holds: Callable[[Message], object]
) -> tuple[GoldenFrame, Message]:
    """Return the first frame of a kind whose message satisfies the predicate, and this message."""
    for one in frames_of(api, version, direction, client):
        message, _ = message_of(one)
        if holds(message):
            return one, message
    raise AssertionError(f"no such {direction} of {api.title} v{version}")


def message_with(
    client: str, api: Api, version: int, direction: str, holds: Callable[[Message], object] = lambda _: True
) -> Message:
    """Return the first message of a kind that satisfies the predicate."""
    return frame_with(client, api, version, direction, holds)[1]


@cache
def topic_ids() -> Mapping[str, UUID]:
    """Return the topic ids by name, from librdkafka's metadata."""
    response = message_with(LIBRDKAFKA, Api.METADATA, 13, ANSWER, lambda answer: len(answer.topics) == len(TOPICS))
    return {one.name: one.topic_id for one in response.topics}


def partitions_by_id(topics: Any) -> dict[str, set[int]]:
    """Return partitions by topic name."""
    names = {topic_id: name for name, topic_id in topic_ids().items()}
    return {names[one.topic_id]: set(one.partitions) for one in topics}


ALL = {TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)}
ALL_BY_TOPIC = {topic: set(range(count)) for topic, count in TOPICS.items()}
#: The number of records in each partition.
ENDS = {(name, at): len(range(at, RECORDS, count)) for name, count in TOPICS.items() for at in range(count)}

each_client = pytest.mark.parametrize("client", [JAVA, LIBRDKAFKA])


# ---- every frame -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", golden(), ids=ids(golden()))
def test_golden_frame_round_trips(frame: GoldenFrame) -> None:
    """Header and body round-trip to the last byte, so no frame has a tagged field that the tables lack."""
    message, end = message_of(frame)
    assert frame.data[end:] in may_end_with(frame)
    assert written_again(frame) == frame.data[:end]
    if frame.direction == REQUEST:
        assert sender_of(frame)[:2] == (frame.api, frame.version)
    else:
        assert decode(frame.api, frame.version, frame.data) == message


def blobs() -> Iterator[tuple[str, Table, bytes]]:
    """Yield the blobs of classic group members, with client and table."""
    for frame in golden():
        message, _ = message_of(frame)
        if (frame.api, frame.direction) == (Api.JOIN_GROUP, REQUEST):
            yield from ((frame.client, SUBSCRIPTION, one.metadata) for one in message.protocols)
        elif (frame.api, frame.direction) == (Api.JOIN_GROUP, ANSWER):
            yield from ((frame.client, SUBSCRIPTION, one.metadata) for one in message.members)
        elif (frame.api, frame.direction) == (Api.SYNC_GROUP, REQUEST):
            yield from ((frame.client, ASSIGNMENT, one.assignment) for one in message.assignments)
        elif frame.api is Api.SYNC_GROUP and message.assignment:
            yield frame.client, ASSIGNMENT, message.assignment


def test_golden_subscription_and_assignment_blobs_round_trip() -> None:
    """The blobs are inside JoinGroup and SyncGroup, in the versions of the table."""
    seen: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for client, table, blob in blobs():
        version = int.from_bytes(blob[:_BLOB_VERSION_BYTES], "big")
        message, end = read_data(table, version, blob, _BLOB_VERSION_BYTES)
        assert end == len(blob)
        assert blob[:_BLOB_VERSION_BYTES] + write_data(table, version, as_values(message)) == blob
        seen[table.name, client].add(version)
    assert seen == SEEN_BLOBS


# ---- recorded and missing versions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [REQUEST, ANSWER])
def test_golden_frames_have_expected_versions(direction: str) -> None:
    """The table lists exactly the versions in the file."""
    found: dict[Api, tuple[set[int], set[int]]] = {api: (set(), set()) for api in LAYOUTS if api not in NOT_RECORDED}
    for frame in golden():
        if frame.direction == direction:
            found[frame.api][frame.client == LIBRDKAFKA].add(frame.version)
    assert found == {api: (set(java), set(librdkafka)) for api, (java, librdkafka) in SEEN.items()}


def test_supported_versions_have_golden_frames() -> None:
    """The Java client covers every version, and librdkafka all but those in the table."""
    spoken = {api: versions for api, versions in SUPPORTED.items() if api not in NOT_RECORDED}
    assert {api: set(versions) - set(SEEN[api][0]) for api, versions in spoken.items()} == {
        api: set() for api in spoken
    }
    missing = {api: tuple(one for one in versions if one not in SEEN[api][1]) for api, versions in spoken.items()}
    assert {api: versions for api, versions in missing.items() if versions} == NOT_LIBRDKAFKAS


def test_golden_frames_are_from_newest_broker() -> None:
    """Each new broker release needs a new recording, and the file's first line must be correct."""
    assert json.loads(FILE.read_text().partition("\n")[0]) == about(golden())
    assert {one.client_version for one in golden() if one.client == JAVA} == {NEWEST}


# ---- known values ---------------------------------------------------------------------------------------------------


@each_client
def test_golden_request_header_has_client_id(client: str) -> None:
    """The header's client id is the configured one."""
    prefix = "java" if client == JAVA else "rdkafka"
    senders = {sender_of(one)[3] for one in golden() if one.client == client and one.direction == REQUEST}
    assert senders == {f"{prefix}-{role}" for role in ("first", "second", "admin")}


@pytest.mark.parametrize(
    ("client", "software", "version"),
    [(JAVA, "apache-kafka-java", NEWEST), (LIBRDKAFKA, "confluent-kafka-python", None)],
)
def test_golden_api_versions_request_has_software_name(client: str, software: str, version: str | None) -> None:
    """KIP-511: The request has the client's software name and version."""
    asked = message_with(client, Api.API_VERSIONS, 3, REQUEST)
    assert asked.client_software_name == software
    assert version in {None, asked.client_software_version}


@each_client
def test_golden_api_versions_response_has_versions_and_features(client: str) -> None:
    """The broker offers every version that this package uses; the features are tagged fields."""
    response = message_with(client, Api.API_VERSIONS, 3, ANSWER)
    offered = {one.api_key: range(one.min_version, one.max_version + 1) for one in response.api_keys}
    spoken = {api: versions for api, versions in SUPPORTED.items() if api not in TELEMETRY}
    assert all(version in offered[api] for api, versions in spoken.items() for version in versions)
    assert TELEMETRY.isdisjoint(offered)
    assert "group.version" in {one.name for one in response.finalized_features}
    assert response.finalized_features_epoch > 0
    assert all(0 <= one.min_version <= one.max_version for one in response.supported_features)


def test_golden_unsupported_version_error_is_in_version_0() -> None:
    """The response has the version range of ApiVersions itself (KIP-511)."""
    refused = message_with(JAVA, Api.API_VERSIONS, 0, ANSWER, lambda answer: answer.error_code)
    assert ErrorCode(refused.error_code) is ErrorCode.unsupported_version
    assert [(one.api_key, one.min_version) for one in refused.api_keys] == [(Api.API_VERSIONS, 0)]


@each_client
def test_golden_metadata_response_has_topics(client: str) -> None:
    """The response has the partitions and their only leader."""
    response = message_with(client, Api.METADATA, 13, ANSWER, lambda answer: len(answer.topics) == len(TOPICS))
    assert {one.name: {part.partition_index for part in one.partitions} for one in response.topics} == ALL_BY_TOPIC
    assert {part.leader_id for one in response.topics for part in one.partitions} == {response.brokers[0].node_id}
    assert {one.name: one.topic_id for one in response.topics} == topic_ids()
    replicas = {
        (part.replica_nodes, part.isr_nodes, part.offline_replicas) for t in response.topics for part in t.partitions
    }
    assert replicas == {((1,), (1,), ())}


def test_golden_metadata_response_has_authorized_operations() -> None:
    """The request does not create a missing topic."""
    asked = message_with(JAVA, Api.METADATA, 13, REQUEST, lambda one: one.include_topic_authorized_operations)
    assert asked.allow_auto_topic_creation is False
    assert message_with(JAVA, Api.METADATA, 13, REQUEST).allow_auto_topic_creation is True
    response = message_with(
        JAVA, Api.METADATA, 13, ANSWER, lambda one: {topic.error_code for topic in one.topics} - {0}
    )
    topics = {(one.name, ErrorCode(one.error_code), one.topic_authorized_operations > 0) for one in response.topics}
    assert topics == {(None, ErrorCode.unknown_topic_id, False), ("golden-a", ErrorCode.none, True)}


def test_golden_metadata_request_by_id_has_null_names() -> None:
    """A request by topic id has null as the name (KIP-516)."""
    asked = message_with(LIBRDKAFKA, Api.METADATA, 13, REQUEST, lambda one: one.topics and one.topics[0].topic_id)
    assert {(one.topic_id, one.name) for one in asked.topics} == {(one, None) for one in topic_ids().values()}


@each_client
def test_golden_joining_heartbeat_has_all_fields(client: str) -> None:
    """The first heartbeat of a static member has all fields."""
    joins = message_with(client, Api.CONSUMER_GROUP_HEARTBEAT, 1, REQUEST, lambda one: one.member_epoch == 0)
    assert joins.group_id == f"golden-{client}-1"
    assert joins.member_id
    assert (joins.instance_id, joins.rack_id, joins.server_assignor) == ("first", "rack-1", "range")
    assert joins.rebalance_timeout_ms == 300_000
    assert set(joins.subscribed_topic_names) == set(TOPICS)
    assert joins.topic_partitions == ()


@pytest.mark.parametrize(
    ("client", "pattern"), [(JAVA, pattern_of(TOPICS)), (LIBRDKAFKA, f"(^({pattern_of(TOPICS)})$)")]
)
def test_golden_joining_heartbeat_has_pattern(client: str, pattern: str) -> None:
    """The broker resolves the pattern."""
    joins = message_with(client, Api.CONSUMER_GROUP_HEARTBEAT, 1, REQUEST, lambda one: one.subscribed_topic_regex)
    assert (joins.subscribed_topic_regex, joins.subscribed_topic_names) == (pattern, ())


@each_client
def test_golden_heartbeats_assign_and_acknowledge_partitions(client: str) -> None:
    """The response has a nullable structure of topic ids, and the next heartbeat acknowledges it."""
    given = message_with(client, Api.CONSUMER_GROUP_HEARTBEAT, 1, ANSWER, lambda one: one.assignment)
    assert partitions_by_id(given.assignment.topic_partitions) == ALL_BY_TOPIC
    assert (ErrorCode(given.error_code), given.heartbeat_interval_ms) == (ErrorCode.none, 500)
    says = message_with(client, Api.CONSUMER_GROUP_HEARTBEAT, 1, REQUEST, lambda one: one.topic_partitions)
    assert partitions_by_id(says.topic_partitions) == ALL_BY_TOPIC
    assert (says.member_id, says.member_epoch) == (given.member_id, given.member_epoch)


@each_client
@pytest.mark.parametrize("epoch", [-1, -2])
def test_golden_leave_heartbeat_has_negative_epoch(client: str, epoch: int) -> None:
    """Epoch -1 leaves permanently; epoch -2 keeps the assignment of the static member."""
    leaves = message_with(client, Api.CONSUMER_GROUP_HEARTBEAT, 1, REQUEST, lambda one: one.member_epoch == epoch)
    assert (leaves.instance_id == "first") is (epoch == -2)
    response = message_with(client, Api.CONSUMER_GROUP_HEARTBEAT, 1, ANSWER, lambda one: one.member_epoch == epoch)
    assert (response.member_id, response.assignment, response.heartbeat_interval_ms) == (leaves.member_id, None, 0)


def test_golden_join_request_has_subscription() -> None:
    """After MEMBER_ID_REQUIRED, the member joins again with its id (KIP-394)."""
    response = message_with(JAVA, Api.JOIN_GROUP, 9, ANSWER, lambda one: one.error_code)
    assert ErrorCode(response.error_code) is ErrorCode.member_id_required
    again = message_with(JAVA, Api.JOIN_GROUP, 9, REQUEST, lambda one: one.member_id == response.member_id)
    assert (again.group_id, again.group_instance_id, again.protocol_type) == ("golden-java-0", None, "consumer")
    assert (again.session_timeout_ms, again.rebalance_timeout_ms) == (45_000, 300_000)
    assert again.reason == f"need to re-join with the given member-id: {response.member_id}"
    (protocol,) = again.protocols
    assert (protocol.name, set(decode_subscription(protocol.metadata).topics)) == ("cooperative-sticky", set(TOPICS))


@pytest.mark.parametrize(("client", "version"), [(JAVA, 9), (LIBRDKAFKA, 5)])
def test_golden_join_response_gives_leader_subscriptions(client: str, version: int) -> None:
    """The leader's own subscription is included, with its rack (KIP-881)."""
    response = message_with(client, Api.JOIN_GROUP, version, ANSWER, lambda one: one.members)
    (member,) = response.members
    assert response.leader == response.member_id == member.member_id
    assert (member.group_instance_id, decode_subscription(member.metadata).rack_id) == ("first", "rack-1")
    assert response.protocol_name == "cooperative-sticky"


@pytest.mark.parametrize(("client", "version"), [(JAVA, 5), (LIBRDKAFKA, 3)])
def test_golden_sync_response_has_leaders_assignment(client: str, version: int) -> None:
    """The broker forwards SyncGroup's bytes unchanged."""
    sent = message_with(client, Api.SYNC_GROUP, version, REQUEST, lambda one: one.assignments)
    given = message_with(client, Api.SYNC_GROUP, version, ANSWER)
    assert given.assignment == sent.assignments[0].assignment
    assert set(decode_assignment(given.assignment).partitions) == ALL


def test_golden_sync_frames_have_protocol_name() -> None:
    """Request and response both have the protocol (KIP-559)."""
    sent, given = (message_with(JAVA, Api.SYNC_GROUP, 5, direction) for direction in (REQUEST, ANSWER))
    assert (sent.protocol_type, sent.protocol_name) == (given.protocol_type, given.protocol_name)
    assert (given.protocol_type, given.protocol_name) == ("consumer", "cooperative-sticky")
    assert (sent.group_id, sent.group_instance_id, sent.generation_id) == ("golden-java-0", "first", 1)


@pytest.mark.parametrize(("client", "version"), [(JAVA, 4), (LIBRDKAFKA, 3)])
def test_golden_heartbeat_response_reports_rebalance(client: str, version: int) -> None:
    """A classic member learns of a rebalance from a heartbeat response."""
    heartbeats = message_with(client, Api.HEARTBEAT, version, REQUEST)
    assert (heartbeats.group_id, heartbeats.group_instance_id, heartbeats.generation_id) == (
        f"golden-{client}-0",
        "first",
        1,
    )
    codes = {message_of(one)[0].error_code for one in frames_of(Api.HEARTBEAT, version, ANSWER, client)}
    assert {ErrorCode(code) for code in codes} == {ErrorCode.none, ErrorCode.rebalance_in_progress}


def test_golden_leave_request_has_member_or_instance_id_and_reason() -> None:
    """A leave has a member id or an instance id, and a reason (KIP-800)."""
    left = [one for frame in frames_of(Api.LEAVE_GROUP, 5, REQUEST) for one in message_of(frame)[0].members]
    assert {(one.group_instance_id, one.reason) for one in left} == {
        (None, "the consumer is being closed"),
        ("first", "recorded"),
    }
    response = [one for frame in frames_of(Api.LEAVE_GROUP, 5, ANSWER) for one in message_of(frame)[0].members]
    assert {(one.member_id, one.group_instance_id) for one in response} == {
        (one.member_id, one.group_instance_id) for one in left
    }
    assert {one.group_instance_id for one in response if not one.member_id} == {"first"}


def test_golden_leave_request_of_version_1_has_one_member() -> None:
    """Version 1 precedes the leave of several members in one request."""
    left = message_with(LIBRDKAFKA, Api.LEAVE_GROUP, 1, REQUEST)
    assert left.group_id == "golden-librdkafka-0"
    assert left.member_id.startswith("rdkafka-second-")


@pytest.mark.parametrize(("client", "metadata"), [(JAVA, "golden"), (LIBRDKAFKA, "golden\0")])
def test_golden_commit_and_fetch_have_leader_epoch_and_metadata(client: str, metadata: str) -> None:
    """The commit has a leader epoch and metadata, to which confluent-kafka's clients append a NUL."""
    commit = message_with(
        client, Api.OFFSET_COMMIT, 9, REQUEST, lambda one: one.topics[0].partitions[0].committed_metadata
    )
    assert (commit.group_id, commit.group_instance_id) == (f"golden-{client}-0", "first")
    (topic,) = commit.topics
    (one,) = topic.partitions
    assert (topic.name, one.partition_index, one.committed_offset) == ("golden-a", 0, 3)
    assert (one.committed_leader_epoch, one.committed_metadata) == (0, metadata)
    fetched = [
        (one.committed_offset, one.committed_leader_epoch)
        for frame in frames_of(Api.OFFSET_FETCH, 9, ANSWER, client)
        for group in message_of(frame)[0].groups
        for topic in group.topics
        for one in topic.partitions
        if one.metadata == metadata
    ]
    assert set(fetched) == {(3, 0)}


def test_golden_offset_fetch_of_java_member_has_epoch() -> None:
    """Java's consumer protocol member sends its id and epoch; librdkafka sends neither and receives offsets."""
    asked = message_with(JAVA, Api.OFFSET_FETCH, 10, REQUEST, lambda one: one.groups[0].member_id)
    (group,) = asked.groups
    assert (group.group_id, asked.require_stable) == ("golden-java-1", True)
    assert group.member_epoch > 0
    of_librdkafka = [message_of(one)[0].groups for one in frames_of(Api.OFFSET_FETCH, 9, REQUEST, LIBRDKAFKA)]
    assert {(one.member_id, one.member_epoch) for groups in of_librdkafka for one in groups} == {(None, -1)}


def test_golden_commit_of_newest_version_has_topic_ids() -> None:
    """This package's table has the newest version, but the package does not use it."""
    commit = message_with(JAVA, Api.OFFSET_COMMIT, 10, REQUEST)
    assert [one.topic_id for one in commit.topics] == [topic_ids()["golden-a"]]
    assert commit.generation_id_or_member_epoch > 0


def test_golden_list_offsets_frames_have_start_and_end() -> None:
    """The requests are for the first offset and the end of the partitions."""
    asked = message_with(JAVA, Api.LIST_OFFSETS, 7, REQUEST, lambda one: len(one.topics) == len(TOPICS))
    assert {(topic.name, one.partition_index) for topic in asked.topics for one in topic.partitions} == set(ENDS)
    # -2 is Kafka's timestamp for the first offset.
    assert {(one.current_leader_epoch, one.timestamp) for t in asked.topics for one in t.partitions} == {(0, -2)}
    listed = message_with(JAVA, Api.LIST_OFFSETS, 7, ANSWER, lambda one: one.topics[0].partitions[0].offset > 0)
    assert {
        (topic.name, one.partition_index): one.offset for topic in listed.topics for one in topic.partitions
    } == ENDS
    assert {one.leader_epoch for topic in listed.topics for one in topic.partitions} == {0}


@pytest.mark.parametrize("version", [3, 4])
def test_golden_find_coordinator_frames_have_key_and_address(version: int) -> None:
    """The request has one key, or from version 4 a list of keys (KIP-699)."""
    frame, asked = frame_with(JAVA, Api.FIND_COORDINATOR, version, REQUEST, lambda _: True)
    assert asked.key_type == 0
    keys = [asked.key] if version == 3 else list(asked.coordinator_keys)
    assert keys == [f"golden-java-{version - 1}"], frame.during
    response = message_with(JAVA, Api.FIND_COORDINATOR, version, ANSWER)
    (found,) = [response] if version == 3 else response.coordinators
    assert (ErrorCode(found.error_code), found.node_id, found.host) == (ErrorCode.none, 1, "127.0.0.1")


def test_golden_describe_groups_response_has_members_and_missing_group() -> None:
    """The response has the members' blobs, and an error for a missing group (KIP-1043)."""
    response = message_with(JAVA, Api.DESCRIBE_GROUPS, 6, ANSWER, lambda one: len(one.groups) > 1)
    groups = {one.group_id: one for one in response.groups}
    group = groups["golden-java-0"]
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "cooperative-sticky")
    given = {one.client_id: decode_assignment(one.member_assignment).partitions for one in group.members}
    assert given.keys() == {"java-first", "java-second"}
    assert {one.group_instance_id for one in group.members} == {"first", None}
    assert set().union(*given.values()) == ALL
    assert ErrorCode(groups["golden-nobodys"].error_code) is ErrorCode.group_id_not_found


@pytest.mark.parametrize(("client", "version"), [(JAVA, 1), (LIBRDKAFKA, 0)])
def test_golden_consumer_group_describe_response_has_assignments(client: str, version: int) -> None:
    """Each member has an epoch, a current assignment and a target assignment."""
    response = message_with(
        client, Api.CONSUMER_GROUP_DESCRIBE, version, ANSWER, lambda one: not one.groups[0].error_code
    )
    (group,) = response.groups
    assert (group.group_id, group.group_state, group.assignor_name) == (f"golden-{client}-1", "Stable", "range")
    assert {one.instance_id for one in group.members} == {"first", None}
    assert {one.client_host for one in group.members} == {"/127.0.0.1"}
    for kind in ("assignment", "target_assignment"):
        had = [getattr(one, kind).topic_partitions for one in group.members]
        assert {TopicPartition(t.topic_name, p) for topics in had for t in topics for p in t.partitions} == ALL
    # Type 1 is a member of the consumer protocol (KIP-1099).
    assert {getattr(one, "member_type", 1) for one in group.members} == {1}


@each_client
def test_golden_sasl_frames_have_session_lifetime_and_error(client: str) -> None:
    """PLAIN sends the password in plain text; the response has a session lifetime (KIP-368) or an error."""
    asked = message_with(client, Api.SASL_HANDSHAKE, 1, REQUEST)
    assert asked.mechanism in message_with(client, Api.SASL_HANDSHAKE, 1, ANSWER).mechanisms
    request = message_with(client, Api.SASL_AUTHENTICATE, 1, REQUEST, lambda one: one.auth_bytes.startswith(b"\0"))
    assert request.auth_bytes == b"\0alice\0alice-secret"
    believed = message_with(client, Api.SASL_AUTHENTICATE, 1, ANSWER, lambda one: one.session_lifetime_ms)
    assert believed.session_lifetime_ms == 3_600_000
    refused = message_with(client, Api.SASL_AUTHENTICATE, 1, ANSWER, lambda one: one.error_code)
    assert ErrorCode(refused.error_code) is ErrorCode.sasl_authentication_failed
    assert refused.error_message == "Authentication failed: Invalid username or password"


def test_golden_group_config_response_has_synonyms() -> None:
    """If requested, the response has the broker settings from which a group's values come."""
    asked = message_with(JAVA, Api.DESCRIBE_CONFIGS, 4, REQUEST, lambda one: one.include_synonyms)
    assert asked.include_documentation is False
    response = message_with(JAVA, Api.DESCRIBE_CONFIGS, 4, ANSWER, lambda one: one.results[0].configs[0].synonyms)
    (group,) = response.results
    assert group.resource_name == asked.resources[0].resource_name == "golden-java-0"
    settings = {one.name: (one.value, one.synonyms[0].name, one.synonyms[0].value) for one in group.configs}
    own = "consumer.heartbeat.interval.ms"
    assert settings[own] == ("500", f"group.{own}", "500")


# ---- metrics ---------------------------------------------------------------------------------------------------------


@each_client
def test_golden_telemetry_frames_have_instance_and_subscription_id(client: str) -> None:
    """The first request has no client instance id; a push has the assigned ids (KIP-714)."""
    asked = message_with(client, Api.GET_TELEMETRY_SUBSCRIPTIONS, 0, REQUEST)
    assert asked.client_instance_id is None
    response = message_with(client, Api.GET_TELEMETRY_SUBSCRIPTIONS, 0, ANSWER)
    assert response.requested_metrics == ("org.apache.kafka.consumer.coordinator.assigned.partitions",)
    assert (response.push_interval_ms, response.telemetry_max_bytes, response.delta_temporality) == (100, 2**20, True)
    assert response.accepted_compression_types == (4, 3, 1, 2)
    pushed = message_with(
        client, Api.PUSH_TELEMETRY, 0, REQUEST, lambda one: one.client_instance_id == response.client_instance_id
    )
    assert (pushed.subscription_id, pushed.terminating) == (response.subscription_id, False)
    assert pushed.metrics
    assert message_with(client, Api.PUSH_TELEMETRY, 0, REQUEST, lambda one: one.terminating).metrics
    assert ErrorCode(message_with(client, Api.PUSH_TELEMETRY, 0, ANSWER).error_code) is ErrorCode.none
