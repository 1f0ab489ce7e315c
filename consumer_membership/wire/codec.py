"""Kafka's messages as bytes and back: the one module that knows kio, whose classes are the layouts.

A message goes out as a `Call`, which names its fields for all versions of its API at once; each version takes those
that it has. An answer comes in as a `Message`, whose attributes are its fields.

kio's reader, in native code, is not used, because of what it does with bytes that it does not expect (0.6.5): a
nonsensical array length ends the *process* (the allocation fails and Rust aborts), a tagged field of a newer broker
raises KeyError although KIP-482 has readers skip what they do not know, and an error code of a newer broker raises
ValueError. The reader here bounds every length by the bytes that are there, skips unknown tags, and leaves an unknown
error code a plain int. Where nothing may be null, null bytes and arrays are empty ones: librdkafka's mock cluster
writes its refusals of JoinGroup and SyncGroup so. It reads a member's usual heartbeat answer in some 10 us.

A layout costs 4 to 9 ms to import, for it makes its dataclasses then, and those between a constructor and the first
record were two thirds of a member's CPU time there: three members that start together on two cores needed one more
generation of their group for it. So those that every member needs are imported with this module, and those of one
protocol with the first consumer that prefers it (`import_layouts`), all in the newest version; others when needed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Protocol, TypeAlias, cast, get_args, get_origin
from uuid import UUID

from kio.schema import errors
from kio.serial import entity_writer
from kio.static.primitive import i32

from consumer_membership.errors import InternalError, TransportError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import GroupProtocol
from consumer_membership.wire.versions import Api

#: Kafka's error codes by name; each knows whether it is `retriable`.
ErrorCode = errors.ErrorCode

#: Reads one value at an offset; returns it with the offset behind it.
Read: TypeAlias = Callable[[bytes, int], tuple[object, int]]

#: The four bytes in front of every message that say how many follow.
SIZE_BYTES = 4

OF_EVERY_MEMBER = ("api_versions.v3", "find_coordinator.v4", "metadata.v13", "offset_fetch.v9", "list_offsets.v7")
OF_PROTOCOL: Mapping[GroupProtocol, tuple[str, ...]] = MappingProxyType(
    {
        GroupProtocol.CONSUMER: ("consumer_group_heartbeat.v1",),
        GroupProtocol.CLASSIC: (
            "join_group.v9",
            "consumer_protocol_subscription.v3",
            "sync_group.v5",
            "consumer_protocol_assignment.v0",
            "heartbeat.v4",
        ),
    }
)


class MalformedError(Exception):
    """The bytes do not hold what the layout says."""


class Message(Protocol):
    """What was read: a message's fields by their names; those of other versions are absent."""

    def __getattr__(self, name: str, /) -> Any: ...  # noqa: ANN401  # each field has a type of its own


#: The fields of a message that is to be written, those of all versions of it; structures in it are mappings too.
Fields: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request in one version; durations are in milliseconds."""

    api: Api
    version: int
    fields: Fields

    @property
    def name(self) -> str:
        """The API's name and version, for people."""
        return f"{self.api.title} v{self.version}"


def import_layouts(protocol: GroupProtocol) -> None:
    """Import what a member of this protocol needs beside what every member does."""
    for name in OF_PROTOCOL[protocol]:
        import_module(f"kio.schema.{name}")


def encode(call: Call, correlation_id: int, client_id: str) -> bytes:
    """The call as it goes out: size, header, request."""
    layout = _layout(call.api, call.version, "Request")
    header = layout.__header_schema__(
        request_api_key=layout.__api_key__,
        request_api_version=layout.__version__,
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    buffer = io.BytesIO()
    buffer.write(bytes(SIZE_BYTES))
    entity_writer(layout.__header_schema__)(buffer, header)
    entity_writer(layout)(buffer, _entity(layout, call.fields))
    size = buffer.tell() - SIZE_BYTES
    buffer.seek(0)
    buffer.write(size.to_bytes(SIZE_BYTES, "big"))
    return buffer.getvalue()


def decode(api: Api, version: int, frame: bytes) -> Message:
    """The answer in this frame (without the size).

    Raises:
        TransportError: the bytes do not hold such an answer.
    """
    layout = _layout(api, version, "Response")
    try:
        _, offset = read_entity(layout.__header_schema__, frame, 0)
        entity, _ = read_entity(layout, frame, offset)
    except MalformedError as error:
        raise TransportError(
            f"an answer of {len(frame)} bytes cannot be read ({error}); the peer is no Kafka broker, or a broken one"
        ) from error
    return entity


def write_data(name: str, version: int, values: Fields) -> bytes:
    """A structure that no request is, without any header: what members of a classic group tell each other."""
    layout = _data_layout(name, version)
    buffer = io.BytesIO()
    entity_writer(layout)(buffer, _entity(layout, values))
    return buffer.getvalue()


def read_data(name: str, version: int, data: bytes, offset: int) -> tuple[Message, int]:
    """Such a structure that begins at `offset`, with the offset behind it.

    Raises:
        MalformedError: the bytes do not hold one.
    """
    return read_entity(_data_layout(name, version), data, offset)


@cache
def _layout(api: Api, version: int, kind: str) -> Any:  # noqa: ANN401  # a class of kio's
    return getattr(import_module(f"kio.schema.{api.name.lower()}.v{version}"), f"{api.title}{kind}")


@cache
def _data_layout(name: str, version: int) -> Any:  # noqa: ANN401  # a class of kio's
    title = "".join(map(str.capitalize, name.split("_")))
    return getattr(import_module(f"kio.schema.{name}.v{version}"), title)


# ---- from fields to kio's entities ----------------------------------------------------------------------------------


def _entity(layout: Callable[..., object], values: Fields) -> object:
    return layout(**{name: made(values[name]) for name, made in _makers(layout).items() if name in values})


@cache
def _makers(layout: type) -> Mapping[str, Callable[[Any], object]]:
    return {field.name: _maker(field) for field in fields(layout)}


def _maker(field: Field[object]) -> Callable[[Any], object]:
    annotation, _ = _without_none(field.type)
    item = get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
    if is_dataclass(item):
        structure = cast("type", item)

        def many(rows: Sequence[Fields] | None) -> object:
            return None if rows is None else tuple(_entity(structure, row) for row in rows)

        return many
    if field.metadata.get("kafka_type") == "timedelta_i32":
        return lambda number: timedelta(milliseconds=number)
    return lambda value: value


# ---- from bytes to kio's entities -----------------------------------------------------------------------------------


def read_entity(entity_type: type, frame: bytes, offset: int) -> tuple[Message, int]:
    """One entity of a class of kio's that begins at `offset`, with the offset behind it.

    Raises:
        MalformedError: the bytes end too early, or a length, a null or a text in them cannot be.
    """
    try:
        value, end = _entity_reader(entity_type)(frame, offset)
    except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise MalformedError(f"{entity_type.__name__} v{_version(entity_type)}: {error}") from error
    return cast("Message", value), end


def _version(entity_type: type) -> object:
    return getattr(entity_type, "__version__", "?")


# ---- lengths and strings ---------------------------------------------------------------------------------------------


#: The bit of a number's byte that says that more follow.
_MORE: Final = 0x80


def _read_unsigned_varint(frame: bytes, offset: int) -> tuple[int, int]:
    value = frame[offset]
    offset += 1
    if value < _MORE:  # one byte holds seven bits; nearly all lengths
        return value, offset
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = frame[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, offset
    raise MalformedError(f"a length of more than 5 bytes at byte {offset}")


def _read_compact_length(frame: bytes, offset: int) -> tuple[int, int]:
    """A length as flexible versions write it: one more than it is, 0 for null (here -1)."""
    length, offset = _read_unsigned_varint(frame, offset)
    return _bounded(length - 1, frame, offset), offset


def _read_int16_length(frame: bytes, offset: int) -> tuple[int, int]:
    (length,) = _INT16.unpack_from(frame, offset)
    return _bounded(length, frame, offset + 2), offset + 2


def _read_int32_length(frame: bytes, offset: int) -> tuple[int, int]:
    (length,) = _INT32.unpack_from(frame, offset)
    return _bounded(length, frame, offset + 4), offset + 4


def _bounded(length: int, frame: bytes, offset: int) -> int:
    # Every element of an array takes a byte at least, so no length may exceed the bytes that are left.
    if length < -1 or length > len(frame) - offset:
        raise MalformedError(f"a length of {length} at byte {offset} of {len(frame)}")
    return length


def _string_reader(read_length: Callable[[bytes, int], tuple[int, int]], *, optional: bool) -> Read:
    def read(frame: bytes, offset: int) -> tuple[object, int]:
        length, offset = read_length(frame, offset)
        if length < 0:
            if optional:
                return None, offset
            raise MalformedError(f"null for a string at byte {offset}")
        end = offset + length
        return frame[offset:end].decode(), end

    return read


def _bytes_reader(read_length: Callable[[bytes, int], tuple[int, int]], *, optional: bool) -> Read:
    def read(frame: bytes, offset: int) -> tuple[object, int]:
        length, offset = read_length(frame, offset)
        if length < 0:
            return (None if optional else b""), offset
        return frame[offset : offset + length], offset + length

    return read


# ---- fixed sizes -----------------------------------------------------------------------------------------------------

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

_FORMATS: Final = MappingProxyType(
    {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "bool": "?"}
)

_ERROR_CODES: Final = MappingProxyType({code.value: code for code in ErrorCode})


def _fixed_reader(letter: str) -> Read:
    layout = struct.Struct(">" + letter)
    size, unpack_from = layout.size, layout.unpack_from

    def read(frame: bytes, offset: int) -> tuple[object, int]:
        return unpack_from(frame, offset)[0], offset + size

    return read


def _read_error_code(frame: bytes, offset: int) -> tuple[object, int]:
    (number,) = _INT16.unpack_from(frame, offset)
    return _ERROR_CODES.get(number, number), offset + 2


def _read_uuid(frame: bytes, offset: int) -> tuple[object, int]:
    end = offset + 16
    if end > len(frame):
        raise MalformedError(f"a topic id is cut off at byte {len(frame)}")
    value = frame[offset:end]
    return (UUID(bytes=value) if any(value) else None), end


def _milliseconds_reader(letter: str) -> Read:
    read_number = _fixed_reader(letter)

    def read(frame: bytes, offset: int) -> tuple[object, int]:
        number, end = read_number(frame, offset)
        return timedelta(milliseconds=cast("int", number)), end

    return read


_OTHERS: Final = MappingProxyType(
    {
        "error_code": _read_error_code,
        "uuid": _read_uuid,
        "timedelta_i32": _milliseconds_reader("i"),
        "timedelta_i64": _milliseconds_reader("q"),
    }
)


def _primitive_reader(kafka_type: str, *, flexible: bool, optional: bool) -> Read:
    if kafka_type == "string":
        return _string_reader(_read_compact_length if flexible else _read_int16_length, optional=optional)
    if kafka_type == "bytes":
        return _bytes_reader(_read_compact_length if flexible else _read_int32_length, optional=optional)
    if kafka_type in _FORMATS:
        return _fixed_reader(_FORMATS[kafka_type])
    if kafka_type in _OTHERS:
        return _OTHERS[kafka_type]
    raise InternalError(f"kio's type {kafka_type!r} is not read here")


# ---- arrays and entities ---------------------------------------------------------------------------------------------


def _array_reader(read_item: Read, letter: str | None, *, flexible: bool, optional: bool) -> Read:
    read_length = _read_compact_length if flexible else _read_int32_length
    size = struct.calcsize(">" + letter) if letter else 0

    def read(frame: bytes, offset: int) -> tuple[object, int]:
        length, offset = read_length(frame, offset)
        if length < 0:
            return (None if optional else ()), offset
        if letter:
            return struct.unpack_from(f">{length}{letter}", frame, offset), offset + length * size
        items = []
        for _ in range(length):
            item, offset = read_item(frame, offset)
            items.append(item)
        return tuple(items), offset

    return read


#: A nullable struct's first byte where there is none: -1 (KIP-893).
_NULL: Final = 0xFF


def _nullable_entity_reader(read_present: Read) -> Read:
    def read(frame: bytes, offset: int) -> tuple[object, int]:
        return (None, offset + 1) if frame[offset] == _NULL else read_present(frame, offset + 1)

    return read


def _without_none(annotation: object) -> tuple[object, bool]:
    if isinstance(annotation, UnionType):
        present = [part for part in get_args(annotation) if part is not NoneType]
        return present[0], len(present) < len(get_args(annotation))
    return annotation, False


def _field_reader(field: Field[object], *, flexible: bool) -> Read:
    annotation, optional = _without_none(field.type)
    is_array = get_origin(annotation) is tuple
    item = get_args(annotation)[0] if is_array else annotation
    kafka_type = str(field.metadata.get("kafka_type"))
    if isinstance(item, type) and is_dataclass(item):
        read_item = _entity_reader(item)
        if optional and not is_array:
            return _nullable_entity_reader(read_item)
    else:
        read_item = _primitive_reader(kafka_type, flexible=flexible, optional=optional and not is_array)
    if not is_array:
        return read_item
    return _array_reader(read_item, _FORMATS.get(kafka_type), flexible=flexible, optional=optional)


def _make_entity_reader(entity_type: type) -> Read:
    flexible: bool = entity_type.__flexible__  # type: ignore[attr-defined]  # every entity of kio has it
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    for field in fields(entity_type):
        named = (field.name, _field_reader(field, flexible=flexible))
        if "tag" not in field.metadata:
            plain.append(named)
        elif field.default is not MISSING:
            tagged[field.metadata["tag"]] = named
        else:
            raise InternalError(f"{entity_type.__name__}.{field.name} is tagged and has no default")
    build = cast("Callable[..., object]", entity_type)

    def read(frame: bytes, offset: int) -> tuple[object, int]:
        values: dict[str, Any] = {}
        for name, read_value in plain:
            values[name], offset = read_value(frame, offset)
        if flexible:
            offset = _read_tagged(tagged, values, frame, offset)
        return build(**values), offset

    return read


#: Making a reader takes some 0.1 ms.
_entity_reader: Callable[[type], Read] = cache(_make_entity_reader)


def _read_tagged(known: dict[int, tuple[str, Read]], values: dict[str, Any], frame: bytes, offset: int) -> int:
    count, offset = _read_unsigned_varint(frame, offset)
    for _ in range(count):
        tag, offset = _read_unsigned_varint(frame, offset)
        size, offset = _read_unsigned_varint(frame, offset)
        end = offset + size
        if end > len(frame):
            raise MalformedError(f"a tagged field of {size} bytes at byte {offset} of {len(frame)}")
        if tag in known:
            name, read_value = known[tag]
            values[name], _ = read_value(frame, offset)
        offset = end
    return offset


for _name in OF_EVERY_MEMBER:
    import_module(f"kio.schema.{_name}")
