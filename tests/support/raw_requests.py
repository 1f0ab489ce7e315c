"""Send one request on its own connection, with kio's schemas instead of this package."""

from __future__ import annotations

import socket
import struct
from io import BytesIO
from typing import TypeVar

from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.serial import entity_reader, entity_writer
from kio.static.protocol import RequestPayload, ResponsePayload

from consumer_membership.devbroker import Broker
from tests.support.waiting import PATIENCE_S

ResponseT = TypeVar("ResponseT", bound=ResponsePayload)


def send(broker: Broker, request: RequestPayload, response: type[ResponseT]) -> ResponseT:
    """Send one request on its own connection and return the response, which has this type."""
    host, _, port = broker.bootstrap_servers.partition(":")
    body = BytesIO()
    entity_writer(type(request))(body, request)
    # The header has no client id and no tags.
    frame = struct.pack(">hhihb", request.__api_key__, request.__version__, 1, -1, 0) + body.getvalue()
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        data = stream.read(int.from_bytes(stream.read(4), "big"))
    # A response begins with the correlation id and, except in ApiVersions, with one byte for the header's tags.
    return entity_reader(response)(data, 4 if response is ApiVersionsResponse else 5)[0]
