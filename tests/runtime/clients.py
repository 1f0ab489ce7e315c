"""Clients of scripted brokers: settings, orders and scripts that several tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import response as offsets_v7

from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import TransportError
from consumer_membership.membership.effects import CommitOffsets, Heartbeat, SendHeartbeat
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.types import BrokerAddress, OffsetAndMetadata, TopicPartition
from tests.support.scripted_broker import ZERO, Answer, Received, Script, ScriptedBroker
from tests.support.waiting import PATIENCE_S

LIST_OFFSETS, METADATA, COMMIT, FETCH, FIND, API_VERSIONS, HEARTBEAT = 2, 3, 8, 9, 10, 18, 68
LEAVE, DESCRIBE_CLASSIC, CONFIGS, DESCRIBE = 13, 15, 32, 69
_APIS = {
    "offsets": LIST_OFFSETS,
    "metadata": METADATA,
    "commit": COMMIT,
    "fetch": FETCH,
    "find": FIND,
    "leave": LEAVE,
    "classic": DESCRIBE_CLASSIC,
    "configs": CONFIGS,
    "heartbeat": HEARTBEAT,
    "describe": DESCRIBE,
}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

ResultT = TypeVar("ResultT")
RefusalT = TypeVar("RefusalT", bound=Exception)


def settings(*servers: tuple[str, int]) -> ConnectionSettings:
    """Return settings with backoffs that are short enough for tests."""
    return ConnectionSettings(
        bootstrap_servers=servers,
        socket_timeout_s=PATIENCE_S,
        connection_setup_timeout_s=PATIENCE_S,
        reconnect_backoff_s=0.005,
        reconnect_backoff_max_s=0.01,
    )


def with_client(
    servers: tuple[tuple[str, int], ...] | ConnectionSettings,
    act: Callable[[Cluster], Awaitable[ResultT]],
    on_coordinator_lost: Callable[[BrokerAddress, str], None] | None = None,
) -> ResultT:
    """Return the result of `act` with a client, which is closed at the end and leaves no task behind."""

    async def run() -> ResultT:
        known = servers if isinstance(servers, ConnectionSettings) else settings(*servers)
        client = Cluster(known, on_coordinator_lost=on_coordinator_lost)
        try:
            return await act(client)
        finally:
            await client.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


def refusal_at_timeout(ask: Callable[[float], object], kind: type[RefusalT]) -> RefusalT:
    """Return the refusal that ends a request after its timeout; without any response, retry with a longer timeout."""
    for time_s in (0.05, 0.5, 5.0):
        try:
            ask(time_s)
        except kind as refused:
            return refused
        except TransportError:
            continue
    raise AssertionError("not refused")


def answers(**by_api: Callable[[Received], Answer] | Answer) -> Script:
    """Return a script by API name: the response, or a function that makes the response."""
    scripted = {_APIS[name]: answer for name, answer in by_api.items()}

    def answer(request: Received) -> Answer:
        found = scripted.get(request.api_key)
        return found(request) if callable(found) else found

    return answer


def node(broker: ScriptedBroker, node_id: int = 1) -> BrokerAddress:
    """Return a node's address."""
    host, port = broker.address(node_id)
    return BrokerAddress(node_id=node_id, host=host, port=port)


def heartbeat(epoch: int = 5, request_id: int = 1, pattern: str | None = None) -> SendHeartbeat:
    """Return a heartbeat order."""
    return SendHeartbeat(request_id=request_id, heartbeat=Heartbeat(member_id="m", member_epoch=epoch, pattern=pattern))


def commit_of(*partitions: TopicPartition) -> CommitOffsets:
    """Return a commit order."""
    return CommitOffsets(
        commit_id=4,
        offsets={partition: OffsetAndMetadata(offset=7) for partition in partitions},
        member_id="m",
        member_epoch=5,
        instance_id=None,
    )


def offsets_answer(results: dict[TopicPartition, tuple[int, int]]) -> offsets_v7.ListOffsetsResponse:
    """Return a ListOffsets response with offset and error code of each partition."""
    return offsets_v7.ListOffsetsResponse(
        throttle_time=ZERO,
        topics=tuple(
            offsets_v7.ListOffsetsTopicResponse(
                name=topic,
                partitions=(
                    offsets_v7.ListOffsetsPartitionResponse(
                        partition_index=partition, error_code=ErrorCode(code), offset=offset
                    ),
                ),
            )
            for (topic, partition), (offset, code) in results.items()
        ),
    )


def requested_partitions(request: Received) -> list[TopicPartition]:
    """Return the partitions of a ListOffsets request."""
    return [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.entity.topics
        for partition in topic.partitions
    ]


def offset_by_node(request: Received) -> Answer:
    """Answer ListOffsets with the number of the node as the offset of each partition."""
    return offsets_answer(dict.fromkeys(requested_partitions(request), (request.node_id, 0)))
