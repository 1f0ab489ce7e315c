"""Subscription and assignment blobs: those of other clients, those of this package, and malformed ones."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer_membership.assignors.assignor import NO_GENERATION, MemberSubscription
from consumer_membership.translation.consumer_protocol import (
    MemberAssignment,
    assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from consumer_membership.types import TopicPartition
from consumer_membership.wire.codec import MalformedError

VERSIONS = (0, 1, 2, 3)
A2, A12, B0, B1 = (TopicPartition(*pair) for pair in (("a.x", 2), ("a.x", 12), ("b", 0), ("b", 1)))
T0, T2, U1 = TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)

#: Written by kafka-clients 4.3.1, ConsumerProtocol.serializeSubscription(subscription, version): topics b, a.x and B,
#: user data 01 02 ff, owned b-1, a.x-12, b-0 and a.x-2 in this order, generation 7, rack "rack-1".
JAVA_FULL = {
    0: "0000000000030001420003612e78000162000000030102ff",
    1: "0001000000030001420003612e78000162000000030102ff"
    "000000020003612e7800000002000000020000000c000162000000020000000000000001",
    2: "0002000000030001420003612e78000162000000030102ff"
    "000000020003612e7800000002000000020000000c00016200000002000000000000000100000007",
    3: "0003000000030001420003612e78000162000000030102ff"
    "000000020003612e7800000002000000020000000c000162000000020000000000000001"
    "0000000700067261636b2d31",
}
#: The same client's `new Subscription(List.of("t"))`.
JAVA_BARE = {
    0: "000000000001000174ffffffff",
    1: "000100000001000174ffffffff00000000",
    2: "000200000001000174ffffffff00000000ffffffff",
    3: "000300000001000174ffffffff00000000ffffffffffff",
}
#: The same client's `new Subscription(List.of())`.
JAVA_NONE = {
    0: "000000000000ffffffff",
    1: "000100000000ffffffff00000000",
    2: "000200000000ffffffff00000000ffffffff",
    3: "000300000000ffffffff00000000ffffffffffff",
}
#: The same client's serializeAssignment, without its version: a.x-2, a.x-12, b-0, user data 01 02 ff; and an empty one.
JAVA_ASSIGNED = "000000020003612e7800000002000000020000000c0001620000000100000000000000030102ff"
JAVA_NOTHING = "00000000ffffffff"

#: Written by kafka-python 3.0.12's ConsumerProtocolSubscription: topics t and u, user data 01, owned t-0 and t-2,
#: generation 4, rack "r".
KAFKA_PYTHON = {
    0: "0000000000020001740001750000000101",
    1: "000100000002000174000175000000010100000001000174000000020000000000000002",
    2: "00020000000200017400017500000001010000000100017400000002000000000000000200000004",
    3: "00030000000200017400017500000001010000000100017400000002000000000000000200000004000172",
}
#: Written by the ConsumerProtocolMemberMetadata_v0 and ConsumerProtocolMemberAssignment_v0 of kafka-python before 3,
#: and of aiokafka: topics t and u; t-0, t-2 and u-1.
OLD_PYTHON_SUBSCRIPTION = "00000000000200017400017500000000"
OLD_PYTHON_ASSIGNMENT = "000000000002000174000000020000000000000002000175000000010000000100000000"

FULL = MemberSubscription(
    topics=frozenset({"b", "a.x", "B"}),
    user_data=b"\x01\x02\xff",
    owned=frozenset({A2, A12, B0, B1}),
    generation=7,
    rack_id="rack-1",
)


def known_to(version: int, whole: MemberSubscription) -> MemberSubscription:
    """Return what this version can express of the subscription."""
    return MemberSubscription(
        topics=whole.topics,
        user_data=whole.user_data,
        owned=whole.owned if version >= 1 else frozenset(),
        generation=whole.generation if version >= 2 else NO_GENERATION,
        rack_id=whole.rack_id if version >= 3 else None,
        version=version,
    )


# ---- blobs of the Java client ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_encode_subscription_equals_java_bytes(version: int) -> None:
    """Topics and owned partitions are sorted; each field appears from the version that introduced it."""
    assert encode_subscription(FULL, version).hex() == JAVA_FULL[version]
    assert encode_subscription(MemberSubscription(topics=frozenset("t")), version).hex() == JAVA_BARE[version]
    assert encode_subscription(MemberSubscription(topics=frozenset()), version).hex() == JAVA_NONE[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_decode_subscription_reads_java_bytes_of_each_version(version: int) -> None:
    """Fields that a version lacks are absent: no owned partitions, no generation, no rack."""
    assert decode_subscription(bytes.fromhex(JAVA_FULL[version])) == known_to(version, FULL)
    bare = decode_subscription(bytes.fromhex(JAVA_BARE[version]))
    assert bare == MemberSubscription(topics=frozenset("t"), version=version)
    nothing = decode_subscription(bytes.fromhex(JAVA_NONE[version]))
    assert nothing == MemberSubscription(topics=frozenset(), version=version)


@pytest.mark.parametrize("version", VERSIONS)
def test_assignment_codec_equals_java_bytes(version: int) -> None:
    """All versions have the same layout."""
    front = version.to_bytes(2, "big").hex()
    assert encode_assignment({B0, A12, A2}, b"\x01\x02\xff", version).hex() == front + JAVA_ASSIGNED
    assert encode_assignment((), version=version).hex() == front + JAVA_NOTHING
    given_by_java = decode_assignment(bytes.fromhex(front + JAVA_ASSIGNED))
    assert given_by_java == MemberAssignment(partitions=frozenset({B0, A12, A2}), user_data=b"\x01\x02\xff")
    assert decode_assignment(bytes.fromhex(front + JAVA_NOTHING)) == MemberAssignment()


def test_encode_subscription_defaults_to_version_3_or_own_version() -> None:
    """The subscription's own version applies; an unknown newer version is written as version 3."""
    assert encode_subscription(FULL).hex() == JAVA_FULL[3]
    assert encode_subscription(known_to(1, FULL)).hex() == JAVA_FULL[1]
    assert encode_subscription(FULL, 9).hex() == JAVA_FULL[3]
    assert encode_assignment({B0}) == encode_assignment({B0}, version=9) == encode_assignment({B0}, None, 3)


# ---- blobs of other clients -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_decode_subscription_reads_kafka_python_bytes(version: int) -> None:
    """Kafka-python writes versions 0 to 3, as configured."""
    sent = MemberSubscription(
        topics=frozenset("tu"), user_data=b"\x01", owned=frozenset({T0, T2}), generation=4, rack_id="r"
    )
    assert decode_subscription(bytes.fromhex(KAFKA_PYTHON[version])) == known_to(version, sent)


def test_decode_reads_bytes_of_older_python_clients() -> None:
    """Older Python clients write version 0 with empty user data instead of null."""
    subscribed = decode_subscription(bytes.fromhex(OLD_PYTHON_SUBSCRIPTION))
    assert subscribed == MemberSubscription(topics=frozenset("tu"), user_data=b"", version=0)
    assigned = decode_assignment(bytes.fromhex(OLD_PYTHON_ASSIGNMENT))
    assert assigned == MemberAssignment(partitions=frozenset({T0, T2, U1}), user_data=b"")


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("written", VERSIONS)
def test_decode_subscription_tolerates_version_newer_than_content(version: int, written: int) -> None:
    """Some clients write version 0 and label it 1; Sarama accepts this, and Java raises SchemaException."""
    blob = version.to_bytes(2, "big") + bytes.fromhex(JAVA_FULL[written])[2:]
    read = decode_subscription(blob)
    expected = known_to(min(version, written), FULL)
    assert (read.owned, read.generation, read.rack_id) == (expected.owned, expected.generation, expected.rack_id)
    assert (read.topics, read.version) == (FULL.topics, version)


@pytest.mark.parametrize("version", [4, 9, 0x7FFF])
def test_decode_reads_newer_version_as_newest_known(version: int) -> None:
    """Each version only appends fields, so trailing bytes are ignored. The version stays the writer's."""
    blob = version.to_bytes(2, "big") + bytes.fromhex(JAVA_FULL[3])[2:] + b"\x01\x02news"
    read = decode_subscription(blob)
    assert (read.owned, read.generation, read.rack_id, read.version) == (FULL.owned, 7, "rack-1", version)
    assigned = decode_assignment(version.to_bytes(2, "big") + bytes.fromhex(JAVA_ASSIGNED) + b"news")
    assert assigned.partitions == {A2, A12, B0}


def test_decode_subscription_adds_instance_id() -> None:
    """The instance id comes from the JoinGroup response, not from the bytes."""
    assert decode_subscription(bytes.fromhex(JAVA_BARE[3]), "i-1").instance_id == "i-1"


# ---- malformed blobs, and round trips -------------------------------------------------------------------------------

BROKEN = {
    "nothing": ("", "0 bytes"),
    "half a version": ("00", "1 bytes"),
    "a negative version": ("ffff00000000ffffffff", "the version is -1"),
    "a version alone": ("0003", "ConsumerProtocolSubscription v3"),
    "more topics than bytes": ("00037fffffff", "a length of 2147483647"),
    "a negative number of topics": ("0003fffffffe", "a length of -2"),
    "a topic that is no text": ("000000000001" + "0001ff" + "ffffffff", "utf-8"),
    "a null topic": ("000000000001" + "ffff" + "ffffffff", "null"),
    "an owned partition below 0": ("0001" + "00000000ffffffff" + "00000001000174" + "00000001ffffffff", r"t \[-1\]"),
    "another protocol's": (b'{"worker":"http://w:8083"}'.hex(), "length"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_decode_subscription_of_malformed_bytes_raises(case: str) -> None:
    """Malformed bytes raise MalformedError with a message that states the problem."""
    blob, words = BROKEN[case]
    with pytest.raises(MalformedError, match=words):
        decode_subscription(bytes.fromhex(blob))


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        ("00", "1 bytes"),
        ("8000" + JAVA_NOTHING, "the version is -32768"),
        ("0003", "ConsumerProtocolAssignment"),
        ("00007fffffff", "a length of 2147483647"),
        ("0000" + "00000001000174" + "7fffffff", "2147483647"),
        ("0000" + "00000001000174" + "00000001fffffffe" + "ffffffff", r"t \[-2\]"),
    ],
)
def test_decode_assignment_of_malformed_bytes_raises(blob: str, words: str) -> None:
    """Malformed bytes raise MalformedError with a message that states the problem."""
    with pytest.raises(MalformedError, match=words):
        decode_assignment(bytes.fromhex(blob))


def test_decode_assignment_of_empty_bytes_is_empty_with_note() -> None:
    """The leader left the member out; an operator sees a member without an assignment."""
    left_out = decode_assignment(b"")
    assert (left_out.partitions, left_out.note != "") == (frozenset(), True)
    assert assignment(b"") == (frozenset(), "")


#: The first example imports schemas, and a loaded machine takes its time.
in_any_time = settings(deadline=None)

names = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=20)
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))
subscriptions = st.builds(
    MemberSubscription,
    topics=st.frozensets(names, max_size=8),
    user_data=st.none() | st.binary(max_size=40),
    owned=st.frozensets(partitions, max_size=12),
    generation=st.integers(-1, 2**31 - 1),
    rack_id=st.none() | st.text(max_size=12),
    version=st.sampled_from(VERSIONS),
)


@in_any_time
@given(subscriptions)
def test_subscription_round_trip_keeps_fields_of_its_version(sent: MemberSubscription) -> None:
    """Equal subscriptions produce equal bytes, because the broker treats other bytes as a change."""
    blob = encode_subscription(sent)
    read = decode_subscription(blob)
    assert read == known_to(sent.version, sent)
    assert encode_subscription(read) == blob


@in_any_time
@given(st.frozensets(partitions, max_size=20), st.none() | st.binary(max_size=40), st.sampled_from(VERSIONS))
def test_assignment_round_trip_keeps_partitions_and_user_data(
    given_to: frozenset[TopicPartition], user_data: bytes | None, version: int
) -> None:
    """Decoding an encoded assignment returns the same assignment."""
    read = decode_assignment(encode_assignment(given_to, user_data, version))
    assert read == MemberAssignment(partitions=given_to, user_data=user_data)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Build a blob that is truncated, extended, or has a few bytes changed."""
    blob = bytearray(encode_subscription(draw(subscriptions)))
    for _ in range(draw(st.integers(0, 4))):
        blob[draw(st.integers(0, len(blob) - 1))] = draw(st.integers(0, 255))
    return bytes(blob[: draw(st.integers(0, len(blob)))]) + draw(st.binary(max_size=6))


@in_any_time
@given(st.binary(max_size=120) | damaged())
@example(b"\x00\x03" + b"\x7f\xff\xff\xff" * 8)
@example(b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff\x7f\xff\xff\xff")
def test_decode_of_any_bytes_returns_or_raises_malformed_error(blob: bytes) -> None:
    """No other exception is raised, and the result is never larger than the bytes allow."""
    with suppress(MalformedError):
        read = decode_subscription(blob)
        assert 2 * len(read.topics) + 4 * len(read.owned) + len(read.user_data or b"") <= len(blob)
    with suppress(MalformedError):
        assert 4 * len(decode_assignment(blob).partitions) <= len(blob)
