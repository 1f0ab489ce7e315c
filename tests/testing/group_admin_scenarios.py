"""Scenarios of `GroupAdmin`, with equal results on a `FakeCluster` and on a real broker."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer
from consumer_membership.admin import PartitionProgress, RemovalOutcome, Subject
from consumer_membership.errors import GroupError
from consumer_membership.types import GroupProtocol, TopicPartition
from tests.testing.admin_scenarios import SCENARIOS
from tests.testing.scenarios import Ground, join, rounds, scenario, take

__all__ = ["SCENARIOS"]


def settled(consumer: Consumer, partitions: int = 1) -> Consumer:
    """Poll until the consumer has this number of partitions and its group is stable; return the consumer."""
    join(consumer, partitions)
    rounds([consumer], lambda: consumer.membership().is_settled)
    return consumer


def is_local(host: str) -> bool:
    """Return whether a client on this machine may have this address.

    A broker in a container receives the address of the gateway of the container's network.
    """
    address = ip_address(host)
    return address.is_loopback or address.is_private


def progress_of(ground: Ground) -> list[tuple[int, int | None, int | None, int | None, str | None, str]]:
    """Return the partitions of the group's report as (number, committed, end, lag, owner, note)."""

    def row(one: PartitionProgress) -> tuple[int, int | None, int | None, int | None, str | None, str]:
        return one.partition, one.committed, one.end, one.lag, one.owner, one.note

    return [row(one) for one in ground.group_admin().describe(ground.group).partitions]


# ---- describe --------------------------------------------------------------------------------------------------------


@scenario(2)
def group_admin_describes_a_group_of_the_consumer_protocol(ground: Ground) -> None:
    consumer = settled(ground.subscribed(client_id="billing", group_instance_id="a"), 2)
    report = ground.group_admin().describe(ground.group)
    group = report.group
    assert (group.group_id, group.protocol, group.protocol_type) == (ground.group, GroupProtocol.CONSUMER, "consumer")
    assert (group.state, group.assignor, report.coordinator.node_id) == ("Stable", "uniform", 1)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.client_id) == (consumer.memberid(), "a", "billing")
    assert is_local(member.host)
    assert (member.rack_id, member.protocol) == (None, GroupProtocol.CONSUMER)
    assert member.epoch == group.epoch == group.assignment_epoch == consumer.generation()
    both = {TopicPartition(ground.topic, 0), TopicPartition(ground.topic, 1)}
    assert (member.topics, member.pattern, member.assignment, member.target) == ({ground.topic}, None, both, both)
    assert (member.is_away, member.note) == (False, "")


@scenario(2)
def group_admin_describes_a_classic_group(ground: Ground) -> None:
    consumer = settled(ground.subscribed(group_protocol="classic", client_id="billing"), 2)
    group = ground.group_admin().describe(ground.group).group
    assert (group.protocol, group.protocol_type, group.state) == (GroupProtocol.CLASSIC, "consumer", "Stable")
    assert (group.assignor, group.epoch, group.assignment_epoch) == ("range", None, None)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.client_id) == (consumer.memberid(), None, "billing")
    assert is_local(member.host)
    assert (member.epoch, member.target) == (None, None)
    both = {TopicPartition(ground.topic, 0), TopicPartition(ground.topic, 1)}
    assert (member.topics, member.assignment, member.note) == ({ground.topic}, both, "")


@scenario()
def group_admin_describes_a_pattern(ground: Ground) -> None:
    consumer = ground.consumer()
    consumer.subscribe([f"^{ground.topic}"])
    settled(consumer)
    (member,) = ground.group_admin().describe(ground.group, with_offsets=False).group.members
    assert (member.topics, member.pattern) == (frozenset(), f"^{ground.topic}")


@scenario(3)
def group_admin_measures_the_lag(ground: Ground) -> None:
    ground.produce("a", "b", "c", partition=0)
    ground.produce("d", partition=1)
    consumer = ground.subscribed()
    take(consumer, 4)
    consumer.commit(offsets=[ground.place(1, 0), ground.place(1, 1)], asynchronous=False)
    owner = consumer.memberid()
    assert progress_of(ground) == [
        (0, 1, 3, 2, owner, ""),
        (1, 1, 1, 0, owner, ""),
        (2, None, 0, None, owner, "nothing committed"),
    ]
    assert ground.group_admin().describe(ground.group).lag == 2
    assert ground.group_admin().describe(ground.group, with_offsets=False).partitions == ()


@scenario()
def group_admin_describes_a_group_without_members(ground: Ground) -> None:
    ground.consumer().commit(offsets=[ground.place(0)], asynchronous=False)
    report = ground.group_admin().describe(ground.group)
    assert (report.group.state, report.group.protocol_type, report.group.members) == ("Empty", "", ())
    assert progress_of(ground) == [(0, 0, 0, 0, None, "")]


@scenario()
def group_admin_reports_committed_offsets_of_a_deleted_range(ground: Ground) -> None:
    ground.produce("a")
    ground.consumer().commit(offsets=[ground.place(7)], asynchronous=False)
    note = "the committed offset is beyond the end: the topic was truncated or recreated"
    assert progress_of(ground) == [(0, 7, 1, None, None, note)]


@scenario()
def group_admin_finds_no_group(ground: Ground) -> None:
    admin = ground.group_admin()
    with pytest.raises(GroupError, match="the cluster has no group with this id") as caught:
        admin.describe(ground.group)
    assert caught.value.code == 69
    with pytest.raises(GroupError, match="the cluster has no group with this id"):
        admin.remove_members(ground.group, all_members=True)
    assert admin.committed(ground.group) == {}


@scenario()
def group_admin_describes_a_static_member_that_is_away(ground: Ground) -> None:
    settled(ground.subscribed(group_instance_id="a")).close()
    (member,) = ground.group_admin().describe(ground.group).group.members
    assert (member.instance_id, member.is_away, member.epoch) == ("a", True, -2)
    assert member.assignment == {TopicPartition(ground.topic, 0)}


# ---- groups, offsets -------------------------------------------------------------------------------------------------


@scenario()
def group_admin_lists_groups(ground: Ground) -> None:
    def listed() -> list[tuple[str, str | None, str | None]]:
        listing = ground.group_admin().list_groups()
        assert listing.errors == {}
        return [(one.protocol_type, one.state, one.kind) for one in listing.groups if one.group_id == ground.group]

    assert listed() == []
    consumer = settled(ground.subscribed())
    assert listed() == [("consumer", "Stable", "consumer")]
    consumer.close()
    assert listed() == [("consumer", "Empty", "consumer")]


@scenario()
def group_admin_lists_a_classic_group(ground: Ground) -> None:
    settled(ground.subscribed(group_protocol="classic"))
    groups = [one for one in ground.group_admin().list_groups().groups if one.group_id == ground.group]
    assert [(one.protocol_type, one.state, one.kind) for one in groups] == [("consumer", "Stable", "classic")]


@scenario(2)
def group_admin_reads_committed_offsets(ground: Ground) -> None:
    consumer = ground.consumer()
    consumer.commit(offsets=[ground.place(3, 1)], asynchronous=False)
    noted = PartitionOffset(ground.topic, 0, 4, metadata="state")
    consumer.commit(offsets=[noted], asynchronous=False)
    found = ground.group_admin().committed(ground.group)
    assert {(partition, at.offset, at.metadata) for partition, at in found.items()} == {  # type: ignore[union-attr]
        (TopicPartition(ground.topic, 0), 4, "state"),
        (TopicPartition(ground.topic, 1), 3, ""),
    }


@scenario(2)
def group_admin_surveys_a_group(ground: Ground) -> None:
    ground.produce("a", "b", partition=1)
    consumer = ground.subscribed(group_instance_id="a")
    take(consumer, 2)
    settled(consumer, 2)
    consumer.commit(offsets=[ground.place(1, 1)], asynchronous=False)
    survey = ground.group_admin().survey(ground.group)
    assert (survey.group_id, survey.refusals, survey.transactions) == (ground.group, {}, ())
    assert survey.group is not None
    assert [one.instance_id for one in survey.group.members] == ["a"]
    assert {partition.partition: at.offset for partition, at in survey.committed.items()} == {1: 1}  # type: ignore[union-attr]
    (topic,) = survey.topics.values()
    assert (topic.leaders, topic.is_internal, topic.error) == ({0: 1, 1: 1}, False, None)
    offsets = {one.partition: (found.start, found.end, found.stable) for one, found in survey.offsets.items()}
    assert offsets == {0: (0, 0, 0), 1: (0, 2, 2)}
    assert survey.broker_settings["group.consumer.session.timeout.ms"] == "45000"
    assert survey.group_settings["consumer.session.timeout.ms"] == "45000"


@scenario()
def group_admin_surveys_an_unknown_group(ground: Ground) -> None:
    survey = ground.group_admin().survey(ground.group, in_depth=False)
    assert (survey.group, survey.committed, survey.topics) == (None, {}, {})
    assert survey.refusals[Subject.GROUP].name == "GROUP_ID_NOT_FOUND"


# ---- removals --------------------------------------------------------------------------------------------------------


@scenario()
def group_admin_removes_a_static_member_by_instance_id(ground: Ground) -> None:
    settled(ground.subscribed(group_instance_id="a"))
    admin = ground.group_admin()
    (foreseen,) = admin.remove_members(ground.group, instance_ids=["a"], dry_run=True)
    assert foreseen.outcome is RemovalOutcome.WOULD_BE_REMOVED
    (removal,) = admin.remove_members(ground.group, instance_ids=["a"], reason="deployment")
    assert (removal.outcome, removal.message) == (RemovalOutcome.REMOVED, foreseen.message)
    assert admin.describe(ground.group).group.members == ()


@scenario()
def group_admin_removes_a_member_by_member_id(ground: Ground) -> None:
    consumer, calls = ground.recorded()
    admin, member_id = ground.group_admin(), settled(consumer).memberid()
    removed, unknown = admin.remove_members(ground.group, member_ids=[str(member_id), "other"])
    assert (removed.outcome, unknown.outcome) == (RemovalOutcome.REMOVED, RemovalOutcome.UNKNOWN)
    assert removed.member is not None
    assert removed.member.member_id == member_id
    again = [("assign", [0]), ("lost", [0]), ("assign", [0])]  # the next heartbeat is rejected, and the member rejoins
    rounds([consumer], lambda: calls == again)


@scenario()
def group_admin_removes_a_pair_only_if_it_belongs_together(ground: Ground) -> None:
    consumer = settled(ground.subscribed(group_instance_id="a"))
    admin = ground.group_admin()
    (refused,) = admin.remove_members(ground.group, static_members={"a": "another"})
    assert refused.outcome is RemovalOutcome.REFUSED
    assert f"held by the member {consumer.memberid()!r}, not by 'another'" in refused.message
    (removed,) = admin.remove_members(ground.group, static_members={"a": str(consumer.memberid())})
    assert removed.outcome is RemovalOutcome.REMOVED


@scenario(2)
def group_admin_removes_all_members(ground: Ground) -> None:
    consumers = [ground.subscribed(), ground.subscribed()]
    rounds(consumers, lambda: all(len(one.assignment()) == 1 and one.membership().is_settled for one in consumers))
    admin = ground.group_admin()
    removals = admin.remove_members(ground.group, all_members=True)
    assert [one.outcome for one in removals] == [RemovalOutcome.REMOVED] * 2
    assert admin.describe(ground.group, with_offsets=False).group.members == ()
    assert admin.remove_members(ground.group, all_members=True) == ()


@scenario()
def group_admin_removes_a_member_of_a_classic_group(ground: Ground) -> None:
    settled(ground.subscribed(group_protocol="classic", group_instance_id="a"))
    admin = ground.group_admin()
    removed, unknown = admin.remove_members(ground.group, instance_ids=["a", "b"])
    assert (removed.outcome, unknown.outcome) == (RemovalOutcome.REMOVED, RemovalOutcome.UNKNOWN)
    assert admin.describe(ground.group).group.members == ()


@scenario()
def group_admin_removes_a_static_member_that_is_away(ground: Ground) -> None:
    settled(ground.subscribed(group_instance_id="a")).close()
    (removal,) = ground.group_admin().remove_members(ground.group, instance_ids=["a"])
    assert (removal.outcome, "was away" in removal.message) == (RemovalOutcome.REMOVED, True)
