"""One request on its own connection, written with kio's schemas instead of this package."""

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

AnswerT = TypeVar("AnswerT", bound=ResponsePayload)


def asked(broker: Broker, request: RequestPayload, answer: type[AnswerT]) -> AnswerT:
    """Send one request on its own connection and return the response."""
    host, _, port = broker.bootstrap_servers.partition(":")
    body = BytesIO()
    entity_writer(type(request))(body, request)
    # No client id, no tags.
    frame = struct.pack(">hhihb", request.__api_key__, request.__version__, 1, -1, 0) + body.getvalue()
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection,
        connection.makefile("rb") as replies,
    ):
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        reply = replies.read(int.from_bytes(replies.read(4), "big"))
    # The correlation id, and tags where the answer's header is flexible, which that of ApiVersions never is.
    return entity_reader(answer)(reply, 4 if answer is ApiVersionsResponse else 5)[0]
