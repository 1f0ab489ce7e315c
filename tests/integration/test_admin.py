"""The admin API and the command line describe groups of both protocols and remove their members on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from consumer_membership.admin import GroupAdmin, GroupDescription, RemovalOutcome
from consumer_membership.cli import main
from consumer_membership.devbroker import Broker
from consumer_membership.errors import GroupError
from consumer_membership.types import GroupProtocol
from tests.support.acls import AUTHORIZER, forbid
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, delete_topic, produce, unique
from tests.support.versions import NEWEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

REMOVED, UNKNOWN = RemovalOutcome.REMOVED, RemovalOutcome.UNKNOWN
WOULD = RemovalOutcome.WOULD_BE_REMOVED


def admin(broker: Broker) -> GroupAdmin:
    """The group administration of this broker."""
    return GroupAdmin({"bootstrap.servers": broker.bootstrap_servers})


def members(broker: Broker, name: str) -> dict[str, str | None]:
    """The group's members with their instance ids."""
    described = admin(broker).describe(name, with_offsets=False).group
    return {member.member_id: member.instance_id for member in described.members}


def settled(broker: Broker, name: str, count: int) -> GroupDescription:
    """Return the group as soon as it is stable with this many members."""

    def described() -> GroupDescription | None:
        group = admin(broker).describe(name, with_offsets=False).group
        return group if (group.state, len(group.members)) == ("Stable", count) else None

    return wait_until(described, f"a stable group with {count} members")


@contextmanager
def classic_member(broker: Broker, name: str, topic: str, **config: object) -> Iterator[PlainConsumer]:
    """A classic confluent-kafka member that has its partitions."""
    consumer = PlainConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": name,
            "group.protocol": "classic",
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(consumer.assignment, "partitions of the classic group", between=lambda: consumer.poll(0.1))
        yield consumer
    finally:
        consumer.close()


def commit(broker: Broker, name: str, *partitions: Partition) -> None:
    """Commit these offsets without being a member of the group."""
    consumer = PlainConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": name})
    try:
        consumer.commit(offsets=list(partitions), asynchronous=False)
    finally:
        consumer.close()


def test_describe_consumer_group_returns_members_partitions_and_lag(broker: Broker) -> None:
    """`describe` returns a KIP-848 group's static and dynamic members, their partitions and their lag."""
    topic, name, instance = create_topic(broker.bootstrap_servers, unique("topic"), 4), unique("group"), unique("i")
    produce(broker.bootstrap_servers, topic, 40)
    commit(broker, name, Partition(topic, 0, 3))
    config: dict[str, Any] = {"enable_auto_commit": False, "client_id": "app"}
    with (
        Worker(broker.bootstrap_servers, name, [topic], group_instance_id=instance, **config) as static,
        Worker(broker.bootstrap_servers, name, [topic], **config) as dynamic,
    ):
        static.settled(2)
        dynamic.settled(2)
        report = admin(broker).describe(name)
        views = {worker.consumer.membership().member_id: worker for worker in (static, dynamic)}
    group = report.group
    assert (group.protocol, group.state, group.assignor) == (GroupProtocol.CONSUMER, "Stable", "uniform")
    assert group.epoch == group.assignment_epoch == max(member.epoch or 0 for member in group.members)
    assert {member.member_id: member.instance_id for member in group.members} == {
        worker_id: instance if worker is static else None for worker_id, worker in views.items()
    }
    # In a container the broker sees the bridge's address.
    assert {member.client_id for member in group.members} == {"app"}
    assert all(ip_address(member.host).is_private for member in group.members)
    assert [len(member.assignment) for member in group.members] == [2, 2]
    assert all(member.target == member.assignment and not member.is_away for member in group.members)
    owners = {number: member.member_id for member in group.members for _, number in member.assignment}
    assert [(one.partition, one.committed, one.end, one.lag, one.owner) for one in report.partitions] == [
        (number, 3 if number == 0 else None, 10, 7 if number == 0 else None, owners[number]) for number in range(4)
    ]
    assert report.lag == 7


def test_remove_closed_static_member_reassigns_its_partitions_at_once(broker: Broker) -> None:
    """A closed static member keeps its place (epoch -2); its removal gives its partitions to others at once."""
    topic, name, instance = create_topic(broker.bootstrap_servers, unique("topic"), 4), unique("group"), unique("i")
    with Worker(broker.bootstrap_servers, name, [topic], group_instance_id=instance) as static:
        static.settled(4)
    (away,) = admin(broker).describe(name).group.members
    assert (away.is_away, len(away.assignment)) == (True, 4)
    with Worker(broker.bootstrap_servers, name, [topic]) as heir:
        heir.wait(lambda w: w.consumer.membership().member_epoch > 0, "in the group")
        (removal,) = admin(broker).remove_members(name, instance_ids=[instance])
        assert (removal.outcome, removal.member is not None and removal.member.is_away) == (REMOVED, True)
        heir.settled(4)


def test_describe_and_remove_members_work_on_a_classic_group(broker: Broker) -> None:
    """B30: `describe` reads the partitions from the leader's bytes.

    Static members are removed by instance id, dynamic members by member id.
    """
    topic, name, instance = create_topic(broker.bootstrap_servers, unique("topic"), 3), unique("group"), unique("i")
    produce(broker.bootstrap_servers, topic, 30)
    with classic_member(broker, name, topic, **{"group.instance.id": instance}) as consumer:
        consumer.commit(offsets=[Partition(topic, 1, 4)], asynchronous=False)
        report = admin(broker).describe(name)
        group = report.group
        assert (group.protocol, group.state, group.epoch) == (GroupProtocol.CLASSIC, "Stable", None)
        assert (group.assignor, group.protocol_type) == ("range", "consumer")
        (member,) = group.members
        assert (member.instance_id, member.epoch, member.target, member.note) == (instance, None, None, "")
        assert member.topics == {topic}
        assert [(one.partition, one.lag, one.owner) for one in report.partitions] == [
            (number, 6 if number == 1 else None, member.member_id) for number in range(3)
        ]
        (removal,) = admin(broker).remove_members(name, instance_ids=[instance])
        assert removal.outcome is REMOVED
        assert members(broker, name) == {}
    other = unique("group")
    with classic_member(broker, other, topic):
        (member,) = admin(broker).describe(other).group.members
        (removal,) = admin(broker).remove_members(other, member_ids=[member.member_id])
        assert (removal.outcome, removal.member) == (REMOVED, member)
        assert "joins again automatically" in removal.message


def test_describe_empty_group_returns_committed_offsets(broker: Broker) -> None:
    """`describe` returns the committed offsets of an empty group, although one of its topics was deleted."""
    topic, gone = (create_topic(broker.bootstrap_servers, unique(name), 2) for name in ("topic", "gone"))
    name = unique("group")
    produce(broker.bootstrap_servers, topic, 20)
    commit(broker, name, Partition(topic, 0, 10), Partition(topic, 1, 2))
    report = admin(broker).describe(name)
    assert (report.group.state, report.group.members, report.lag) == ("Empty", (), 8)
    assert [(one.partition, one.committed, one.lag, one.owner) for one in report.partitions] == [
        (0, 10, 0, None),
        (1, 2, 8, None),
    ]
    commit(broker, name, Partition(gone, 0, 1))
    delete_topic(broker.bootstrap_servers, gone)
    # The coordinator removes such offsets later; until then they are reported without an end offset.
    assert admin(broker).describe(name).lag == 8


def test_unknown_group_raises_error_with_remedy(broker: Broker) -> None:
    """`describe` and the removal of members raise an error with a remedy if the group does not exist."""
    name = unique("nobody")
    for ask in (lambda: admin(broker).describe(name), lambda: admin(broker).remove_members(name, all_members=True)):
        with pytest.raises(GroupError, match=r"the cluster has no group with this id; check group\.id") as refusal:
            ask()
        assert refusal.value.code == 69


def test_remove_several_members_returns_a_result_for_each(broker: Broker) -> None:
    """B30: Members are removed by instance id and by member id, and a wrong id gets its own error.

    The members are closed first, so that none of them joins again.
    """
    topic, name = create_topic(broker.bootstrap_servers, unique("topic"), 3), unique("group")
    ids = [unique("i") for _ in range(3)]
    for instance in ids:
        with Worker(broker.bootstrap_servers, name, [topic], group_instance_id=instance) as static:
            static.wait(lambda w: w.consumer.membership().member_epoch > 0, "in the group")
    by_instance = {instance: member for member, instance in members(broker, name).items()}
    assert set(by_instance) == set(ids)
    second = by_instance[ids[1]]
    asked = {"instance_ids": [ids[0], "wrong"], "member_ids": [second]}
    dry = admin(broker).remove_members(name, **asked, dry_run=True)  # type: ignore[arg-type]
    assert [one.outcome for one in dry] == [WOULD, UNKNOWN, WOULD]
    assert len(members(broker, name)) == 3
    done = admin(broker).remove_members(name, **asked, reason="a test")  # type: ignore[arg-type]
    assert [one.outcome for one in done] == [REMOVED, UNKNOWN, REMOVED]
    assert f"existing instance ids: {', '.join(sorted(ids))}" in dry[1].message
    assert members(broker, name) == {by_instance[ids[2]]: ids[2]}
    assert [one.outcome for one in admin(broker).remove_members(name, all_members=True)] == [REMOVED]
    assert members(broker, name) == {}
    assert admin(broker).remove_members(name, all_members=True) == ()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_pair_of_ids_removes_only_the_member_that_holds_the_instance_id(broker: Broker, protocol: str) -> None:
    """B30, KIP-345: The answer to a wrong pair is FENCED_INSTANCE_ID, and the holder stays; the right pair removes it.

    The wrong pair is that of the process which the present holder replaced.
    """
    topic, name = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")

    def held_by() -> str:
        given: dict[str, Any] = {"group_instance_id": "a", "group_protocol": protocol}
        with Worker(broker.bootstrap_servers, name, [topic], **given) as static:
            static.settled(2)
            return str(static.consumer.memberid())

    former, present = held_by(), held_by()
    assert members(broker, name) == {present: "a"}
    (dry,) = admin(broker).remove_members(name, static_members={"a": former}, dry_run=True)
    (refused,) = admin(broker).remove_members(name, static_members={"a": former})
    assert (dry.outcome, refused.outcome) == (RemovalOutcome.REFUSED, RemovalOutcome.REFUSED)
    assert dry.message == refused.message
    assert f"'a' is held by the member '{present}', not by '{former}'" in refused.message
    assert members(broker, name) == {present: "a"}
    (removed,) = admin(broker).remove_members(name, static_members={"a": present})
    assert (removed.outcome, members(broker, name)) == (REMOVED, {})


def test_removed_dynamic_member_rejoins_automatically(broker: Broker) -> None:
    """A removed dynamic member is fenced at its next heartbeat, loses its partitions and joins again."""
    topic, name = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    with Worker(broker.bootstrap_servers, name, [topic]) as worker:
        worker.settled(2)
        (member,) = settled(broker, name, 1).members
        (removal,) = admin(broker).remove_members(name, member_ids=[member.member_id])
        assert (removal.outcome, removal.member is not None) == (REMOVED, True)
        worker.wait(lambda w: len(w.notes.named("lost")) == 1, "the loss")
        worker.settled(2)
        (again,) = settled(broker, name, 1).members
        assert (again.epoch or 0) > (member.epoch or 0)


def test_describe_and_remove_members_commands_work_on_a_broker(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands `describe` and `remove-members` print their text and their JSON for a group on a real broker."""
    topic, name, instance = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group"), unique("i")
    with Worker(broker.bootstrap_servers, name, [topic], group_instance_id=instance) as static:
        static.settled(2)
    where = ["-b", broker.bootstrap_servers, "-g", name]
    assert main(["describe", *where]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Group {name}: consumer protocol (KIP-848), ")
    assert f"{topic}[0-1]" in printed
    assert main(["describe", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["members"][0]["instance_id"] == instance
    assert main(["remove-members", *where, "--instance-id", instance, "--dry-run"]) == 0
    assert main(["remove-members", *where, "--instance-id", instance, "--instance-id", "wrong"]) == 1
    assert main(["remove-members", *where, "--all"]) == 0
    assert "1 of 2 members removed" in capsys.readouterr().out
    assert main(["describe", *where[:2], "-g", unique("nobody")]) == 1
    assert "the cluster has no group with this id" in capsys.readouterr().err


def allow_to_describe(bootstrap: str, name: str) -> None:
    """Allow every user to describe this group, and nothing else."""
    rule = AclBinding(
        ResourceType.GROUP,
        name,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    rules = AdminClient({"bootstrap.servers": bootstrap})
    rules.create_acls([rule], request_timeout=20)[rule].result()


def refusal_of(ask: Callable[[], object]) -> str:
    """Return the refusal's text as soon as the broker applies the new ACLs."""

    def text() -> str:
        try:
            ask()
        except GroupError as refusal:
            return str(refusal)
        return ""

    return wait_until(text, "a refusal")


def test_missing_acl_is_named_in_the_error(broker_pool: RunBrokers) -> None:
    """The error names the missing ACL.

    A description needs DESCRIBE on group and topics, a removal READ on the group.
    """
    broker = broker_pool.shared(NEWEST, properties=AUTHORIZER)
    bootstrap = broker.bootstrap_servers
    topic, hidden = create_topic(bootstrap, unique("topic"), 2), create_topic(bootstrap, unique("hidden"), 2)
    names = no_describe, no_read, no_topic = unique("undescribed"), unique("unread"), unique("untold")
    for name in names:
        subscribed = hidden if name == no_topic else topic
        with Worker(bootstrap, name, [subscribed], group_instance_id="i") as static:
            static.settled(2)
    classic = unique("classic")
    with classic_member(broker, classic, hidden, **{"group.instance.id": "i"}) as consumer:
        consumer.commit(offsets=[Partition(hidden, 0, 0)], asynchronous=False)
    forbid(bootstrap, ResourceType.GROUP, no_describe, AclOperation.DESCRIBE)
    allow_to_describe(bootstrap, no_read)
    forbid(bootstrap, ResourceType.TOPIC, hidden, AclOperation.DESCRIBE)
    undescribed = refusal_of(lambda: admin(broker).describe(no_describe))
    assert "the ACL operation DESCRIBE on the group" in undescribed
    unread = refusal_of(lambda: admin(broker).remove_members(no_read, instance_ids=["i"]))
    assert "the ACL operation READ on the group" in unread
    assert "DESCRIBE on every topic" in refusal_of(lambda: admin(broker).describe(no_topic))
    # The removal needs an operation on the group only, so it succeeds; its message reports the refused description.
    (removal,) = admin(broker).remove_members(no_topic, instance_ids=["i"])
    assert (removal.outcome, removal.member) == (REMOVED, None)
    assert "describing the group is not allowed" in removal.message
    # For a classic group the coordinator omits only the committed offsets, and reports no error.
    notes = {one.note for one in admin(broker).describe(classic).partitions}
    assert notes == {f"not authorized: allow the ACL operation DESCRIBE on topic {hidden}"}
