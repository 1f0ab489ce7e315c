"""Commit metadata <-> offsets that are finished beyond the committed offset of a partition.

A consumer that finishes records out of order may commit only the contiguous prefix. A text in the metadata of the
commit lists the finished records beyond it, for the next owner of the partition. Other consumers ignore the text, and
metadata of other programs is never taken for it.

The text is `cm1:` and base64url, without padding, of:

| bytes | content |
|---|---|
| 1 | the form: 0 for varints, 1 for a bitmap |
| 4 | the leader epoch, big-endian; -1 if unknown |
| 1 or more | varints: for each unfinished offset, the number of finished ones up to the next; for the last, minus 1 |
| | or a bitmap, lowest bit first: one bit for each offset from the committed one on, set if the offset is finished |
| 4 | CRC-32 of the committed offset (8 bytes) and all bytes before the checksum, big-endian |

Neither form needs a length, because the committed offset itself is always unfinished and the highest offset always
finished. Varints are unsigned LEB128. The checksum includes the committed offset because tools such as MirrorMaker copy
the metadata to a commit of another offset, where it would hide other records.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from zlib import crc32

from consumer_membership.light_dataclasses import dataclass, replace

_PREFIX = "cm1:"
_VARINTS, _BITMAP = 0, 1
_HEAD, _OFFSET, _CHECKSUM = Struct(">Bi"), Struct(">q"), Struct(">I")
#: The largest offset of the Kafka protocol, an int64.
_MAX_OFFSET = 2**63 - 1
_VARINT_BITS, _LOW_BITS, _MORE = 7, 0x7F, 0x80
#: The bytes of a varint of 63 bits.
MAX_VARINT_SIZE = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedOffsets:
    """The offsets of a partition that are finished beyond `base`: those in [base, high) that are not unfinished.

    `base` is the committed offset and the first of `unfinished`, which is in ascending order. If any offset is
    finished, `high` is the offset after the highest of them. Offsets without a record (removed by compaction, or
    transaction markers) count as finished. `leader_epoch` is that of the last record that the owner received; None if
    unknown.
    """

    base: int
    high: int
    unfinished: tuple[int, ...]
    leader_epoch: int | None = None

    @property
    def count(self) -> int:
        """How many offsets are finished beyond `base`, including those without a record."""
        return self.high - self.base - len(self.unfinished)


def encode(finished: FinishedOffsets, capacity: int) -> str:
    """Return the metadata for a commit of `finished.base`, with at most `capacity` characters.

    All characters are ASCII, so `capacity` is the same in bytes and in the UTF-16 code units that Kafka counts. If the
    text would be longer, it omits the highest finished offsets, which the next owner then receives again. Returns an
    empty text if no offset is finished beyond `base`, or none fits.
    """
    text = _text(finished)
    if len(text) <= capacity:
        return text

    def does_not_fit(count: int) -> bool:
        return len(_text(_first(finished, count))) > capacity

    # The text never grows when its highest offsets are omitted.
    fitting = bisect_left(range(1, len(finished.unfinished)), True, key=does_not_fit)
    return _text(_first(finished, fitting)) if fitting else ""


def decode(metadata: str | None, committed: int) -> FinishedOffsets | None:
    """Return the offsets that are finished beyond the offset `committed`, from the metadata of its commit.

    The text may end with the zero that librdkafka appends. Returns None for texts of other programs, of other versions
    and for other offsets, and for damaged texts. Raises nothing, whatever the text contains.
    """
    if not metadata or not metadata.startswith(_PREFIX):
        return None
    digits = metadata.removeprefix(_PREFIX).removesuffix("\0")
    try:
        content = b64decode(digits + "=" * (-len(digits) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    body, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
    if len(body) <= _HEAD.size or checksum != _checksum(committed, body):
        return None
    return _finished_of(body, committed)


def varint_bytes_in(capacity: int) -> int:
    """Return how many bytes of varints or bitmap a text of `capacity` characters can contain; 0 if none."""
    return max(0, (capacity - len(_PREFIX)) * 3 // 4 - _HEAD.size - _CHECKSUM.size)


def largest_size(unfinished: int, span: int) -> int:
    """Return an upper bound for the bytes of varints or bitmap with so many unfinished among `span` offsets.

    The bound also holds after more of these offsets have finished, because neither form grows then. Each unfinished
    offset takes a varint. At most `span` / 128 of the varints have a second byte, `span` / 128**2 a third, and so on.
    """
    bitmap, varints = (span + 7) // 8, 0
    while span and varints < bitmap:
        varints += min(unfinished, span)
        span >>= _VARINT_BITS
    return min(varints, bitmap)


# ---- encoding --------------------------------------------------------------------------------------------------------


def _first(finished: FinishedOffsets, count: int) -> FinishedOffsets:
    """Return the finished offsets among and after the first `count` unfinished ones, up to the next unfinished one."""
    unfinished, high = list(finished.unfinished[:count]), finished.unfinished[count]
    while unfinished and unfinished[-1] == high - 1:
        high = unfinished.pop()
    return replace(finished, high=high, unfinished=tuple(unfinished))


def _text(finished: FinishedOffsets) -> str:
    if finished.count <= 0:
        return ""
    form, content = _VARINTS, _varints(finished)
    if (finished.high - finished.base + 7) // 8 < len(content):
        form, content = _BITMAP, _bitmap(finished)
    body = _HEAD.pack(form, -1 if finished.leader_epoch is None else finished.leader_epoch) + content
    return _PREFIX + urlsafe_b64encode(body + _checksum(finished.base, body)).rstrip(b"=").decode()


def _varints(finished: FinishedOffsets) -> bytes:
    content = bytearray()
    unfinished = finished.unfinished
    for offset, following in zip(unfinished, (*unfinished[1:], finished.high - 1), strict=True):
        number = following - offset - 1
        while number > _LOW_BITS:
            content.append(number & _LOW_BITS | _MORE)
            number >>= _VARINT_BITS
        content.append(number)
    return bytes(content)


def _bitmap(finished: FinishedOffsets) -> bytes:
    span = finished.high - finished.base
    content = bytearray(((1 << span) - 1).to_bytes((span + 7) // 8, "little"))
    for offset in finished.unfinished:
        place = offset - finished.base
        content[place >> 3] ^= 1 << (place & 7)
    return bytes(content)


def _checksum(base: int, body: bytes) -> bytes:
    return _CHECKSUM.pack(crc32(body, crc32(_OFFSET.pack(base))))


# ---- decoding --------------------------------------------------------------------------------------------------------


def _finished_of(body: bytes, base: int) -> FinishedOffsets | None:
    """Return the content of a text with the right checksum; None if a later version wrote it."""
    form, leader_epoch = _HEAD.unpack_from(body)
    content = body[_HEAD.size :]
    if form == _VARINTS:
        if content[-1] & _MORE:
            return None  # the last varint has no end
        gaps = list(_numbers(content))
        unfinished = [base]
        for gap in gaps[:-1]:
            unfinished.append(unfinished[-1] + gap + 1)
        high = unfinished[-1] + gaps[-1] + 2
    elif form == _BITMAP:
        bits = int.from_bytes(content, "little")
        if not bits or bits & 1:
            return None  # nothing is finished, or the committed offset itself is
        finished = f"{bits:b}"[::-1]
        unfinished = [base + place for place, bit in enumerate(finished) if bit == "0"]
        high = base + len(finished)
    else:
        return None
    if not base < high <= _MAX_OFFSET:
        return None
    epoch = None if leader_epoch < 0 else leader_epoch
    return FinishedOffsets(base=base, high=high, unfinished=tuple(unfinished), leader_epoch=epoch)


def _numbers(content: bytes) -> Iterator[int]:
    number = bits = 0
    for byte in content:
        number |= (byte & _LOW_BITS) << bits
        bits += _VARINT_BITS
        if not byte & _MORE:
            yield number
            number = bits = 0
