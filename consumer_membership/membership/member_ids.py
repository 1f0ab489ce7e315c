"""The ids that members of the consumer protocol choose for themselves (KIP-1082).

An id is a UUID of version 7 (RFC 9562, section 5.7) in URL-safe base64, 22 characters; those of librdkafka and Java are
of version 4. Its first 48 bits are the time at which the application created the consumer. Brokers do not report the
age of a member, and a successor has to know it: it replaces the oldest process (`membership.consumer.successor`).

The clocks of two hosts differ, so an age is a hint: it decides only which of two members keeps an instance id.
"""

from __future__ import annotations

import base64

_LENGTH = 22
#: Twelve characters are nine bytes: the time, and the version of the UUID.
_HEAD = 12
_TIME_BYTES = 6
_VERSION, _VARIANT = 0x70, 0x80


def new_member_id(created_ms: int, randomness: bytes) -> str:
    """Return the id of a consumer with this creation time (milliseconds since 1970), from ten random bytes."""
    tail = bytearray(randomness)
    tail[0] = _VERSION | (tail[0] & 0x0F)
    tail[2] = _VARIANT | (tail[2] & 0x3F)
    return base64.urlsafe_b64encode(created_ms.to_bytes(_TIME_BYTES, "big") + tail).decode().rstrip("=")


def creation_time(member_id: str) -> int | None:
    """Return when the consumer with this id was created, in milliseconds since 1970; None: another client chose it."""
    if len(member_id) != _LENGTH:
        return None
    try:
        head = base64.b64decode(member_id[:_HEAD], altchars=b"-_", validate=True)
    except ValueError:
        return None
    return int.from_bytes(head[:_TIME_BYTES], "big") if head[_TIME_BYTES] & 0xF0 == _VERSION else None


def was_created_before(one: str, other: str, *, by_ms: int = 1) -> bool:
    """Return whether the ids show that the first consumer was created at least this much before the other one."""
    first, second = creation_time(one), creation_time(other)
    return first is not None and second is not None and first + by_ms <= second
