"""Group descriptions of both protocols as one type; an error in a response is never an empty group."""

from __future__ import annotations

from random import Random

import pytest

from consumer_membership.translation import consumer_protocol
from consumer_membership.translation.descriptions import (
    GroupDescription,
    MemberDescription,
    classic_group_description,
    consumer_group_description,
)
from consumer_membership.translation.requests import describe_classic_group, describe_consumer_group
from consumer_membership.types import BrokerError, GroupProtocol, TopicPartition
from consumer_membership.wire.codec import Call, decode, encode
from consumer_membership.wire.versions import Api
from tests.support.scripted_broker import SIZE_BYTES, frame
from tests.wire.frames import VERSIONS
from tests.wire.groups import blob, classic_group, classic_member, consumer_group, consumer_member

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

# ---- the consumer protocol -------------------------------------------------------------------------------------------


def test_consumer_group_description_has_all_fields() -> None:
    """KIP-848: A description has epochs, assignor, and each member's current and target assignment."""
    static = consumer_member(
        "b",
        instance_id="i",
        rack_id="r",
        member_epoch=-2,
        subscribed_topic_names=("t",),
        assignment=(1, 0),
        target_assignment=(1,),
        member_type=1,
    )
    dynamic = consumer_member("a", subscribed_topic_regex="t.*", member_type=0)
    assert consumer_group_description(consumer_group(static, dynamic), "g") == GroupDescription(
        group_id="g",
        protocol=GroupProtocol.CONSUMER,
        protocol_type="consumer",
        state="Stable",
        epoch=6,
        assignment_epoch=5,
        assignor="uniform",
        members=(
            MemberDescription(
                member_id="a",
                instance_id=None,
                rack_id=None,
                client_id="c",
                host="10.0.0.1",
                epoch=5,
                protocol=GroupProtocol.CLASSIC,
                topics=frozenset(),
                pattern="t.*",
                assignment=frozenset(),
                target=frozenset(),
            ),
            MemberDescription(
                member_id="b",
                instance_id="i",
                rack_id="r",
                client_id="c",
                host="10.0.0.1",
                epoch=-2,
                protocol=GroupProtocol.CONSUMER,
                topics=frozenset({"t"}),
                pattern=None,
                assignment=frozenset({T0, T1}),
                target=frozenset({T1}),
            ),
        ),
    )


@pytest.mark.parametrize(("epoch", "is_away"), [(-2, True), (0, False), (5, False)])
def test_static_member_with_epoch_minus_two_is_away(epoch: int, is_away: bool) -> None:  # noqa: FBT001
    """Rules 3.3: Epoch -2 is a static member that left temporarily and keeps its assignment."""
    found = consumer_group_description(consumer_group(consumer_member("a", member_epoch=epoch)), "g")
    assert isinstance(found, GroupDescription)
    assert found.members[0].is_away is is_away


def test_description_without_member_type_uses_consumer_protocol() -> None:
    """Version 0 (Kafka 3.7 to 3.9) does not report which protocol a member uses."""
    found = consumer_group_description(consumer_group(consumer_member("a", version=0), version=0), "g")
    assert isinstance(found, GroupDescription)
    assert found.members[0].protocol is GroupProtocol.CONSUMER


def test_rejected_description_keeps_code_and_message() -> None:
    """ConsumerGroupDescribe does not find a classic group, and the broker's message states why."""
    answer = consumer_group(code=69, message="Group g is not a consumer group.")
    assert consumer_group_description(answer, "g") == BrokerError(
        code=69, name="GROUP_ID_NOT_FOUND", message="Group g is not a consumer group."
    )
    assert consumer_group_description(consumer_group(code=30), "g") == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )


def test_description_of_other_group_returns_error() -> None:
    """A group that the response leaves out is not a group without members."""
    left_out = BrokerError(
        code=-1, name="UNKNOWN_SERVER_ERROR", message="the broker's response has no entry for group g"
    )
    assert consumer_group_description(consumer_group(group="other"), "g") == left_out
    assert classic_group_description(classic_group(group="other"), "g") == left_out


# ---- the classic protocol --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 6])
def test_classic_group_description_decodes_assignments(version: int) -> None:
    """The assignment comes from the leader's bytes; epochs and targets are absent."""
    member = classic_member(
        "a",
        version=version,
        group_instance_id="i",
        member_metadata=b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0",
        member_assignment=blob({"t": (1, 0)}),
    )
    assert classic_group_description(classic_group(member, version=version), "g") == GroupDescription(
        group_id="g",
        protocol=GroupProtocol.CLASSIC,
        protocol_type="consumer",
        state="Stable",
        epoch=None,
        assignment_epoch=None,
        assignor="range",
        members=(
            MemberDescription(
                member_id="a",
                instance_id="i",
                rack_id=None,
                client_id="c",
                host="10.0.0.1",
                epoch=None,
                protocol=GroupProtocol.CLASSIC,
                topics=frozenset({"t"}),
                pattern=None,
                assignment=frozenset({T0, T1}),
                target=None,
            ),
        ),
    )


def test_unknown_classic_group_is_not_found_in_each_version() -> None:
    """Version 5 reports an unknown group as dead; version 6 (KIP-1043) reports an error."""
    not_found = BrokerError(code=69, name="GROUP_ID_NOT_FOUND", message="Group g not found.")
    assert classic_group_description(classic_group(version=5, state="Dead"), "g") == not_found
    answer = classic_group(state="Dead", code=69, message="Group g not found.")
    assert classic_group_description(answer, "g") == not_found


def test_description_of_connect_workers_has_no_partitions() -> None:
    """Kafka Connect workers form a classic group whose assignments have their own format."""
    found = classic_group_description(
        classic_group(classic_member("a", member_assignment=b"\0\1whatever"), protocol_type="connect"), "g"
    )
    assert isinstance(found, GroupDescription)
    assert (found.members[0].assignment, found.members[0].note) == (
        frozenset(),
        "not a consumer: protocol type 'connect'",
    )


def test_description_keeps_other_members_beside_malformed_one() -> None:
    """A member with malformed bytes gets a note; the other members are complete."""
    broken, sound = (
        classic_member("a", member_assignment=b"\0\1\x7f"),
        classic_member("b", member_assignment=blob({"t": (0,)})),
    )
    found = classic_group_description(classic_group(broken, sound), "g")
    assert isinstance(found, GroupDescription)
    assert [(member.assignment, bool(member.note)) for member in found.members] == [
        (frozenset(), True),
        (frozenset({T0}), False),
    ]


# ---- a classic member's bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3, 99])
def test_assignment_is_decoded_in_each_version(version: int) -> None:
    """Each version only appends fields, so a newer version is read as far as it is known, as in Java."""
    data = blob({"t": (0, 1), "u": ()}, version, b"\0\0\0\3abc" + b"newer")
    assert consumer_protocol.assignment(data) == (frozenset({T0, T1}), "")


def test_empty_bytes_decode_to_no_partitions_without_note() -> None:
    """A member has no bytes during a rebalance."""
    assert consumer_protocol.assignment(b"") == (frozenset(), "")
    assert consumer_protocol.subscription(b"") == (frozenset(), "")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0", id="half a version"),
        pytest.param(b"\0\1\0\0", id="half a length"),
        pytest.param(b"\0\1\x7f\xff\xff\xff", id="two thousand million topics"),
        pytest.param(b"\0\1\xff\xff\xff\xff", id="null for the topics"),
        pytest.param(blob({"t": (0,)}, tail=b""), id="no user data"),
        pytest.param(b"\xff\xff" + blob({"t": (0,)})[2:], id="a negative version"),
        pytest.param(b"\0\1\0\0\0\1\0\2\xff\xfe\0\0\0\0", id="a topic that is not UTF-8"),
    ],
)
def test_malformed_bytes_decode_to_note(data: bytes) -> None:
    """Malformed bytes come from another client: they produce a note, no exception and no partitions."""
    partitions, note = consumer_protocol.assignment(data)
    assert partitions == frozenset()
    assert note


def test_any_bytes_decode_to_value_or_note() -> None:
    """Random bytes produce a value or a note (seed 848)."""
    chance = Random(848)  # noqa: S311 - bytes by chance
    for _ in range(2_000):
        data = bytes(chance.choice((0, 0, 0, 1, 2, 127, 255)) for _ in range(chance.randrange(40)))
        for read in (consumer_protocol.assignment, consumer_protocol.subscription):
            found, note = read(data)
            assert not (found and note)


# ---- on the wire -----------------------------------------------------------------------------------------------------


def api_of(call: Call) -> tuple[Api, int]:
    """Return the API and the version, which select the decoder of the response."""
    return call.api, call.version


def test_description_decodes_from_wire_bytes() -> None:
    """The layouts of the calls match the responses, from the broker's bytes to the value."""
    described = decode(
        *api_of(describe_consumer_group(VERSIONS, "g")),
        frame(consumer_group(consumer_member("a", assignment=(0,))), 1)[SIZE_BYTES:],
    )
    classic = decode(
        *api_of(describe_classic_group(VERSIONS, "g")),
        frame(classic_group(classic_member("a", member_assignment=blob({"t": (0,)}))), 1)[SIZE_BYTES:],
    )
    for found in (consumer_group_description(described, "g"), classic_group_description(classic, "g")):
        assert isinstance(found, GroupDescription)
        assert found.members[0].assignment == {T0}
    assert encode(describe_classic_group(VERSIONS, "g"), 1, "c")
