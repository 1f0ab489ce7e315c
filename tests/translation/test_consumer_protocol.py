"""Subscription and assignment blobs: what other clients write, what we write for them, and what is neither."""

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
#: The same client's serializeAssignment, without its version: a.x-2, a.x-12, b-0 and user data 01 02 ff; and nothing.
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
    """What a version can say of this subscription."""
    return MemberSubscription(
        topics=whole.topics,
        user_data=whole.user_data,
        owned=whole.owned if version >= 1 else frozenset(),
        generation=whole.generation if version >= 2 else NO_GENERATION,
        rack_id=whole.rack_id if version >= 3 else None,
        version=version,
    )


# ---- Java's ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_subscriptions_are_written_byte_by_byte_as_java_does(version: int) -> None:
    """Sorted topics, owned partitions sorted and by topic; a field from the version that brought it on."""
    assert encode_subscription(FULL, version).hex() == JAVA_FULL[version]
    assert encode_subscription(MemberSubscription(topics=frozenset("t")), version).hex() == JAVA_BARE[version]
    assert encode_subscription(MemberSubscription(topics=frozenset()), version).hex() == JAVA_NONE[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_javas_subscriptions_are_read_in_every_version(version: int) -> None:
    """What a version does not have is absent: nothing owned, no generation, no rack."""
    assert decode_subscription(bytes.fromhex(JAVA_FULL[version])) == known_to(version, FULL)
    bare = decode_subscription(bytes.fromhex(JAVA_BARE[version]))
    assert bare == MemberSubscription(topics=frozenset("t"), version=version)
    nothing = decode_subscription(bytes.fromhex(JAVA_NONE[version]))
    assert nothing == MemberSubscription(topics=frozenset(), version=version)


@pytest.mark.parametrize("version", VERSIONS)
def test_assignments_are_written_and_read_as_java_does(version: int) -> None:
    """All versions have one layout."""
    front = version.to_bytes(2, "big").hex()
    assert encode_assignment({B0, A12, A2}, b"\x01\x02\xff", version).hex() == front + JAVA_ASSIGNED
    assert encode_assignment((), version=version).hex() == front + JAVA_NOTHING
    given_by_java = decode_assignment(bytes.fromhex(front + JAVA_ASSIGNED))
    assert given_by_java == MemberAssignment(partitions=frozenset({B0, A12, A2}), user_data=b"\x01\x02\xff")
    assert decode_assignment(bytes.fromhex(front + JAVA_NOTHING)) == MemberAssignment()


def test_version_3_is_written_unless_a_member_needs_an_older_one() -> None:
    """The subscription's own version counts; one that is not known yet is written as the newest."""
    assert encode_subscription(FULL).hex() == JAVA_FULL[3]
    assert encode_subscription(known_to(1, FULL)).hex() == JAVA_FULL[1]
    assert encode_subscription(FULL, 9).hex() == JAVA_FULL[3]
    assert encode_assignment({B0}) == encode_assignment({B0}, version=9) == encode_assignment({B0}, None, 3)


# ---- others' --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_subscriptions_of_kafka_python_are_read(version: int) -> None:
    """It writes as it is told, 0 to 3."""
    told = MemberSubscription(
        topics=frozenset("tu"), user_data=b"\x01", owned=frozenset({T0, T2}), generation=4, rack_id="r"
    )
    assert decode_subscription(bytes.fromhex(KAFKA_PYTHON[version])) == known_to(version, told)


def test_blobs_of_older_python_clients_are_read() -> None:
    """Version 0, with user data that is empty instead of null."""
    subscribed = decode_subscription(bytes.fromhex(OLD_PYTHON_SUBSCRIPTION))
    assert subscribed == MemberSubscription(topics=frozenset("tu"), user_data=b"", version=0)
    assigned = decode_assignment(bytes.fromhex(OLD_PYTHON_ASSIGNMENT))
    assert assigned == MemberAssignment(partitions=frozenset({T0, T2, U1}), user_data=b"")


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("written", VERSIONS)
def test_subscription_that_calls_itself_newer_than_it_is_counts_as_what_it_is(version: int, written: int) -> None:
    """Sarama's reader knows of clients that write version 0 and call it 1; Java's ends with a SchemaException."""
    blob = version.to_bytes(2, "big") + bytes.fromhex(JAVA_FULL[written])[2:]
    read = decode_subscription(blob)
    said = known_to(min(version, written), FULL)
    assert (read.owned, read.generation, read.rack_id) == (said.owned, said.generation, said.rack_id)
    assert (read.topics, read.version) == (FULL.topics, version)


@pytest.mark.parametrize("version", [4, 9, 0x7FFF])
def test_newer_versions_are_read_as_the_newest_known(version: int) -> None:
    """Each version only appends; what is behind is not read. The version stays the writer's."""
    blob = version.to_bytes(2, "big") + bytes.fromhex(JAVA_FULL[3])[2:] + b"\x01\x02news"
    read = decode_subscription(blob)
    assert (read.owned, read.generation, read.rack_id, read.version) == (FULL.owned, 7, "rack-1", version)
    assigned = decode_assignment(version.to_bytes(2, "big") + bytes.fromhex(JAVA_ASSIGNED) + b"news")
    assert assigned.partitions == {A2, A12, B0}


def test_instance_id_is_put_beside_what_the_bytes_say() -> None:
    """It comes in the JoinGroup answer."""
    assert decode_subscription(bytes.fromhex(JAVA_BARE[3]), "i-1").instance_id == "i-1"


# ---- neither --------------------------------------------------------------------------------------------------------

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
def test_bytes_that_are_no_subscription_are_refused(case: str) -> None:
    """The declared exception, with words that say what is wrong."""
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
def test_bytes_that_are_no_assignment_are_refused(blob: str, words: str) -> None:
    """As with subscriptions."""
    with pytest.raises(MalformedError, match=words):
        decode_assignment(bytes.fromhex(blob))


def test_assignment_of_no_bytes_is_empty_with_a_note() -> None:
    """A leader that left the member out; for an operator it is a member that was assigned nothing yet."""
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
def test_what_is_written_is_read_as_far_as_its_version_can_say_it(told: MemberSubscription) -> None:
    """And equal subscriptions give equal bytes: the broker takes other ones for a change."""
    blob = encode_subscription(told)
    read = decode_subscription(blob)
    assert read == known_to(told.version, told)
    assert encode_subscription(read) == blob


@in_any_time
@given(st.frozensets(partitions, max_size=20), st.none() | st.binary(max_size=40), st.sampled_from(VERSIONS))
def test_assignment_that_is_written_is_read(
    given_to: frozenset[TopicPartition], user_data: bytes | None, version: int
) -> None:
    """Whatever is assigned."""
    read = decode_assignment(encode_assignment(given_to, user_data, version))
    assert read == MemberAssignment(partitions=given_to, user_data=user_data)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A blob that was cut off, lengthened, or has a few bytes changed."""
    blob = bytearray(encode_subscription(draw(subscriptions)))
    for _ in range(draw(st.integers(0, 4))):
        blob[draw(st.integers(0, len(blob) - 1))] = draw(st.integers(0, 255))
    return bytes(blob[: draw(st.integers(0, len(blob)))]) + draw(st.binary(max_size=6))


@in_any_time
@given(st.binary(max_size=120) | damaged())
@example(b"\x00\x03" + b"\x7f\xff\xff\xff" * 8)
@example(b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff\x7f\xff\xff\xff")
def test_any_bytes_are_read_or_refused_as_declared(blob: bytes) -> None:
    """No other exception, and nothing larger than the bytes themselves could hold."""
    with suppress(MalformedError):
        read = decode_subscription(blob)
        assert 2 * len(read.topics) + 4 * len(read.owned) + len(read.user_data or b"") <= len(blob)
    with suppress(MalformedError):
        assert 4 * len(decode_assignment(blob).partitions) <= len(blob)
