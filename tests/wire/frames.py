"""Builders of the bytes that a broker sends, and readers of the bytes that a client sends."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.index import load_request_schema
from kio.schema.api_versions import v0, v3
from kio.schema.consumer_group_heartbeat.v1 import response as heartbeat_v1
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from consumer_membership.wire.codec import Call, encode
from consumer_membership.wire.connection import Connection
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange
from tests.support.scripted_broker import NEWEST, ZERO, frame

VERSIONS = BrokerVersions({key: VersionRange(*ends) for key, ends in NEWEST.items()})


def sent(data: bytes) -> tuple[Any, Any]:
    """Return header and entity of one request, and check its size."""
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    api_key, version = int.from_bytes(data[4:6], "big"), int.from_bytes(data[6:8], "big")
    schema = load_request_schema(api_key, version)
    header, header_size = entity_reader(schema.__header_schema__)(data, 4)
    entity, entity_size = entity_reader(schema)(data, 4 + header_size)
    assert 4 + header_size + entity_size == len(data)
    return header, entity


def written(entity: Any, layout: Any = None) -> bytes:
    """Return the entity's bytes without header and size."""
    buffer = io.BytesIO()
    entity_writer(layout or type(entity))(buffer, entity)
    return buffer.getvalue()


def versions_answer(correlation_id: int = 0, *, version: int = 3, code: ErrorCode = ErrorCode.none) -> bytes:
    """Build an ApiVersions response with the versions of a 4.3 broker."""
    if version == 0:
        keys = tuple(v0.response.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in NEWEST.items())
        return frame(v0.ApiVersionsResponse(error_code=code, api_keys=keys), correlation_id)
    flexible = tuple(v3.response.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in NEWEST.items())
    return frame(v3.ApiVersionsResponse(error_code=code, api_keys=flexible, throttle_time=ZERO), correlation_id)


def heartbeat_answer(
    *, epoch: int = 5, code: int = 0, message: str | None = None, assigned: dict[UUID, tuple[int, ...]] | None = None
) -> heartbeat_v1.ConsumerGroupHeartbeatResponse:
    """Build a heartbeat response."""
    assignment = None
    if assigned is not None:
        topics = tuple(heartbeat_v1.TopicPartitions(topic_id=i, partitions=p) for i, p in assigned.items())
        assignment = heartbeat_v1.Assignment(topic_partitions=topics)
    return heartbeat_v1.ConsumerGroupHeartbeatResponse(
        throttle_time=ZERO,
        error_code=ErrorCode(code),
        error_message=message,
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval=timedelta(seconds=5),
        assignment=assignment,
    )


def ready_connection(max_frame_bytes: int = 100_000_000) -> Connection:
    """Return a connection after its handshake."""
    connection = Connection(client_id="c", max_frame_bytes=max_frame_bytes, software_version="1.2")
    connection.start()
    connection.receive(versions_answer())
    return connection


def only(api: Api, version: int) -> BrokerVersions:
    """Return the versions of a broker that offers this API in this version."""
    return BrokerVersions({api.value: VersionRange(version, version)})


def on_the_wire(call: Call, api: Api, version: int) -> Any:  # an entity of this version
    """Return what a broker reads from the call."""
    header, entity = sent(encode(call, 7, "rdkafka"))
    assert (header.request_api_key, header.request_api_version) == (api.value, version)
    assert (header.correlation_id, header.client_id) == (7, "rdkafka")
    return entity
