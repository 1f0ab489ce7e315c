"""Reading bytes that no broker sends, and writing values that no caller may pass."""

from uuid import UUID

import pytest

from consumer_membership.errors import InternalError
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.schema import Table, layout_of
from consumer_membership.wire.serial import MalformedError, Struct, reader, writer
from consumer_membership.wire.versions import Api

HEARTBEAT = layout_of(LAYOUTS[Api.CONSUMER_GROUP_HEARTBEAT][1], 1)


def heartbeat(code: int = 0, tags: bytes = b"\x00") -> bytes:
    """Build a heartbeat response: no throttle, the code, null texts, epoch 5, 5 s, null assignment, tags."""
    return (
        bytes(4) + code.to_bytes(2, "big", signed=True) + b"\x00\x00" + b"\0\0\0\5" + b"\0\0\x13\x88" + b"\xff" + tags
    )


def test_reader_returns_unknown_error_code_as_number() -> None:
    """A newer broker's code must not end the connection."""
    message, _ = reader(HEARTBEAT)(heartbeat(code=199), 0)
    assert message.error_code == 199


def test_reader_skips_unknown_tagged_fields() -> None:
    """KIP-482: A newer broker may add tagged fields, and an older client skips them."""
    message, end = reader(HEARTBEAT)(heartbeat(tags=b"\x02\x09\x02ab\x0a\x00"), 0)
    assert (message.member_epoch, end) == (5, len(heartbeat(tags=b"\x02\x09\x02ab\x0a\x00")))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(heartbeat()[:-2] + b"\x01" + b"\xff\xff\xff\xff\x0f", id="array of four thousand million topics"),
        pytest.param(heartbeat()[:-2] + b"\x01" + b"\x06" + bytes(20), id="array of more topics than the bytes have"),
        pytest.param(heartbeat(tags=b"\x01\x09\xff\xff\xff\xff\x0f"), id="tagged field of four gigabytes"),
        pytest.param(heartbeat()[:-2] + b"\x01" + b"\xff\xff\xff\xff\xff\x0f", id="length of six bytes"),
        pytest.param(bytes(6) + b"\xff\x01abc", id="text longer than the frame"),
        pytest.param(bytes(6) + b"\x03\xff\xfe\x00", id="text that is not UTF-8"),
    ],
)
def test_reader_rejects_impossible_lengths_before_allocating(frame: bytes) -> None:
    """A length is limited by the available bytes and by the minimum size of its elements."""
    with pytest.raises(MalformedError, match=r"^ConsumerGroupHeartbeatResponse v1: "):
        reader(HEARTBEAT)(frame, 0)


TAGGED = Table(
    "Tagged",
    "0+",
    """
    Place  int16    0+
    Epoch  int64    0+  tag=1  default=-1
    Names  []string 1+  tag=0
    """,
)


def test_writer_omits_tagged_fields_with_default_value() -> None:
    """KIP-482: Tags are ascending, and a missing tagged field has its default."""
    layout, out = layout_of(TAGGED, 1), bytearray()
    writer(layout)(out, {"place": 3, "epoch": 7, "names": ("a",)})
    assert bytes(out) == b"\0\3" + b"\2" + b"\0\3\2\2a" + b"\1\x08" + bytes(7) + b"\7"
    assert reader(layout)(bytes(out), 0) == (Struct(place=3, epoch=7, names=("a",)), len(out))
    out.clear()
    writer(layout)(out, {"place": 3, "epoch": -1})
    assert bytes(out) == b"\0\3\0"
    assert reader(layout)(bytes(out), 0)[0] == Struct(place=3, epoch=-1, names=())


def test_reader_rejects_tagged_field_of_wrong_size() -> None:
    """Otherwise, the following fields would be read at the wrong offset."""
    with pytest.raises(MalformedError, match="the tagged field epoch of 8 bytes has the size 9"):
        reader(layout_of(TAGGED, 1))(b"\0\3" + b"\1" + b"\1\x09" + bytes(9), 0)


def test_writer_ignores_values_of_other_versions() -> None:
    """A call contains the fields of all versions."""
    out = bytearray()
    writer(layout_of(TAGGED, 0))(out, {"place": 3, "names": ("a",)})
    assert bytes(out) == b"\0\3\0"


@pytest.mark.parametrize(
    ("values", "words"),
    [({}, "KeyError: 'place'"), ({"place": None}, "struct.error|error:"), ({"place": 2**15}, "error:")],
)
def test_writer_raises_internal_error_for_invalid_value(values: dict[str, object], words: str) -> None:
    """The error names the message and the cause."""
    with pytest.raises(InternalError, match=rf"Tagged v1 cannot be written: .*({words})"):
        writer(layout_of(TAGGED, 1))(bytearray(), values)


IDS = Table(
    "Ids",
    "0+",
    """
    Ids      []uuid  0+
    Numbers  []int32 0+
    """,
)


def test_reader_reuses_known_topic_ids() -> None:
    """Heartbeats repeat the same topics; the reader caches a few thousand ids at most."""
    read = reader(layout_of(IDS, 0))

    def some(first: int, count: int) -> tuple[UUID, ...]:
        out = bytearray()
        writer(layout_of(IDS, 0))(out, {"ids": tuple(UUID(int=first + n) for n in range(count)), "numbers": ()})
        found: tuple[UUID, ...] = read(bytes(out), 0)[0].ids
        return found

    first, again = some(1, 10), some(1, 10)
    assert all(one is other for one, other in zip(first, again, strict=True))
    for start in range(100, 20_000, 1_000):
        assert some(start, 1_000) == tuple(UUID(int=start + n) for n in range(1_000))
    later = some(1, 10)
    assert first == later
    assert not any(one is other for one, other in zip(first, later, strict=True))


@pytest.mark.parametrize("length", range(20))
def test_number_arrays_of_any_length_round_trip(length: int) -> None:
    """Short arrays of numbers use a struct for their length; longer ones do not."""
    out, numbers = bytearray(), tuple(range(-1, length - 1))
    writer(layout_of(IDS, 0))(out, {"ids": (), "numbers": numbers})
    assert bytes(out[2:]) == b"".join(n.to_bytes(4, "big", signed=True) for n in numbers) + b"\0"
    assert reader(layout_of(IDS, 0))(bytes(out), 0) == (Struct(ids=(), numbers=numbers), len(out))
