"""The text of finished offsets in commit metadata: its sizes, and that all other text is ignored."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.translation.offset_metadata import (
    FinishedOffsets,
    decode,
    encode,
    largest_size,
    varint_bytes_in,
)

ENOUGH = 1_000_000


def finished_offsets(base: int, finished: Collection[int], leader_epoch: int | None = None) -> FinishedOffsets:
    """Return the value for finished offsets beyond an unfinished `base`."""
    high = max(finished, default=base) + 1
    unfinished = tuple(offset for offset in range(base, high) if offset not in finished)
    return FinishedOffsets(base=base, high=high, unfinished=unfinished, leader_epoch=leader_epoch)


def offsets_of(found: FinishedOffsets | None) -> set[int]:
    """Return the finished offsets of a value."""
    return set() if found is None else set(range(found.base, found.high)) - set(found.unfinished)


def framed(body: bytes, base: int) -> str:
    """Return a text with this body and the right checksum."""
    checksum = crc32(base.to_bytes(8, "big") + body).to_bytes(4, "big")
    return "cm1:" + urlsafe_b64encode(body + checksum).rstrip(b"=").decode()


@st.composite
def cases(draw: st.DrawFn) -> FinishedOffsets:
    """Draw a base, up to 300 runs of unfinished and finished offsets beyond it, and a leader epoch."""
    base = draw(st.one_of(st.integers(0, 10), st.integers(2**62, 2**62 + 10)))
    runs = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 2**18)), min_size=1, max_size=300))
    unfinished: list[int] = []
    high = base
    for waiting, done in runs:
        unfinished += range(high, high + waiting)
        high += waiting + done
    epoch = draw(st.one_of(st.none(), st.integers(0, 2**31 - 1)))
    return FinishedOffsets(base=base, high=high, unfinished=tuple(unfinished), leader_epoch=epoch)


@given(cases())
def test_decode_returns_encoded_offsets(case: FinishedOffsets) -> None:
    """A text that is long enough contains all finished offsets, in ASCII characters."""
    text = encode(case, ENOUGH)
    assert decode(text, case.base) == case
    assert text.isascii()


@given(cases(), st.integers(0, 500))
def test_encode_omits_the_highest_offsets_that_do_not_fit(case: FinishedOffsets, capacity: int) -> None:
    """A text never exceeds the capacity, and the offsets in it are finished ones, the lowest first."""
    text = encode(case, capacity)
    assert len(text) <= capacity
    found = decode(text, case.base)
    if found is None:
        assert text == ""
    else:
        assert found.unfinished == tuple(offset for offset in case.unfinished if offset < found.high)
        assert found.high <= case.high


@given(cases())
def test_largest_size_is_never_exceeded(case: FinishedOffsets) -> None:
    """A text that must fit according to the bound fits, and it is the smaller of both forms."""
    size = largest_size(len(case.unfinished), case.high - case.base)
    capacity = next(number for number in range(size, ENOUGH) if varint_bytes_in(number) >= size)
    assert decode(encode(case, capacity), case.base) == case


@given(st.integers(0, 1000), st.integers(1, 2**40), st.integers(0, 1000), st.integers(0, 2**40))
def test_largest_size_never_grows_when_offsets_finish(
    unfinished: int, span: int, fewer_unfinished: int, smaller_span: int
) -> None:
    """A started record keeps its space: neither fewer unfinished offsets nor a smaller span need more bytes."""
    later = largest_size(min(unfinished, fewer_unfinished), min(span, smaller_span))
    assert later <= largest_size(unfinished, span)


@pytest.mark.parametrize(
    ("high", "unfinished", "length"),
    [
        pytest.param(1_000_000, (0,), 20, id="a million behind one record"),
        pytest.param(20_000, tuple(range(0, 20_000, 2)), 3350, id="each second one of 20,000"),
        pytest.param(100_000, tuple(range(0, 100_000, 100)), 1350, id="1,000 unfinished ones in 100,000"),
        pytest.param(10_000_000, tuple(range(0, 10_000_000, 10_000)), 2683, id="1,000 unfinished ones in 10 million"),
    ],
)
def test_encode_is_compact(high: int, unfinished: tuple[int, ...], length: int) -> None:
    """Typical states fit into 4,095 characters, the default limit of brokers without the terminating zero."""
    assert len(encode(FinishedOffsets(base=0, high=high, unfinished=unfinished), 4095)) == length


def test_encode_returns_empty_text_if_nothing_is_finished_beyond_the_base() -> None:
    """A commit without finished offsets beyond it has no metadata."""
    assert encode(FinishedOffsets(base=5, high=0, unfinished=()), ENOUGH) == ""
    assert encode(FinishedOffsets(base=5, high=6, unfinished=(5,)), ENOUGH) == ""
    assert encode(FinishedOffsets(base=5, high=7, unfinished=(5, 6)), ENOUGH) == ""


def test_encoded_text_stays_the_same_between_releases() -> None:
    """Version 1 of the text is fixed: members of other releases of this package read it."""
    few = finished_offsets(100, set(range(101, 400)) - {150}, leader_epoch=7)
    half = finished_offsets(100, {offset for offset in range(101, 120) if offset % 2})
    assert (encode(few, ENOUGH), encode(half, ENOUGH)) == (
        "cm1:AAAAAAcx-AH-KHfA",
        "cm1:Af____-qqgoj394p",
    )


# ---- other texts -----------------------------------------------------------------------------------------------------


@given(st.one_of(st.text(), st.text().map("cm1:".__add__), st.binary().map(lambda body: framed(body, 5))))
def test_decode_never_raises(metadata: str) -> None:
    """No text raises an error, not even with the right prefix and the right checksum."""
    found = decode(metadata, 5)
    assert found is None or (found.base == 5 and found.count > 0)


@pytest.mark.parametrize("metadata", [None, "", "lease 7", "cm1:", "cm2:" + "A" * 20, "cm1:=", "cm1:é", "cm1:AAA\0"])
def test_decode_ignores_foreign_metadata(metadata: str | None) -> None:
    """Metadata of other programs and later versions contains no finished offsets."""
    assert decode(metadata, 5) is None


@given(cases(), st.data())
def test_decode_ignores_damaged_text(case: FinishedOffsets, data: st.DataObject) -> None:
    """A text with one wrong character or without its end is ignored: it could hide records that no owner processed."""
    text = encode(case, ENOUGH)
    place = data.draw(st.integers(0, len(text) - 1))
    wrong = text[:place] + data.draw(st.characters()) + text[place + 1 :]
    assert decode(text[:place], case.base) is None
    assert decode(wrong, case.base) in (None, case)


def test_decode_ignores_metadata_of_another_offset() -> None:
    """Tools that translate or reset offsets may keep the metadata; it must not hide records at the new offset."""
    text = encode(finished_offsets(100, {102, 103}), ENOUGH)
    assert decode(text, 101) is None
    assert offsets_of(decode(text, 100)) == {102, 103}


def test_decode_ignores_zero_after_the_text() -> None:
    """Librdkafka appends a zero to the metadata that it commits."""
    text = encode(finished_offsets(100, {102, 103}), ENOUGH)
    assert decode(f"{text}\0", 100) == decode(text, 100)
    assert decode(f"{text}\0\0", 100) is None


@pytest.mark.parametrize(
    "body",
    [(2, 0, 0, 0, 0, 1), (0, 0, 0, 0, 0, 0x80), (0, 0, 0, 0, 0, 3, 0x80), (1, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0, 7)],
    ids=["form", "no varint", "varint without end", "bitmap of nothing", "bitmap with the committed offset"],
)
def test_decode_ignores_content_that_version_1_does_not_define(body: tuple[int, ...]) -> None:
    """Another form, varints without an end, and a bitmap with a finished base list no offsets."""
    assert decode(framed(bytes(body), 5), 5) is None
