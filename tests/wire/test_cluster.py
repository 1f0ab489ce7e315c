"""Answers about the cluster as values."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import response as offsets_v7
from kio.schema.metadata.v12 import response as metadata_v12
from kio.schema.metadata.v13 import response as metadata_v13

from consumer_membership.types import BrokerAddress, BrokerError, TopicPartition
from consumer_membership.wire import cluster
from consumer_membership.wire.cluster import ClusterMetadata, PartitionMetadata, TopicMetadata
from tests.support.scripted_broker import ZERO

A = UUID(int=0xA)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

both_versions = pytest.mark.parametrize("module", [metadata_v12, metadata_v13])


def metadata_answer(module: Any, *, code: int = 0) -> Any:  # noqa: ANN401
    """One broker, one topic with two partitions of which one has no leader, and one id that is not known."""
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
        brokers=(module.MetadataResponseBroker(node_id=1, host="h", port=9092),),
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
def test_metadata(module: Any) -> None:  # noqa: ANN401
    """Brokers and topics by name; -1 becomes None, an unknown id is absent, a topic's error stands with it."""
    assert cluster.metadata(metadata_answer(module)) == ClusterMetadata(
        cluster_id="c",
        controller_id=None,
        brokers={1: BrokerAddress(node_id=1, host="h", port=9092)},
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


def test_metadata_s_own_error() -> None:
    """KIP-1102: from version 13 on the request as a whole may be refused."""
    assert cluster.metadata(metadata_answer(metadata_v13, code=129)) == BrokerError(
        code=129, name="REBOOTSTRAP_REQUIRED"
    )


def test_list_offsets_by_partition() -> None:
    """Each partition has its offset or its error; one that the broker left out has an error too."""
    entity = offsets_v7.ListOffsetsResponse(
        throttle_time=ZERO,
        topics=(
            offsets_v7.ListOffsetsTopicResponse(
                name="t",
                partitions=(
                    offsets_v7.ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.none, offset=0),
                    offsets_v7.ListOffsetsPartitionResponse(
                        partition_index=1, error_code=ErrorCode.not_leader_or_follower, offset=-1
                    ),
                ),
            ),
        ),
    )
    found = cluster.list_offsets(entity, [T0, T1, TopicPartition("u", 0)])
    assert found[T0] == 0
    assert found[T1] == BrokerError(code=6, name="NOT_LEADER_OR_FOLLOWER", message="t [1]")
    left_out = found[TopicPartition("u", 0)]
    assert isinstance(left_out, BrokerError)
    assert left_out.code == -1
