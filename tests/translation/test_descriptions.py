"""Described groups of both protocols as one kind of value; what is wrong in an answer is never an empty group."""

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


def test_consumer_group_with_all_that_its_coordinator_knows() -> None:
    """KIP-848: epochs, assignor, and for each member the current and the target assignment."""
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
def test_member_that_said_it_will_be_back_is_away(epoch: int, is_away: bool) -> None:  # noqa: FBT001
    """Rules 3.3: -2 is a static member that left and keeps its place."""
    found = consumer_group_description(consumer_group(consumer_member("a", member_epoch=epoch)), "g")
    assert isinstance(found, GroupDescription)
    assert found.members[0].is_away is is_away


def test_version_without_member_types_means_the_consumer_protocol() -> None:
    """Version 0 (Kafka 3.7 to 3.9) does not say what a member speaks."""
    found = consumer_group_description(consumer_group(consumer_member("a", version=0), version=0), "g")
    assert isinstance(found, GroupDescription)
    assert found.members[0].protocol is GroupProtocol.CONSUMER


def test_refused_description_keeps_code_and_words() -> None:
    """A classic group is not found by ConsumerGroupDescribe, and the broker says why."""
    answer = consumer_group(code=69, message="Group g is not a consumer group.")
    assert consumer_group_description(answer, "g") == BrokerError(
        code=69, name="GROUP_ID_NOT_FOUND", message="Group g is not a consumer group."
    )
    assert consumer_group_description(consumer_group(code=30), "g") == BrokerError(
        code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g"
    )


def test_answer_about_another_group_is_an_error() -> None:
    """What was left out is not a group without members."""
    left_out = BrokerError(code=-1, name="UNKNOWN_SERVER_ERROR", message="the broker's answer leaves group g out")
    assert consumer_group_description(consumer_group(group="other"), "g") == left_out
    assert classic_group_description(classic_group(group="other"), "g") == left_out


# ---- the classic protocol --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 6])
def test_classic_group_with_what_its_members_told_each_other(version: int) -> None:
    """The assignment is in the leader's bytes; there are no epochs and no target."""
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


def test_unknown_classic_group_is_not_found_in_every_version() -> None:
    """Version 5 shows an unknown group as a dead one, version 6 (KIP-1043) says what it is."""
    not_found = BrokerError(code=69, name="GROUP_ID_NOT_FOUND", message="Group g not found.")
    assert classic_group_description(classic_group(version=5, state="Dead"), "g") == not_found
    answer = classic_group(state="Dead", code=69, message="Group g not found.")
    assert classic_group_description(answer, "g") == not_found


def test_workers_of_another_kind_are_shown_without_partitions() -> None:
    """Kafka Connect's workers are a classic group too; what they assign is theirs to read."""
    found = classic_group_description(
        classic_group(classic_member("a", member_assignment=b"\0\1whatever"), protocol_type="connect"), "g"
    )
    assert isinstance(found, GroupDescription)
    assert (found.members[0].assignment, found.members[0].note) == (
        frozenset(),
        "not a consumer: protocol type 'connect'",
    )


def test_members_own_bytes_never_break_a_description() -> None:
    """One member's nonsense is a note beside it; the others are shown as ever."""
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
def test_assignment_is_read_in_every_version(version: int) -> None:
    """Each version only appends: a newer one is read as far as it is known, as Java does."""
    data = blob({"t": (0, 1), "u": ()}, version, b"\0\0\0\3abc" + b"newer")
    assert consumer_protocol.assignment(data) == (frozenset({T0, T1}), "")


def test_no_bytes_are_no_partitions_and_nothing_wrong() -> None:
    """A member in the middle of a rebalance has none yet."""
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
def test_malformed_bytes_are_a_note(data: bytes) -> None:
    """They are a stranger's: nothing is raised, and nothing is believed."""
    partitions, note = consumer_protocol.assignment(data)
    assert partitions == frozenset()
    assert note


def test_any_bytes_are_read_or_noted() -> None:
    """Nothing comes out of nonsense but a value (seed 848)."""
    chance = Random(848)  # noqa: S311 - bytes by chance
    for _ in range(2_000):
        data = bytes(chance.choice((0, 0, 0, 1, 2, 127, 255)) for _ in range(chance.randrange(40)))
        for read in (consumer_protocol.assignment, consumer_protocol.subscription):
            found, note = read(data)
            assert not (found and note)


# ---- on the wire -----------------------------------------------------------------------------------------------------


def api_of(call: Call) -> tuple[Api, int]:
    """What decides how its answer is read."""
    return call.api, call.version


def test_answers_come_through_the_wire() -> None:
    """From the broker's bytes to the value: the layouts of the calls fit the answers."""
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
