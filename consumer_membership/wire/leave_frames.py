"""The few frames that a leave on behalf of a dead member needs, read and written with the standard library alone.

The guardian must be small and quick: kio costs 20 MB of memory and 0.3 s to import, at a moment when memory may be what
ended the application. So its questions come to it as finished frames (`wire.requests`, `wire.codec`), and of the
answers it reads only what stands here. What it says by SASL depends on what the broker has said before, so these two
requests are written here, too. A test holds every function against kio's own readers and writers.

A function with the name of an API takes an answer without its size, beginning with the correlation id; one with
`_request` behind it gives a frame, size included.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")
_RANGE = struct.Struct(">hhh")
_REQUEST = struct.Struct(">hhi")
#: FindCoordinator answers with a list from this version on (KIP-699).
_BATCHED_FIND_COORDINATOR = 4
_LONGEST_VARINT = 5
#: The bit of a number's byte that says that more follow.
_MORE = 0x80

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
#: As `wire.versions` has them; from the second on SaslAuthenticate's strings and bytes are compact (KIP-482).
SASL_HANDSHAKE_VERSION = 1
SASL_AUTHENTICATE_VERSIONS = (1, 2)
_COMPACT_SASL_AUTHENTICATE = 2
_NO_TAGS = b"\0"


class MalformedAnswerError(ValueError):
    """The bytes are no such answer."""


class Status(NamedTuple):
    """A broker's yes (code 0) or no, with its words."""

    code: int
    message: str


class Found(NamedTuple):
    """What FindCoordinator said: the coordinator's place, valid where the status's code is 0."""

    status: Status
    host: str
    port: int


class Offer(NamedTuple):
    """What SaslHandshake said: a code, and the mechanisms that the broker takes."""

    code: int
    mechanisms: tuple[str, ...]


class Reply(NamedTuple):
    """What SaslAuthenticate said: whether the broker goes on, and then its message of the mechanism."""

    status: Status
    message: bytes


def newest(known: Iterable[int], offered: tuple[int, int] | None, api_key: int) -> int:
    """The newest version that both sides know.

    Raises:
        MalformedAnswerError: there is none.
    """
    lowest, highest = offered or (0, -1)
    common = [version for version in known if lowest <= version <= highest]
    if not common:
        raise MalformedAnswerError(f"it offers no version of api {api_key} that this package speaks")
    return max(common)


def correlation_id(answer: bytes) -> int:
    """The number of the request that is answered."""
    return _Cursor(answer).number(_I32)


def offered_versions(answer: bytes) -> Mapping[int, tuple[int, int]]:
    """From an ApiVersions answer of version 0: the lowest and the highest version of each API."""
    cursor = _Cursor(answer)
    cursor.number(_I32)
    code = cursor.number(_I16)
    if code != 0:
        raise MalformedAnswerError(f"ApiVersions v0 was refused with error code {code}; is the peer a Kafka broker?")
    offered = {}
    for _ in range(cursor.number(_I32)):
        key, lowest, highest = cursor.numbers(_RANGE)
        offered[key] = (lowest, highest)
    return offered


def consumer_group_heartbeat(answer: bytes) -> Status:
    """What the coordinator says to a ConsumerGroupHeartbeat, of any version so far."""
    cursor = _Cursor(answer)
    cursor.flexible_header()
    cursor.number(_I32)
    return cursor.status()


def leave_group(answer: bytes) -> Status:
    """What the coordinator says to a LeaveGroup of one member, in a version from 4 on; it has no words for it.

    The whole request's error where there is one, else the member's.
    """
    cursor = _Cursor(answer)
    cursor.flexible_header()
    cursor.number(_I32)
    code = cursor.number(_I16)
    if code != 0:
        return Status(code, "")
    if cursor.varint() != 1 + 1:
        raise MalformedAnswerError("LeaveGroup did not answer for the one member that was to leave")
    cursor.text()
    cursor.text()
    return Status(cursor.number(_I16), "")


def find_coordinator(answer: bytes, version: int) -> Found:
    """Where the group's coordinator is, from an answer about one group."""
    cursor = _Cursor(answer)
    cursor.flexible_header()
    cursor.number(_I32)
    if version < _BATCHED_FIND_COORDINATOR:
        status = cursor.status()
        cursor.number(_I32)
        return Found(status, cursor.text(), cursor.number(_I32))
    if cursor.varint() != 1 + 1:
        raise MalformedAnswerError("FindCoordinator did not answer for the one group that was asked for")
    cursor.text()
    cursor.number(_I32)
    host, port = cursor.text(), cursor.number(_I32)
    return Found(cursor.status(), host, port)


def sasl_handshake_request(mechanism: str, number: int, client_id: str) -> bytes:
    """The frame that asks for this mechanism."""
    return _frame(_header(SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION, number, client_id), _short(mechanism))


def sasl_handshake(answer: bytes) -> Offer:
    """What the broker says to the mechanism, and which ones it takes."""
    cursor = _Cursor(answer)
    cursor.number(_I32)
    code = cursor.number(_I16)
    return Offer(code, tuple(cursor.short_text() for _ in range(cursor.number(_I32))))


def sasl_authenticate_request(version: int, message: bytes, number: int, client_id: str) -> bytes:
    """The frame with this message of the mechanism."""
    header = _header(SASL_AUTHENTICATE, version, number, client_id)
    if version < _COMPACT_SASL_AUTHENTICATE:
        return _frame(header, _I32.pack(len(message)), message)
    return _frame(header, _NO_TAGS, _varint(len(message) + 1), message, _NO_TAGS)


def sasl_authenticate(answer: bytes, version: int) -> Reply:
    """What the broker says to the message; not how long it believes it (KIP-368), because a leave is soon over."""
    cursor = _Cursor(answer)
    if version < _COMPACT_SASL_AUTHENTICATE:
        cursor.number(_I32)
        status = Status(cursor.number(_I16), cursor.short_text())
        return Reply(status, cursor.data(cursor.number(_I32)))
    cursor.flexible_header()
    return Reply(cursor.status(), cursor.data(cursor.varint() - 1))


def _header(api_key: int, version: int, number: int, client_id: str) -> bytes:
    return _REQUEST.pack(api_key, version, number) + _short(client_id)


def _frame(*parts: bytes) -> bytes:
    return _I32.pack(sum(map(len, parts))) + b"".join(parts)


def _short(text: str) -> bytes:
    """A string of the older kind: its length in two bytes, then UTF-8."""
    data = text.encode()
    return _I16.pack(len(data)) + data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= _MORE:
        parts.append(value & 0x7F | _MORE)
        value >>= 7
    return bytes((*parts, value))


class _Cursor:
    """Reads one value after another; every way past the end is a MalformedAnswerError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values: tuple[int, ...] = layout.unpack_from(self._data, self._at)
        except struct.error as error:
            raise MalformedAnswerError(f"an answer of {len(self._data)} bytes ends too early") from error
        self._at += layout.size
        return values

    def number(self, layout: struct.Struct) -> int:
        return self.numbers(layout)[0]

    def varint(self) -> int:
        value = 0
        for place in range(_LONGEST_VARINT):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < _MORE:
                return value
        raise MalformedAnswerError("an answer holds a number that does not end")

    def text(self) -> str:
        """A compact string: its length plus one, then UTF-8; null (0) reads as empty."""
        return self.data(self.varint() - 1).decode(errors="replace")

    def short_text(self) -> str:
        """A string of the older kind; null (-1) reads as empty."""
        return self.data(self.number(_I16)).decode(errors="replace")

    def data(self, size: int) -> bytes:
        """So many bytes; null (-1) reads as empty."""
        return self._take(max(0, size))

    def status(self) -> Status:
        return Status(self.number(_I16), self.text())

    def flexible_header(self) -> None:
        """The correlation id, then tagged fields, of which brokers send none."""
        self.number(_I32)
        for _ in range(self.varint()):
            self.varint()
            self._take(self.varint())

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise MalformedAnswerError(f"an answer of {len(self._data)} bytes ends too early")
        self._at += size
        return taken
