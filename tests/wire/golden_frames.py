"""Frames of other clients and a broker's responses: the file that stores them, and its readers.

`tests.wire.record_golden` writes `tests/wire/golden/frames.jsonl`; its first line describes the recording. Each other
line is a frame without the four bytes of its size.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from consumer_membership.wire.codec import SIZE_BYTES, Call, encode, write_data
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.schema import Table, has, layout_of
from consumer_membership.wire.serial import Struct, reader, skip_tagged
from consumer_membership.wire.versions import Api

FILE = Path(__file__).parent / "golden" / "frames.jsonl"
JAVA, LIBRDKAFKA = "java", "librdkafka"
REQUEST, ANSWER = "request", "answer"

#: The bytes after the last field if librdkafka requests the Metadata of all topics in a flexible version. librdkafka
#: reserves four bytes for the number of topics, of which the broker reads one. The broker therefore reads the following
#: field three bytes too early, as false, and ignores the three bytes that remain after the message
#: (confluentinc/librdkafka issue 5049).
LIBRDKAFKAS_RESTS = frozenset({b"\0\0\0", b"\1\0\0"})

#: The version of a header with tagged fields.
_FLEXIBLE_REQUEST = 2
_REQUEST_HEADER = struct.Struct(">hhih")
_ANSWER_HEADER = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFrame:
    """A client's request, or the broker's response to a request.

    Attributes:
        client: The client that sent the request or received the response.
        client_version: The version of the client.
        during: The client's action, and the versions that it was offered.
        api: The API of the request.
        version: The version of the body, which is that of the request. The response to an ApiVersions request whose
            version the broker does not know has version 0 (KIP-511).
        direction: `REQUEST` or `ANSWER`.
        header: The version of the header: 1 or 2 for a request, 0 or 1 for a response; 2 and 1 have tagged fields.
        data: Header and body.
    """

    client: str
    client_version: str
    during: str
    api: Api
    version: int
    direction: str
    header: int
    data: bytes

    @property
    def table(self) -> Table:
        """Return this package's table of the body."""
        return LAYOUTS[self.api][self.direction == ANSWER]

    def as_json(self) -> str:
        """Return the frame's line in the file."""
        return json.dumps(
            {
                "client": self.client,
                "client_version": self.client_version,
                "during": self.during,
                "api": self.api.title,
                "version": self.version,
                "direction": self.direction,
                "header": self.header,
                "hex": self.data.hex(),
            }
        )


def header_version(api: Api, version: int, direction: str) -> int:
    """Return the header version of such a frame; an ApiVersions response always has version 0 (KIP-511)."""
    if direction == REQUEST:
        return 2 if has(LAYOUTS[api][0].flexible, version) else 1
    return 1 if api is not Api.API_VERSIONS and has(LAYOUTS[api][1].flexible, version) else 0


def body_of(frame: GoldenFrame) -> int:
    """Return the offset after the header."""
    if frame.direction == ANSWER:
        offset = _ANSWER_HEADER.size
        return skip_tagged(frame.data, offset) if frame.header == 1 else offset
    offset = _REQUEST_HEADER.size + max(0, _REQUEST_HEADER.unpack_from(frame.data)[3])
    return skip_tagged(frame.data, offset) if frame.header == _FLEXIBLE_REQUEST else offset


def sender_of(frame: GoldenFrame) -> tuple[int, int, int, str]:
    """Return api key, version, correlation id and client id of a request's header."""
    key, version, number, length = _REQUEST_HEADER.unpack_from(frame.data)
    return key, version, number, frame.data[_REQUEST_HEADER.size :][:length].decode()


def message_of(frame: GoldenFrame) -> tuple[Struct, int]:
    """Return the body as this package reads it, and the offset after it.

    Raises:
        MalformedError: the reader rejects the body.
    """
    message: Struct
    message, end = reader(layout_of(frame.table, frame.version))(frame.data, body_of(frame))
    return message, end


def written_again(frame: GoldenFrame) -> bytes:
    """Return the bytes that the codec writes for what it reads; a response keeps its original header."""
    message, _ = message_of(frame)
    if frame.direction == ANSWER:
        return frame.data[: body_of(frame)] + write_data(frame.table, frame.version, as_values(message))
    key, version, number, client_id = sender_of(frame)
    return encode(Call(Api(key), version, as_values(message)), number, client_id)[SIZE_BYTES:]


def may_end_with(frame: GoldenFrame) -> frozenset[bytes]:
    """Return the bytes that may follow the last field."""
    is_metadata = (frame.client, frame.api, frame.direction) == (LIBRDKAFKA, Api.METADATA, REQUEST)
    if is_metadata and frame.header == _FLEXIBLE_REQUEST and message_of(frame)[0].topics is None:
        return LIBRDKAFKAS_RESTS
    return frozenset({b""})


def as_values(value: Any) -> Any:
    """Return a read value as input of the writer: a mapping for each structure."""
    if isinstance(value, Struct):
        return {name: as_values(one) for name, one in vars(value).items()}
    return tuple(map(as_values, value)) if isinstance(value, tuple) else value


def facets(value: Any, path: str = "") -> Iterator[str]:
    """Yield the properties for which a frame is kept, by field: null, empty, length, number below 1, error code."""
    if isinstance(value, Struct):
        for name, one in vars(value).items():
            yield from facets(one, f"{path}.{name}")
    elif isinstance(value, tuple):
        yield f"{path} has {min(len(value), 2)}"
        for one in value:
            yield from facets(one, f"{path}[]")
    elif isinstance(value, bool) or path.endswith("error_code"):
        yield f"{path} is {value}"
    elif isinstance(value, int):
        yield f"{path} is {min(value, 1)}"
    else:
        yield f"{path} is {'null' if value is None else 'there' if value else 'empty'}"


def save(about: Mapping[str, str], frames: Iterable[GoldenFrame]) -> None:
    """Write the file."""
    lines = [json.dumps(about), *(one.as_json() for one in frames)]
    FILE.write_text("".join(f"{line}\n" for line in lines))


@cache
def golden() -> tuple[GoldenFrame, ...]:
    """Return all frames of the file."""
    apis = {api.title: api for api in Api}
    _, *lines = FILE.read_text().splitlines()
    return tuple(
        GoldenFrame(
            client=one["client"],
            client_version=one["client_version"],
            during=one["during"],
            api=apis[one["api"]],
            version=one["version"],
            direction=one["direction"],
            header=one["header"],
            data=bytes.fromhex(one["hex"]),
        )
        for one in map(json.loads, lines)
    )
