"""Encode and decode values by the layout of a message.

A writer and a reader are created for a layout at its first use, with one function for each field. Decoding is limited
by the available bytes: text, and each element of an array, has a least size, so that no length is trusted, and no
memory is allocated for it, beyond the frame. A tagged field that the layout does not have is skipped (KIP-482). Null
for bytes and arrays that are not nullable is read as empty: librdkafka's mock cluster writes its errors for JoinGroup
and SyncGroup in this way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from consumer_membership.errors import InternalError
from consumer_membership.wire.schema import Field, Layout

#: Decode one value at an offset; return it with the offset after it.
Read: TypeAlias = "Callable[[bytes, int], tuple[Any, int]]"
#: Append one encoded value.
Write: TypeAlias = "Callable[[bytearray, Any], None]"

if TYPE_CHECKING:
    from uuid import UUID

    _Length: TypeAlias = Callable[[bytes, int, int], tuple[int, int]]


class MalformedError(Exception):
    """The bytes do not match the layout."""


class Struct(SimpleNamespace):
    """A decoded structure: fields by name; those of other versions are absent."""


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
#: The protocol's number types in the notation of `struct`.
_FORMATS: Mapping[str, str] = MappingProxyType({"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"})
_NO_UUID = bytes(16)
#: How many received ids each reader keeps as objects.
_KNOWN_UUIDS = 4096
#: Shorter arrays of numbers are decoded by a format of their length: most lists of partitions are short.
_FEW = 8
#: The bit of an unsigned varint that marks a further byte, and how many bytes there may be.
_MORE = 0x80
_LONGEST_VARINT = 5
#: The first byte of a nullable structure (KIP-893).
_PRESENT, _NULL, _NULL_IN_TAG = b"\x01", 0xFF, 0
#: The least size of a value that is not a number, in bytes.
_LEAST_FLEXIBLE: Mapping[str, int] = MappingProxyType({"uuid": 16, "string": 1, "bytes": 1})
_LEAST: Mapping[str, int] = MappingProxyType({"uuid": 16, "string": 2, "bytes": 4})


# ---- reading ---------------------------------------------------------------------------------------------------------


def reader(layout: Layout) -> Read:
    """Return the reader of such a message.

    The reader raises MalformedError: the bytes end too early, or a length, a null or a text in them is invalid.
    """
    read = _struct_reader(layout.fields, is_flexible=layout.is_flexible)

    def read_message(frame: bytes, offset: int) -> tuple[Any, int]:
        try:
            return read(frame, offset)
        except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
            raise MalformedError(f"{layout.name}: {error}") from error
        except MalformedError as error:
            raise MalformedError(f"{layout.name}: {error}") from None

    return read_message


def read_unsigned_varint(frame: bytes, offset: int) -> tuple[int, int]:
    """Return a number of at most 32 bits, seven of them in each byte."""
    value = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        byte = frame[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, offset
    raise MalformedError(f"a length of more than {_LONGEST_VARINT} bytes at byte {offset}")


def skip_tagged(frame: bytes, offset: int) -> int:
    """Return the offset after tagged fields that are not needed."""
    return _read_tagged({}, {}, frame, offset)


def _bounded(length: int, frame: bytes, offset: int, least: int) -> int:
    if length < -1 or length * least > len(frame) - offset:
        raise _too_long(length, frame, offset)
    return length


def _too_long(length: int, frame: bytes, offset: int) -> MalformedError:
    return MalformedError(f"a length of {length} at byte {offset} of {len(frame)}")


def _compact_length(frame: bytes, offset: int, least: int) -> tuple[int, int]:
    """Return a length in flexible versions, which write one more than the length, and 0 for null (here -1)."""
    length = frame[offset]
    if length < _MORE:  # one byte; nearly all lengths
        offset += 1
    else:
        length, offset = read_unsigned_varint(frame, offset)
    length -= 1
    if length * least > len(frame) - offset:
        raise _too_long(length, frame, offset)
    return length, offset


def _int16_length(frame: bytes, offset: int, least: int) -> tuple[int, int]:
    (length,) = _INT16.unpack_from(frame, offset)
    return _bounded(length, frame, offset + 2, least), offset + 2


def _int32_length(frame: bytes, offset: int, least: int) -> tuple[int, int]:
    (length,) = _INT32.unpack_from(frame, offset)
    return _bounded(length, frame, offset + 4, least), offset + 4


def _number_reader(letter: str) -> Read:
    layout = struct.Struct(">" + letter)
    size, unpack_from = layout.size, layout.unpack_from

    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        return unpack_from(frame, offset)[0], offset + size

    return read


def _uuid_reader() -> Read:
    # imported here: its module inspects the platform and takes 0.5 MB, which a guardian does not need
    from uuid import UUID  # noqa: PLC0415

    # The same topics come with every heartbeat.
    known: dict[bytes, UUID | None] = {_NO_UUID: None}

    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        """Return an id; None: the id of sixteen zeros, which no topic has."""
        end = offset + 16
        value = frame[offset:end]
        try:
            return known[value], end
        except KeyError:
            if end > len(frame):
                raise MalformedError(f"an id is cut off at byte {len(frame)}") from None
        if len(known) > _KNOWN_UUIDS:
            known.clear()
            known[_NO_UUID] = None
        return known.setdefault(value, UUID(bytes=value)), end

    return read


def _string_reader(read_length: _Length, *, is_nullable: bool) -> Read:
    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        length, offset = read_length(frame, offset, 1)
        if length < 0:
            if is_nullable:
                return None, offset
            raise MalformedError(f"null for a text at byte {offset}")
        end = offset + length
        return frame[offset:end].decode(), end

    return read


def _bytes_reader(read_length: _Length, *, is_nullable: bool) -> Read:
    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        length, offset = read_length(frame, offset, 1)
        if length < 0:
            return (None if is_nullable else b""), offset
        return frame[offset : offset + length], offset + length

    return read


def _array_reader(field: Field, read_item: Read, *, is_flexible: bool) -> Read:
    read_length: _Length = _compact_length if is_flexible else _int32_length
    is_nullable, letter, least = field.is_nullable, _FORMATS.get(field.type), _least(field, is_flexible=is_flexible)

    few = [one.unpack_from for one in _few(letter)]

    def read_numbers(frame: bytes, offset: int) -> tuple[Any, int]:
        length, offset = read_length(frame, offset, least)
        if 0 <= length < _FEW:
            return few[length](frame, offset), offset + length * least
        if length < 0:
            return (None if is_nullable else ()), offset
        return struct.unpack_from(f">{length}{letter}", frame, offset), offset + length * least

    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        length, offset = read_length(frame, offset, least)
        if length < 0:
            return (None if is_nullable else ()), offset
        items = []
        for _ in range(length):
            item, offset = read_item(frame, offset)
            items.append(item)
        return tuple(items), offset

    return read if letter is None else read_numbers


def _few(letter: str | None) -> list[struct.Struct]:
    """Return the formats of arrays with no such number, with one, and so on."""
    return [] if letter is None else [struct.Struct(f">{length}{letter}") for length in range(_FEW)]


def _least(field: Field, *, is_flexible: bool) -> int:
    """Return the least size of one value of the field in bytes."""
    if field.type in _FORMATS:
        return struct.calcsize(">" + _FORMATS[field.type])
    if field.type != "struct":
        return (_LEAST_FLEXIBLE if is_flexible else _LEAST)[field.type]
    length = 1 if is_flexible else 4
    inside = (length if one.is_array else _least(one, is_flexible=is_flexible) for one in _untagged(field.fields))
    return sum(inside) + is_flexible


def _untagged(fields: tuple[Field, ...]) -> list[Field]:
    return [field for field in fields if field.tag is None]


def _value_reader(field: Field, *, is_flexible: bool) -> Read:
    """Return the reader of one value of the field's type."""
    is_nullable = field.is_nullable and not field.is_array
    if field.type == "string":
        return _string_reader(_compact_length if is_flexible else _int16_length, is_nullable=is_nullable)
    if field.type == "bytes":
        return _bytes_reader(_compact_length if is_flexible else _int32_length, is_nullable=is_nullable)
    if field.type == "uuid":
        return _uuid_reader()
    if field.type in _FORMATS:
        return _number_reader(_FORMATS[field.type])
    if field.type != "struct":
        raise InternalError(f"the table of {field.name} has the type {field.type}, which does not exist")
    read_present = _struct_reader(field.fields, is_flexible=is_flexible)
    if not is_nullable:
        return read_present

    # In a tagged field, Java's generator writes a zero for null.
    null = _NULL if field.tag is None else _NULL_IN_TAG

    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        return (None, offset + 1) if frame[offset] == null else read_present(frame, offset + 1)

    return read


def _field_reader(field: Field, *, is_flexible: bool) -> Read:
    read_value = _value_reader(field, is_flexible=is_flexible)
    return _array_reader(field, read_value, is_flexible=is_flexible) if field.is_array else read_value


def _struct_reader(fields: tuple[Field, ...], *, is_flexible: bool) -> Read:
    plain = [(field.name, _field_reader(field, is_flexible=is_flexible)) for field in _untagged(fields)]
    tagged = {
        field.tag: (field.name, _field_reader(field, is_flexible=is_flexible))
        for field in fields
        if field.tag is not None
    }
    absent = {field.name: _default(field) for field in fields if field.tag is not None}

    def read(frame: bytes, offset: int) -> tuple[Any, int]:
        found = Struct(**absent) if absent else Struct()
        values = found.__dict__
        for name, read_value in plain:
            values[name], offset = read_value(frame, offset)
        if is_flexible:
            if frame[offset] == 0:
                offset += 1
            else:
                offset = _read_tagged(tagged, values, frame, offset)
        return found, offset

    return read


def _read_tagged(known: Mapping[Any, tuple[str, Read]], values: dict[str, Any], frame: bytes, offset: int) -> int:
    count, offset = read_unsigned_varint(frame, offset)
    for _ in range(count):
        tag, offset = read_unsigned_varint(frame, offset)
        size, offset = read_unsigned_varint(frame, offset)
        end = offset + size
        if end > len(frame):
            raise MalformedError(f"a tagged field of {size} bytes at byte {offset} of {len(frame)}")
        if tag in known:
            name, read_value = known[tag]
            values[name], read_to = read_value(frame, offset)
            if read_to != end:
                raise MalformedError(f"the tagged field {name} of {read_to - offset} bytes has the size {size}")
        offset = end
    return offset


# ---- writing ---------------------------------------------------------------------------------------------------------


def writer(layout: Layout) -> Write:
    """Return the writer of such a message from a mapping of its fields; names of other versions are ignored.

    The writer raises InternalError: a field without a default is missing, or a value does not fit its type.
    """
    write = _struct_writer(layout.fields, is_flexible=layout.is_flexible)

    def write_message(out: bytearray, values: Mapping[str, object]) -> None:
        try:
            write(out, values)
        except (struct.error, TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            raise InternalError(f"{layout.name} cannot be written: {type(error).__name__}: {error}") from error

    return write_message


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append a number of at most 32 bits, seven of them in each byte."""
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)


def _write_compact_length(out: bytearray, length: int) -> None:
    if length < _MORE - 1:  # one byte; nearly all lengths
        out.append(length + 1)
    else:
        write_unsigned_varint(out, length + 1)


def _write_int16_length(out: bytearray, length: int) -> None:
    out += _INT16.pack(length)


def _write_int32_length(out: bytearray, length: int) -> None:
    out += _INT32.pack(length)


def _number_writer(letter: str) -> Write:
    pack = struct.Struct(">" + letter).pack

    def write(out: bytearray, value: Any) -> None:  # each field has a type of its own
        out += pack(value)

    return write


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += _NO_UUID if value is None else value.bytes


def _sized_writer(field: Field, write_length: Callable[[bytearray, int], None]) -> Write:
    """Return the writer of text or bytes."""
    is_text, is_nullable, name = field.type == "string", field.is_nullable and not field.is_array, field.name

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not is_nullable:
                raise ValueError(f"{name} is null")
            write_length(out, -1)
            return
        data = value.encode() if is_text else value
        write_length(out, len(data))
        out += data

    return write


def _value_writer(field: Field, *, is_flexible: bool) -> Write:
    if field.type == "string":
        return _sized_writer(field, _write_compact_length if is_flexible else _write_int16_length)
    if field.type == "bytes":
        return _sized_writer(field, _write_compact_length if is_flexible else _write_int32_length)
    if field.type == "uuid":
        return _write_uuid
    if field.type in _FORMATS:
        return _number_writer(_FORMATS[field.type])
    write_present = _struct_writer(field.fields, is_flexible=is_flexible)
    if not field.is_nullable or field.is_array:
        return write_present

    def write(out: bytearray, value: Mapping[str, object] | None) -> None:
        if value is None:
            out.append(_NULL)
        else:
            out += _PRESENT
            write_present(out, value)

    return write


def _field_writer(field: Field, *, is_flexible: bool) -> Write:
    write_value = _value_writer(field, is_flexible=is_flexible)
    if not field.is_array:
        return write_value
    write_length = _write_compact_length if is_flexible else _write_int32_length
    is_nullable, letter, name = field.is_nullable, _FORMATS.get(field.type), field.name
    few = [one.pack for one in _few(letter)]

    def write(out: bytearray, values: Sequence[object] | None) -> None:
        if values is None:
            if not is_nullable:
                raise ValueError(f"{name} is null")
            write_length(out, -1)
            return
        write_length(out, len(values))
        if letter is None:
            for value in values:
                write_value(out, value)
        elif len(values) < _FEW:
            out += few[len(values)](*values)
        else:
            out += struct.pack(f">{len(values)}{letter}", *values)

    return write


def _struct_writer(fields: tuple[Field, ...], *, is_flexible: bool) -> Write:
    plain = [
        (field.name, _field_writer(field, is_flexible=is_flexible), field.default is not None, _default(field))
        for field in _untagged(fields)
    ]
    tagged = [
        (field.tag, field.name, _field_writer(field, is_flexible=is_flexible), _default(field))
        for field in sorted(fields, key=lambda one: one.tag or 0)
        if field.tag is not None
    ]

    def write(out: bytearray, values: Mapping[str, object]) -> None:
        for name, write_value, has_default, default in plain:
            write_value(out, values.get(name, default) if has_default else values[name])
        if not is_flexible:
            return
        if not tagged:
            out.append(0)
            return
        # A tagged field is written only if its value differs from its default.
        present = [one for one in tagged if one[1] in values and values[one[1]] != one[3]]
        write_unsigned_varint(out, len(present))
        for tag, name, write_value, _ in present:
            data = bytearray()
            write_value(data, values[name])
            write_unsigned_varint(out, tag)
            write_unsigned_varint(out, len(data))
            out += data

    return write


def _default(field: Field) -> Any:
    """Return the value of a field that is not given."""
    if field.default == "null":
        return None
    if field.is_array:
        return ()
    if field.type == "bool":
        return field.default == "true"
    if field.type in _FORMATS:
        return int(field.default or 0)
    return {"string": field.default or "", "bytes": b"", "uuid": None}.get(field.type)
