"""Single messages as bytes: a call with its headers and its size, and an answer's entity."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Generic, TypeVar

from kio.serial import entity_writer
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from consumer_membership.errors import TransportError
from consumer_membership.wire.reader import MalformedError, read_entity

ResponseT = TypeVar("ResponseT", bound=ResponsePayload)
ResponseT_co = TypeVar("ResponseT_co", bound=ResponsePayload, covariant=True)

#: The four bytes in front of every message that say how many follow.
SIZE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[ResponseT_co]):
    """A request together with how it is written and how its answer is read.

    `layout` is the version in which `entity` is written. kio's writers go by the fields of the layout, so an entity
    of the newest version can be written in an older layout, which leaves out the fields that it does not have.
    `response` may likewise stand for an older version of the same shape.
    """

    entity: RequestPayload
    layout: type[RequestPayload]
    response: type[ResponseT_co]

    @property
    def api(self) -> str:
        """The API's name."""
        return self.layout.__name__.removesuffix("Request")

    @property
    def name(self) -> str:
        """The API's name and version, for people."""
        return f"{self.api} v{self.layout.__version__}"


def encode(call: Call[ResponsePayload], correlation_id: int, client_id: str) -> bytes:
    """The call as it goes out: size, header, request."""
    buffer = io.BytesIO()
    buffer.write(bytes(SIZE_BYTES))
    header = call.layout.__header_schema__(
        request_api_key=call.layout.__api_key__,
        request_api_version=call.layout.__version__,
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    entity_writer(call.layout.__header_schema__)(buffer, header)
    entity_writer(call.layout)(buffer, call.entity)
    size = buffer.tell() - SIZE_BYTES
    buffer.seek(0)
    buffer.write(size.to_bytes(SIZE_BYTES, "big"))
    return buffer.getvalue()


def decode(response: type[ResponseT], frame: bytes) -> ResponseT:
    """The entity in an answer's frame (without the size).

    Raises:
        TransportError: the bytes do not hold such an entity.
    """
    try:
        _, offset = read_entity(response.__header_schema__, frame, 0)
        entity, _ = read_entity(response, frame, offset)
    except MalformedError as error:
        raise TransportError(
            f"an answer of {len(frame)} bytes cannot be read ({error}); the peer is no Kafka broker, or a broken one"
        ) from error
    return entity
