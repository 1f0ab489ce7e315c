"""Responses about the cluster as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v2 import response as offsets_v2
from kio.schema.list_offsets.v7 import response as offsets_v7
from kio.schema.metadata.v12 import response as metadata_v12
from kio.schema.metadata.v13 import response as metadata_v13

from consumer_membership.assignors.assignor import Topics
from consumer_membership.translation import metadata
from consumer_membership.translation.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from consumer_membership.translation.verdicts import broker_error
from consumer_membership.types import BrokerAddress, BrokerError, TopicPartition
from consumer_membership.wire.codec import decode
from consumer_membership.wire.versions import Api
from tests.support.scripted_broker import ZERO

A = UUID(int=0xA)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

both_versions = pytest.mark.parametrize("module", [metadata_v12, metadata_v13])


def metadata_answer(module: Any, *, code: int = 0) -> Any:
    """Build two brokers, one in a rack; a topic with two partitions, one without leader; and an unknown id."""
    partitions = tuple(
        module.MetadataResponsePartition(
            error_code=ErrorCode(error),
            partition_index=index,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=(1, 2),
            isr_nodes=(1,),
        )
        for index, leader, epoch, error in ((0, 1, 4, 0), (1, -1, -1, 5))
    )
    return module.MetadataResponse(
        throttle_time=ZERO,
        brokers=(
            module.MetadataResponseBroker(node_id=1, host="h", port=9092, rack="a"),
            module.MetadataResponseBroker(node_id=2, host="h", port=9093),
        ),
        cluster_id="c",
        controller_id=-1,
        topics=(
            module.MetadataResponseTopic(error_code=ErrorCode.none, name="t", topic_id=A, partitions=partitions),
            module.MetadataResponseTopic(
                error_code=ErrorCode.unknown_topic_id, name=None, topic_id=UUID(int=1), partitions=()
            ),
            module.MetadataResponseTopic(
                error_code=ErrorCode.topic_authorization_failed, name="secret", topic_id=None, partitions=()
            ),
        ),
        **({"error_code": ErrorCode(code)} if module is metadata_v13 else {}),
    )


@both_versions
def test_cluster_metadata_returns_brokers_and_topics_by_name(module: Any) -> None:
    """-1 becomes None, an unknown id is absent, and a topic carries its error."""
    assert metadata.cluster_metadata(metadata_answer(module)) == ClusterMetadata(
        cluster_id="c",
        controller_id=None,
        brokers={
            1: BrokerAddress(node_id=1, host="h", port=9092),
            2: BrokerAddress(node_id=2, host="h", port=9093),
        },
        racks={1: "a"},
        topics={
            "t": TopicMetadata(
                name="t",
                topic_id=A,
                is_internal=False,
                partitions={
                    0: PartitionMetadata(
                        partition=0, leader=1, leader_epoch=4, replicas=(1, 2), in_sync_replicas=(1,), error=None
                    ),
                    1: PartitionMetadata(
                        partition=1,
                        leader=None,
                        leader_epoch=None,
                        replicas=(1, 2),
                        in_sync_replicas=(1,),
                        error=BrokerError(code=5, name="LEADER_NOT_AVAILABLE"),
                    ),
                },
                error=None,
            ),
            "secret": TopicMetadata(
                name="secret",
                topic_id=None,
                is_internal=False,
                partitions={},
                error=BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="secret"),
            ),
        },
    )


METADATA_V7 = """
    00000007
    00000000
    00000002  00000001 0001 68 00002384 0001 61  00000002 0001 68 00002385 ffff
    0001 63
    00000001
    00000001  0000 0001 74 00  00000001
        0005 00000000 ffffffff 00000004 00000002 00000001 00000002 00000001 00000001 00000001 00000002
"""


def test_cluster_metadata_of_version_7_has_no_topic_ids() -> None:
    """Version 7 of the protocol guide has racks and leader epochs, but no ids."""
    entity = decode(Api.METADATA, 7, bytes.fromhex(METADATA_V7))
    assert metadata.cluster_metadata(entity) == ClusterMetadata(
        cluster_id="c",
        controller_id=1,
        brokers={
            1: BrokerAddress(node_id=1, host="h", port=9092),
            2: BrokerAddress(node_id=2, host="h", port=9093),
        },
        racks={1: "a"},
        topics={
            "t": TopicMetadata(
                name="t",
                topic_id=None,
                is_internal=False,
                partitions={
                    0: PartitionMetadata(
                        partition=0,
                        leader=None,
                        leader_epoch=4,
                        replicas=(1, 2),
                        in_sync_replicas=(1,),
                        error=BrokerError(code=5, name="LEADER_NOT_AVAILABLE"),
                    )
                },
                error=None,
            )
        },
    )


def test_cluster_metadata_returns_request_error() -> None:
    """KIP-1102: From version 13 on, the response has an error code for the whole request."""
    assert metadata.cluster_metadata(metadata_answer(metadata_v13, code=129)) == BrokerError(
        code=129, name="REBOOTSTRAP_REQUIRED"
    )


def topic(name: str, *replicas: tuple[int, ...], code: int = 0, is_internal: bool = False) -> TopicMetadata:
    """Build a topic with a partition on each of these sets of brokers."""
    return TopicMetadata(
        name=name,
        topic_id=None,
        is_internal=is_internal,
        partitions={
            index: PartitionMetadata(
                partition=index, leader=None, leader_epoch=None, replicas=nodes, in_sync_replicas=(), error=None
            )
            for index, nodes in enumerate(replicas)
        },
        error=broker_error(code) if code else None,
    )


def described(*topics: TopicMetadata, racks: dict[int, str] | None = None) -> ClusterMetadata:
    """Build a cluster with these topics."""
    by_name = {one.name: one for one in topics}
    return ClusterMetadata(cluster_id=None, controller_id=None, brokers={}, racks=racks or {}, topics=by_name)


def test_topics_have_racks_of_their_replicas() -> None:
    """KIP-881: A partition's racks are those of its replicas, with any leader."""
    found = described(topic("t", (1, 2, 3), (3,)), racks={1: "a", 2: "b", 4: "d"})
    assert metadata.topics_of(found, frozenset({"t"})) == Topics(
        partitions={"t": 2}, racks={T0: frozenset({"a", "b"}), T1: frozenset()}
    )


def test_topics_without_broker_racks_have_empty_mapping() -> None:
    """An empty mapping means "not rack-aware" to assignors."""
    assert metadata.topics_of(described(topic("t", (1,))), None) == Topics(partitions={"t": 1}, racks={})


def test_refused_of_returns_unauthorized_topics_with_fix() -> None:
    """Only requested topics with TOPIC_AUTHORIZATION_FAILED are returned; an unknown topic is absent."""
    found = described(topic("t", code=29), topic("u", code=29), topic("v", code=3), topic("w", (1,)))
    assert dict(metadata.refused_of(found, None)) == {}
    ((name, error),) = metadata.refused_of(found, frozenset("tvw")).items()
    assert (name, error.code) == ("t", 29)
    assert "grant DESCRIBE and READ" in error.message


def test_present_of_includes_leaderless_and_excludes_unknown_topics() -> None:
    """A topic without a leader exists; an unknown, invalid or unauthorized one is not reported."""
    found = described(
        topic("t", (1,)), *(topic(name, code=code) for name, code in zip("luia", (5, 3, 17, 29), strict=True))
    )
    assert metadata.present_of(found) == {"t", "l"}


def test_topics_include_internal_topics() -> None:
    """Patterns match internal topics, as in librdkafka's classic members and brokers; Java's client differs."""
    found = described(topic("t", (1,)), topic("__x", (1,), is_internal=True), topic("u", (1,)))
    assert metadata.topics_of(found, None).partitions == {"t": 1, "__x": 1, "u": 1}
    assert metadata.topics_of(found, frozenset({"t", "__x", "gone"})).partitions == {"t": 1, "__x": 1}


@pytest.mark.parametrize(
    ("code", "is_there"),
    [(5, True), (3, True), (29, False), (17, False)],
    ids=["no leader", "unknown to this broker", "not authorized", "invalid"],
)
def test_topic_with_transient_error_keeps_its_partitions(code: int, is_there: bool) -> None:  # noqa: FBT001
    """Members keep a topic that has no leader for a moment; unauthorized and invalid topics are absent."""
    partitions = metadata.topics_of(described(topic("t", (1,), (1,), code=code)), frozenset({"t"})).partitions
    assert partitions == ({"t": 2} if is_there else {})


def test_topic_without_partitions_is_absent_from_topics() -> None:
    """A topic that is being created has an error (LEADER_NOT_AVAILABLE) and no partitions yet."""
    assert metadata.topics_of(described(topic("t", code=5)), None) == Topics(partitions={})


def test_topics_count_partitions_that_broker_leaves_out() -> None:
    """Partitions are numbered from 0, so the highest number implies all lower ones."""
    found = described(topic("t", (1,), (1,), (1,)))
    whole = found.topics["t"]
    last = replace(whole, partitions={2: whole.partitions[2]})
    assert metadata.topics_of(described(last), None).partitions == {"t": 3}


def test_list_offsets_decodes_version_2_bytes() -> None:
    """The protocol guide's layout is throttle time, then topics with partition, error, timestamp and offset."""
    frame = "00000005 00000000 00000001 0001 74 00000001 00000001 0000 ffffffffffffffff 0000000000000007"
    entity = decode(Api.LIST_OFFSETS, 2, bytes.fromhex(frame))
    assert metadata.list_offsets(entity, [T1]) == {T1: 7}


@pytest.mark.parametrize("module", [offsets_v2, offsets_v7])
def test_list_offsets_returns_offset_or_error_for_each_partition(module: Any) -> None:
    """Each partition has its offset or its error; a missing partition has an error."""
    entity = module.ListOffsetsResponse(
        throttle_time=ZERO,
        topics=(
            module.ListOffsetsTopicResponse(
                name="t",
                partitions=(
                    module.ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.none, offset=0),
                    module.ListOffsetsPartitionResponse(
                        partition_index=1, error_code=ErrorCode.not_leader_or_follower, offset=-1
                    ),
                ),
            ),
        ),
    )
    found = metadata.list_offsets(entity, [T0, T1, TopicPartition("u", 0)])
    assert found[T0] == 0
    assert found[T1] == BrokerError(code=6, name="NOT_LEADER_OR_FOLLOWER", message="t [1]")
    left_out = found[TopicPartition("u", 0)]
    assert isinstance(left_out, BrokerError)
    assert left_out.code == -1
