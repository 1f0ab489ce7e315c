"""What is read of bytes that no broker sends, and what is written of values that no caller may give."""

from uuid import UUID

import pytest

from consumer_membership.errors import InternalError
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.schema import Table, layout_of
from consumer_membership.wire.serial import MalformedError, Struct, reader, writer
from consumer_membership.wire.versions import Api

HEARTBEAT = layout_of(LAYOUTS[Api.CONSUMER_GROUP_HEARTBEAT][1], 1)


def heartbeat(code: int = 0, tags: bytes = b"\x00") -> bytes:
    """A heartbeat answer: no throttle, the code, null text and member id, epoch 5, 5 s, null assignment, tags."""
    return (
        bytes(4) + code.to_bytes(2, "big", signed=True) + b"\x00\x00" + b"\0\0\0\5" + b"\0\0\x13\x88" + b"\xff" + tags
    )


def test_unknown_error_code_is_its_number() -> None:
    """A code of a newer broker is no reason to give up the connection."""
    message, _ = reader(HEARTBEAT)(heartbeat(code=199), 0)
    assert message.error_code == 199


def test_unknown_tagged_fields_are_skipped() -> None:
    """KIP-482: a newer broker may add tagged fields, and an older client skips them."""
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
def test_impossible_lengths_are_refused_before_anything_is_allocated(frame: bytes) -> None:
    """A length is bounded by the bytes that are there, and by the least that its elements take."""
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


def test_tagged_field_is_written_where_it_says_something() -> None:
    """KIP-482: ascending tags, none that has its default; absent ones are read as that."""
    layout, out = layout_of(TAGGED, 1), bytearray()
    writer(layout)(out, {"place": 3, "epoch": 7, "names": ("a",)})
    assert bytes(out) == b"\0\3" + b"\2" + b"\0\3\2\2a" + b"\1\x08" + bytes(7) + b"\7"
    assert reader(layout)(bytes(out), 0) == (Struct(place=3, epoch=7, names=("a",)), len(out))
    out.clear()
    writer(layout)(out, {"place": 3, "epoch": -1})
    assert bytes(out) == b"\0\3\0"
    assert reader(layout)(bytes(out), 0)[0] == Struct(place=3, epoch=-1, names=())


def test_tagged_field_of_another_size_is_refused() -> None:
    """What is behind it would be read at the wrong place."""
    with pytest.raises(MalformedError, match="the tagged field epoch of 8 bytes says that it has 9"):
        reader(layout_of(TAGGED, 1))(b"\0\3" + b"\1" + b"\1\x09" + bytes(9), 0)


def test_version_without_a_field_passes_over_its_value() -> None:
    """A call names the fields of all versions at once."""
    out = bytearray()
    writer(layout_of(TAGGED, 0))(out, {"place": 3, "names": ("a",)})
    assert bytes(out) == b"\0\3\0"


@pytest.mark.parametrize(
    ("values", "words"),
    [({}, "KeyError: 'place'"), ({"place": None}, "struct.error|error:"), ({"place": 2**15}, "error:")],
)
def test_value_that_cannot_be_written_is_our_own_mistake(values: dict[str, object], words: str) -> None:
    """The text names the message and the cause."""
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


def test_ids_that_came_before_are_not_made_again() -> None:
    """The same topics come with each heartbeat; a reader keeps some thousands, however many come."""
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
def test_arrays_of_any_length_come_back(length: int) -> None:
    """Short arrays of numbers are read and written by what was made for their length, longer ones are not."""
    out, numbers = bytearray(), tuple(range(-1, length - 1))
    writer(layout_of(IDS, 0))(out, {"ids": (), "numbers": numbers})
    assert bytes(out[2:]) == b"".join(n.to_bytes(4, "big", signed=True) for n in numbers) + b"\0"
    assert reader(layout_of(IDS, 0))(bytes(out), 0) == (Struct(ids=(), numbers=numbers), len(out))
