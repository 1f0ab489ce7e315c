"""Targets with planted defects: the fuzzer must report each of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from consumer_membership.wire.serial import MalformedError, read_unsigned_varint

_MEMORY_BYTES = 8 << 30


def _sound(data: bytes) -> None:
    with contextlib.suppress(MalformedError):
        read_unsigned_varint(data + b"\x00", 0)


def _raises(data: bytes) -> None:
    # The reader documents the error, but this target does not catch it. It occurs after five bytes above 127 in a row.
    read_unsigned_varint(data + b"\x00", 0)


def _hangs(data: bytes) -> None:
    while data:
        pass


def _takes_memory(data: bytes) -> None:
    if data:
        bytearray(_MEMORY_BYTES)


def _ends_the_process(data: bytes) -> None:
    if data:
        os._exit(0)


#: A target without a defect, and the targets with a defect, by name.
TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "sound": _sound,
    "raises": _raises,
    "hangs": _hangs,
    "takes-memory": _takes_memory,
    "ends-the-process": _ends_the_process,
}
