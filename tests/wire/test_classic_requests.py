"""A classic member's requests, on the wire and version by version, read back with kio."""

from __future__ import annotations

from datetime import timedelta

import pytest

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.membership.effects import CommitOffsets
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from consumer_membership.wire import classic_requests, requests
from consumer_membership.wire.consumer_protocol import decode_assignment, decode_subscription
from consumer_membership.wire.versions import Api, BrokerVersions
from tests.wire.classic import SUBSCRIBED, beat_order, join_order, leave_order, sync_order
from tests.wire.frames import on_the_wire, only

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("version", [5, 9])
def test_join_offers_each_assignor_in_its_order(version: int) -> None:
    """Rules 4.1: the name is the assignor's, the metadata a subscription; the reason from version 8."""
    call = classic_requests.join_group(only(Api.JOIN_GROUP, version), "g", join_order(instance_id="i"))
    entity = on_the_wire(call, Api.JOIN_GROUP, version)
    assert (entity.group_id, entity.member_id, entity.group_instance_id) == ("g", "m", "i")
    assert (entity.session_timeout, entity.rebalance_timeout) == (timedelta(seconds=45), timedelta(seconds=300))
    assert entity.protocol_type == "consumer"
    assert [protocol.name for protocol in entity.protocols] == ["cooperative-sticky", "range"]
    assert [decode_subscription(protocol.metadata) for protocol in entity.protocols] == [SUBSCRIBED, SUBSCRIBED]
    assert getattr(entity, "reason", None) == ("because" if version == 9 else None)
    assert call.response.__version__ == version


def test_each_assignor_has_a_subscription_of_its_own() -> None:
    """User data differs by assignor, and the version by what the assignor's members can read."""
    sticky = MemberSubscription(topics=frozenset("t"), user_data=b"sticky", version=1)
    plain = MemberSubscription(topics=frozenset("t"))
    call = classic_requests.join_group(
        only(Api.JOIN_GROUP, 9), "g", join_order(protocols=(("sticky", sticky), ("range", plain)))
    )
    entity = on_the_wire(call, Api.JOIN_GROUP, 9)
    assert [decode_subscription(protocol.metadata) for protocol in entity.protocols] == [sticky, plain]


def test_join_is_cut_to_what_the_wire_can_hold() -> None:
    """Java's limit for a reason (255); the longest duration for a longer one."""
    order = join_order(reason="x" * 300, rebalance_timeout_s=1e9, member_id="")
    entity = on_the_wire(classic_requests.join_group(only(Api.JOIN_GROUP, 9), "g", order), Api.JOIN_GROUP, 9)
    assert (entity.reason, entity.member_id) == ("x" * 255, "")
    assert entity.rebalance_timeout == timedelta(milliseconds=2**31 - 1)


@pytest.mark.parametrize("version", [3, 5])
def test_leaders_sync_has_an_assignment_for_each_member(version: int) -> None:
    """In the version that the member wants; the protocol's name from version 5."""
    order = sync_order(
        instance_id="i",
        assignments={"n": frozenset({T1}), "m": frozenset({T0}), "empty": frozenset()},
        user_data={"n": b"n's"},
        versions={"n": 0, "m": 9},
    )
    call = classic_requests.sync_group(only(Api.SYNC_GROUP, version), "g", order)
    entity = on_the_wire(call, Api.SYNC_GROUP, version)
    assert (entity.group_id, entity.generation_id, entity.member_id, entity.group_instance_id) == ("g", 5, "m", "i")
    blobs = {one.member_id: one.assignment for one in entity.assignments}
    assert {name: decode_assignment(blob).partitions for name, blob in blobs.items()} == order.assignments
    assert {name: decode_assignment(blob).user_data for name, blob in blobs.items()} == {
        "n": b"n's",
        "m": None,
        "empty": None,
    }
    assert {name: int.from_bytes(blob[:2], "big") for name, blob in blobs.items()} == {"n": 0, "m": 3, "empty": 3}
    named = (getattr(entity, "protocol_type", None), getattr(entity, "protocol_name", None))
    assert named == (("consumer", "range") if version == 5 else (None, None))
    assert call.response.__version__ == version


def test_followers_sync_is_empty() -> None:
    """It only asks."""
    call = classic_requests.sync_group(only(Api.SYNC_GROUP, 5), "g", sync_order())
    assert on_the_wire(call, Api.SYNC_GROUP, 5).assignments == ()


@pytest.mark.parametrize("version", [3, 4])
def test_heartbeat_names_member_instance_and_generation(version: int) -> None:
    """A static member's instance id in each."""
    call = classic_requests.heartbeat(only(Api.HEARTBEAT, version), "g", beat_order(instance_id="i"))
    entity = on_the_wire(call, Api.HEARTBEAT, version)
    assert (entity.group_id, entity.generation_id, entity.member_id, entity.group_instance_id) == ("g", 5, "m", "i")
    assert call.response.__version__ == version


@pytest.mark.parametrize("version", [4, 5])
def test_leave_is_of_one_member(version: int) -> None:
    """Rules 4.8: member id, instance id and reason."""
    call = classic_requests.leave_group(only(Api.LEAVE_GROUP, version), "g", leave_order(instance_id="i"))
    entity = on_the_wire(call, Api.LEAVE_GROUP, version)
    (member,) = entity.members
    assert (entity.group_id, member.member_id, member.group_instance_id) == ("g", "m", "i")
    assert getattr(member, "reason", None) == ("the consumer is being closed" if version == 5 else None)


def commit_order() -> CommitOffsets:
    """A commit's order, with the generation where the epoch stands."""
    return CommitOffsets(
        commit_id=1, offsets={T0: OffsetAndMetadata(offset=7)}, member_id="m", member_epoch=5, instance_id="i"
    )


@pytest.mark.parametrize("version", [8, 9])
def test_classic_commit_has_the_generation_in_every_version(version: int) -> None:
    """Brokers before 4.0 have version 8, of the same fields."""
    call = requests.offset_commit(only(Api.OFFSET_COMMIT, version), "g", commit_order(), is_classic=True)
    entity = on_the_wire(call, Api.OFFSET_COMMIT, version)
    assert (entity.generation_id_or_member_epoch, entity.member_id, entity.group_instance_id) == (5, "m", "i")


def test_commit_of_the_consumer_protocol_still_needs_version_9() -> None:
    """Rules 3.6: the broker takes none below from such a member."""
    with pytest.raises(UnsupportedProtocolError, match="needed in version 9, and the broker offers versions 8 of it"):
        requests.offset_commit(only(Api.OFFSET_COMMIT, 8), "g", commit_order())


def test_broker_without_the_classic_protocol_is_named() -> None:
    """One below Kafka 2.4, or one that serves other protocols only."""
    with pytest.raises(UnsupportedProtocolError, match=r"JoinGroup \(api key 11\).* Apache Kafka 2\.4 or later"):
        classic_requests.join_group(BrokerVersions(), "g", join_order())
