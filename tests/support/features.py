"""Change the finalized features of a cluster (KIP-584) for a test."""

from __future__ import annotations

import socket

from kio.schema.errors import ErrorCode
from kio.schema.update_features.v1.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v1.response import UpdateFeaturesResponse
from kio.serial import entity_reader
from kio.static.primitive import i8, i16, i32

from tests.support.kio_entities import written
from tests.support.waiting import PATIENCE_S

TRANSACTIONS = "transaction.version"
_SAFE_DOWNGRADE = 2
_SIZE_BYTES = 4


def lower_transactions(bootstrap_servers: str, version: int = 1) -> None:
    """Lower the brokers' transaction version to the version of older brokers; return when it is in effect."""
    update = FeatureUpdateKey(feature=TRANSACTIONS, max_version_level=i16(version), upgrade_type=i8(_SAFE_DOWNGRADE))
    request = UpdateFeaturesRequest(feature_updates=(update,))
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(1),
        client_id="tests",
    )
    data = written(header) + written(request)
    host, _, port = bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection, connection.makefile("rwb") as stream:
        stream.write(len(data).to_bytes(_SIZE_BYTES, "big") + data)
        stream.flush()
        data = stream.read(int.from_bytes(stream.read(_SIZE_BYTES), "big"))
    _, header_end = entity_reader(UpdateFeaturesResponse.__header_schema__)(data, 0)
    response, _ = entity_reader(UpdateFeaturesResponse)(data, header_end)
    assert response.error_code is ErrorCode.none, response
    assert [one.error_code for one in response.results] == [ErrorCode.none], response
