"""Three plain questions to a broker over the wire: its minor line, a group's coordinator, and whether that one works.

Written out by hand, because this room may not know the package's wire, and librdkafka's admin client cannot be used for
the latter two: its requests to a coordinator abort the whole process (an assertion in librdkafka 2.16) when the
topic of the offsets is not there yet or the coordinator's node goes away, which is just when readiness is asked for.
"""

from __future__ import annotations

import socket
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from consumer_membership.devbroker.errors import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

_Answer = TypeVar("_Answer")

UNKNOWN = "unknown"

MINOR_LINES: Mapping[int, str] = MappingProxyType({21: "3.9", 25: "4.0", 27: "4.1", 29: "4.2", 30: "4.3", 33: "4.4"})
"""The highest metadata.version of each minor line (MetadataVersion.java)."""

_FIND_COORDINATOR, _DESCRIBE_GROUPS, _API_VERSIONS = 10, 15, 18
_SUPPORTED_FEATURES_TAG = 0
_VARINT_MORE = 0x80
_NO_TAGS = b"\0"


class ProbeError(Exception):
    """The other side does not answer, or not as a Kafka broker does."""


class Probe:
    """One plaintext connection to the broker at host:port; a context manager that closes it.

    Raises:
        ProbeError: Nobody listens there.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        except (OSError, ValueError) as error:
            raise ProbeError(f"{address} accepts no connection: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def supported_features(self) -> dict[str, int]:
        """The highest level of each feature that the broker's code supports (KIP-584).

        Raises:
            ProbeError: It does not answer so.
        """
        # Version 3 is the first with features. The request is flexible, the answer's header never is.
        return self._ask(_API_VERSIONS, 3, _NO_TAGS + _compact("devbroker") + _compact("1") + _NO_TAGS, read_features)

    def find_coordinator(self, group_id: str) -> tuple[int, str]:
        """The error code (0 is none) and the host:port of a group's coordinator; creates the offsets topic if need be.

        Raises:
            ProbeError: It does not answer so.
        """
        group_type = b"\0"
        return self._ask(_FIND_COORDINATOR, 2, _string(group_id) + group_type, _read_coordinator)

    def describe_group(self, group_id: str) -> int:
        """The error code with which the coordinator describes a group: 0 also for one that does not exist.

        Nothing is created by it.

        Raises:
            ProbeError: It does not answer so.
        """
        return self._ask(_DESCRIBE_GROUPS, 0, struct.pack(">i", 1) + _string(group_id), _read_description)

    def _ask(self, api_key: int, version: int, body: bytes, read: Callable[[Reader], _Answer]) -> _Answer:
        no_client_id = -1
        frame = struct.pack(">hhih", api_key, version, 1, no_client_id) + body
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            reader = Reader(self._receive(Reader(self._receive(4)).int32()))
            reader.skip(4)  # correlation id
            return read(reader)
        except (OSError, ValueError) as error:
            raise ProbeError(f"{self._address} does not answer as a Kafka broker does: {error}") from error

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ValueError("the connection was closed in the middle of the answer")
            received += chunk
        return bytes(received)


class Reader:
    """Reads Kafka's encoding from the front of some bytes; a ValueError where they end too soon."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size < 0 or self._at + size > len(self._data):
            raise ValueError(f"the answer ends before byte {self._at + size}")
        self._at += size
        return self._data[self._at - size : self._at]

    def skip(self, size: int) -> None:
        """Pass over some bytes."""
        self.take(size)

    def int16(self) -> int:
        """A number of two bytes."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        """A number of four bytes."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def varint(self) -> int:
        """An unsigned number of seven bits a byte."""
        value, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & ~_VARINT_MORE) << shift
            shift += 7
            if not byte & _VARINT_MORE:
                return value

    def string(self) -> str:
        """A text with its length in two bytes; empty for null."""
        return self.take(max(0, self.int16())).decode()

    def skip_tags(self) -> None:
        """Pass over tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def minor_line(address: str, timeout_s: float) -> str:
    """The minor line of the broker at host:port, such as "4.3", or "unknown".

    Kafka has no request for its version, but each minor line brought a metadata.version of its own.

    Raises:
        BrokerUnavailableError: It does not answer, or not as a Kafka broker does.
    """
    try:
        with Probe(address, timeout_s) as probe:
            level = probe.supported_features().get("metadata.version")
    except ProbeError as error:
        raise BrokerUnavailableError(str(error)) from error
    return UNKNOWN if level is None else MINOR_LINES.get(level, UNKNOWN)


def read_features(reader: Reader) -> dict[str, int]:
    """The features in an ApiVersions answer of version 3.

    Raises:
        ValueError: The answer says an error, or is cut off.
    """
    code = reader.int16()
    if code != 0:
        raise ValueError(f"ApiVersions error code {code}")
    for _ in range(reader.varint() - 1):
        reader.skip(6)  # key, lowest and highest version
        reader.skip_tags()
    reader.skip(4)  # throttle time
    features: dict[str, int] = {}
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        if tag != _SUPPORTED_FEATURES_TAG:
            reader.skip(size)
            continue
        for _ in range(reader.varint() - 1):
            name = reader.take(reader.varint() - 1).decode()
            reader.skip(2)  # lowest level
            features[name] = reader.int16()
            reader.skip_tags()
    return features


def _read_coordinator(reader: Reader) -> tuple[int, str]:
    reader.skip(4)  # throttle time
    code = reader.int16()
    reader.string()  # the error in words
    reader.skip(4)  # node id
    host = reader.string()
    return code, f"{host}:{reader.int32()}"


def _read_description(reader: Reader) -> int:
    reader.skip(4)  # the number of groups, which is 1
    return reader.int16()


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()
