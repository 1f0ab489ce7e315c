"""Encode and decode Kafka's messages in the version that a broker supports.

A request is a `Call`, which has the fields of all versions of its API; each version uses its own. A response is a
`Message`, whose attributes are its fields. `messages` has the fields, `serial` the encoding.
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

#: The size of the length before every message.
SIZE_BYTES = 4

#: A decoded message: its fields by name, each with its own type; fields of other versions are absent.
Message: TypeAlias = Struct
#: The fields of a message to encode, of all of its versions; structures in it are mappings.
Fields: TypeAlias = "Mapping[str, object]"

#: The header of a request: size, API key, version, correlation id, and the length of the client id.
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
    """Return the bytes of the call: size, header, request."""
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
    """Return the response in this frame (without the size).

    Raises:
        TransportError: the bytes are not such a response.
    """
    table = LAYOUTS[api][1]
    try:
        # The response to ApiVersions has the oldest header, since the broker may not support the version (KIP-511).
        is_flexible = api is not Api.API_VERSIONS and has(table.flexible, version)
        offset = _skip_header(frame) if is_flexible else _NUMBER_BYTES
        message: Message
        message, _ = _reader(table, version)(frame, offset)
    except MalformedError as error:
        raise TransportError(
            f"a response of {len(frame)} bytes cannot be decoded ({error}); check that the peer is a Kafka broker"
        ) from error
    return message


def _skip_header(frame: bytes) -> int:
    try:
        return skip_tagged(frame, _NUMBER_BYTES)
    except IndexError as error:
        raise MalformedError(f"a header that ends at byte {len(frame)}") from error


def write_data(table: Table, version: int, values: Fields) -> bytes:
    """Return the bytes of a structure without a header, which members of a classic group exchange."""
    out = bytearray()
    _writer(table, version)(out, values)
    return bytes(out)


def read_data(table: Table, version: int, data: bytes, offset: int) -> tuple[Message, int]:
    """Return such a structure at `offset`, and the offset after it.

    Raises:
        MalformedError: the bytes have no such structure.
    """
    return _reader(table, version)(data, offset)


@cache
def _reader(table: Table, version: int) -> Read:
    return reader(layout_of(table, version))


@cache
def _writer(table: Table, version: int) -> Write:
    return writer(layout_of(table, version))
