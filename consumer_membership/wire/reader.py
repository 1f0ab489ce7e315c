"""Reading kio's entities from bytes that a stranger sent.

kio brings a reader of its own, in native code. It is not used, because of what it does with bytes that it does not
expect (0.6.5): a nonsensical array length ends the *process* (the allocation fails and Rust aborts), a tagged field of
a newer broker raises KeyError although KIP-482 has readers skip what they do not know, and an error code of a newer
broker raises ValueError. This reader bounds every length by the bytes that are there, skips unknown tags, and leaves an
unknown error code a plain int. Where nothing may be null, null bytes and arrays are empty ones: librdkafka's mock
cluster writes its refusals of JoinGroup and SyncGroup so. It reads a member's usual heartbeat answer in some 10 us.

The entities are still kio's, and so is what is known of their layout: the fields' order, types and tags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

from consumer_membership.errors import InternalError

ValueT = TypeVar("ValueT")

#: Reads one value at an offset; returns it with the offset behind it.
Read: TypeAlias = Callable[[bytes, int], tuple[object, int]]


class MalformedError(Exception):
    """The bytes do not hold what the layout says."""


def read_entity(entity_type: type[ValueT], frame: bytes, offset: int) -> tuple[ValueT, int]:
    """One entity of `entity_type` that begins at `offset`, with the offset behind it.

    Raises:
        MalformedError: the bytes end too early, or a length, a null or a text in them cannot be.
    """
    try:
        value, end = _entity_reader(entity_type)(frame, offset)
    except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
        raise MalformedError(f"{entity_type.__name__} v{_version(entity_type)}: {error}") from error
    return cast("ValueT", value), end


def _version(entity_type: type) -> object:
    return getattr(entity_type, "__version__", "?")


# ---- lengths and strings ---------------------------------------------------------------------------------------------


def _read_unsigned_varint(frame: bytes, offset: int) -> tuple[int, int]:
    value = frame[offset]
    offset += 1
    if value < 0x80:  # noqa: PLR2004  # one byte holds seven bits; nearly all lengths
        return value, offset
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = frame[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004
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


def _nullable_entity_reader(read_present: Read) -> Read:
    # A nullable struct begins with a signed byte: -1 for null, 1 otherwise (KIP-893).
    def read(frame: bytes, offset: int) -> tuple[object, int]:
        return (None, offset + 1) if frame[offset] == 0xFF else read_present(frame, offset + 1)  # noqa: PLR2004

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
