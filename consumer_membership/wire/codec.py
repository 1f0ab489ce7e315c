"""Kafka's messages as bytes and back, in the version that a broker has.

A message goes out as a `Call`, which names its fields for all versions of its API at once; each version takes those
that it has. An answer comes in as a `Message`, whose attributes are its fields. What they are is in `messages`, how
they are written in `serial`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, TypeAlias

from consumer_membership.errors import TransportError
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.schema import Table, has, layout_of
from consumer_membership.wire.serial import MalformedError, Read, Struct, Write, reader, skip_tagged, writer
from consumer_membership.wire.versions import Api

__all__ = ["SIZE_BYTES", "Call", "Fields", "MalformedError", "Message", "decode", "encode"]

#: The four bytes in front of every message that say how many follow.
SIZE_BYTES = 4

#: What was read: a message's fields by their names, each with a type of its own; those of other versions are absent.
Message: TypeAlias = Struct
#: The fields of a message that is to be written, those of all versions of it; structures in it are mappings too.
Fields: TypeAlias = "Mapping[str, object]"

#: In front of a request: its size, API, version and number, and the length of the client's id.
_HEADER = struct.Struct(">ihhih")
_NUMBER_BYTES = 4


class Call(NamedTuple):
    """A request in one version; durations are in milliseconds."""

    api: Api
    version: int
    fields: Fields

    @property
    def name(self) -> str:
        """The API's name and version, for people."""
        return f"{self.api.title} v{self.version}"


def encode(call: Call, correlation_id: int, client_id: str) -> bytes:
    """The call as it goes out: size, header, request."""
    client = client_id.encode()
    out = bytearray(_HEADER.size)
    out += client
    table = LAYOUTS[call.api][0]
    if has(table.flexible, call.version):
        out.append(0)
    _writer(table, call.version)(out, call.fields)
    _HEADER.pack_into(out, 0, len(out) - SIZE_BYTES, call.api, call.version, correlation_id, len(client))
    return bytes(out)


def decode(api: Api, version: int, frame: bytes) -> Message:
    """The answer in this frame (without the size).

    Raises:
        TransportError: the bytes do not hold such an answer.
    """
    table = LAYOUTS[api][1]
    try:
        # The answer to ApiVersions has the oldest header, since the broker may not know the version (KIP-511).
        is_flexible = api is not Api.API_VERSIONS and has(table.flexible, version)
        offset = _skip_header(frame) if is_flexible else _NUMBER_BYTES
        message: Message
        message, _ = _reader(table, version)(frame, offset)
    except MalformedError as error:
        raise TransportError(
            f"an answer of {len(frame)} bytes cannot be read ({error}); the peer is no Kafka broker, or a broken one"
        ) from error
    return message


def _skip_header(frame: bytes) -> int:
    try:
        return skip_tagged(frame, _NUMBER_BYTES)
    except IndexError as error:
        raise MalformedError(f"a header that ends at byte {len(frame)}") from error


def write_data(table: Table, version: int, values: Fields) -> bytes:
    """A structure that no request is, without any header: what members of a classic group tell each other."""
    out = bytearray()
    _writer(table, version)(out, values)
    return bytes(out)


def read_data(table: Table, version: int, data: bytes, offset: int) -> tuple[Message, int]:
    """Such a structure that begins at `offset`, with the offset behind it.

    Raises:
        MalformedError: the bytes do not hold one.
    """
    return _reader(table, version)(data, offset)


@cache
def _reader(table: Table, version: int) -> Read:
    return reader(layout_of(table, version))


@cache
def _writer(table: Table, version: int) -> Write:
    return writer(layout_of(table, version))
