# both kinds of consumers
"""Ten more incidents, written before the doctor's rules were run on them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from consumer_membership.observe.findings import Cause
from tests.observe.incidents import (
    BOTH,
    OURS,
    RAW,
    Between,
    Incident,
    Stage,
    app,
    incident,
    nothing,
)
from tests.support.acls import allow
from tests.support.kafka import create_topic, delete_topic, open_transaction, produce, unique
from tests.support.waiting import PATIENCE_S, wait_until

UNSEEN: list[Incident] = []


@incident(Cause.TOPIC_MISSING, registry=UNSEEN)
def one_of_two_topics_is_deleted(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Two members continue with the other topic."""
    gone, topic = stage.topic(), stage.topic()
    members = [app(stage, stack, OURS, group, gone, topic, group_protocol="consumer") for _ in range(2)]
    for member in members:
        member.has(2)
    delete_topic(stage.servers, gone)
    for member in members:
        member.has(1)
    return nothing


@incident(Cause.OFFSET_BEFORE_START, registry=UNSEEN)
def retention_overtook_a_paused_member(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Retention deletes records of a paused partition; its member polls, and would skip them after it resumes."""
    topic = stage.topic(1, 10)
    member = app(stage, stack, RAW, group, topic).has(1)
    stage.caught_up(group)
    member.do(lambda consumer: consumer.pause([Partition(topic, 0)]))
    stage.write(topic, 20)
    admin = AdminClient({"bootstrap.servers": stage.servers})
    for future in admin.delete_records([Partition(topic, 0, 25)]).values():
        future.result()
    return lambda: stage.write(topic)


@incident(Cause.NEVER_COMMITTED, registry=UNSEEN)
def topic_is_made_anew_below_a_member(stage: Stage, group: str, stack: ExitStack) -> Between:
    """A topic is re-created with fewer records than the member has read; its deletion deleted the group's offsets.

    Without new records the incident cannot be detected from outside; the first version of the doctor had no finding.
    """
    topic = stage.topic(1, 50)
    stage.commit(group, (topic, 0, 0))
    app(stage, stack, RAW, group, topic, auto_offset_reset="error").has(1)
    stage.caught_up(group)
    delete_topic(stage.servers, topic)
    # The coordinator processes the deletion after the topic has disappeared from Metadata responses.
    wait_until(lambda: not stage.admin.committed(group), "the deletion of the group's offsets")
    create_topic(stage.servers, topic, 1)
    produce(stage.servers, topic, 5)
    return lambda: stage.write(topic)


@incident(Cause.OPEN_TRANSACTION, registry=UNSEEN)
def two_transactions_are_left_open(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Two of three partitions have an open transaction, and the third one progresses."""
    topic = stage.topic(3, 30)
    app(stage, stack, RAW, group, topic, isolation_level="read_committed").has(3)
    stage.caught_up(group)
    for partition in (0, 1):
        producer = open_transaction(stage.servers, topic, unique("left-open"), partition)
        stack.callback(producer.abort_transaction, PATIENCE_S)
    return lambda: stage.write(topic, 30)


@incident(Cause.MEMBER_STALLED, *BOTH, registry=UNSEEN)
def everything_is_paused(stage: Stage, group: str, stack: ExitStack, kind: Any, protocol: str) -> Between:
    """The application polls and has paused all its partitions."""
    topic = stage.topic(2, 10)
    member = app(stage, stack, kind, group, topic, group_protocol=protocol).has(2)
    stage.caught_up(group)
    member.do(lambda consumer: consumer.pause([Partition(topic, 0), Partition(topic, 1)]))
    stage.write(topic)
    return lambda: stage.write(topic)


@incident(Cause.MIXED_SUBSCRIPTIONS, registry=UNSEEN)
def pattern_beside_names(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Two versions of an application share a group; one version subscribes with a pattern, the other with a name."""
    topic = stage.topic(2)
    app(stage, stack, OURS, group, f"^{topic}$", group_protocol="consumer").has(2)
    app(stage, stack, OURS, group, topic, group_protocol="consumer").has(1)
    stage.settled(group, 2)
    return nothing


@incident(Cause.NEVER_COMMITTED, registry=UNSEEN)
def records_may_not_be_read(stage: Stage, group: str, stack: ExitStack) -> Between:
    """The member is authorized to describe the topic and joins, but each of its fetches is rejected."""
    topic = stage.topic(2, 10)
    # An ACL that allows an operation denies all other ones; WRITE implies DESCRIBE.
    allow(stage.servers, ResourceType.TOPIC, topic, AclOperation.WRITE)
    app(stage, stack, RAW, group, topic).has(2)
    stage.settled(group, 1)
    return lambda: stage.write(topic)


@incident(Cause.TOO_MANY_MEMBERS, registry=UNSEEN)
def spare_static_members(stage: Stage, group: str, stack: ExitStack) -> Between:
    """A StatefulSet has three replicas for two partitions."""
    topic = stage.topic(2)
    for number in range(3):
        app(stage, stack, OURS, group, topic, group_protocol="consumer", group_instance_id=f"i-{number}")
    stage.settled(group, 3)
    return nothing


@incident(Cause.PARTITION_STALLED, registry=UNSEEN)
def one_partition_is_never_committed(stage: Stage, group: str, stack: ExitStack) -> Between:
    """The program commits only the other partition."""
    topic = stage.topic(2, 10)
    stage.commit(group, (topic, 0, 0), (topic, 1, 0))
    member = app(stage, stack, RAW, group, topic, enable_auto_commit=False).has(2)
    reached = [1]

    def go_on() -> None:
        stage.write(topic)
        reached[0] += 1
        at = [Partition(topic, 1, reached[0])]
        member.do(lambda consumer: consumer.commit(offsets=at, asynchronous=False))

    return go_on


@incident(Cause.NO_MEMBERS, registry=UNSEEN)
def group_was_committed_for_and_never_joined(stage: Stage, group: str, _: ExitStack) -> Between:
    """An operator set the group's offsets, and the deployment never started."""
    topic = stage.topic(2, 20)
    stage.commit(group, (topic, 0, 5), (topic, 1, 5))
    return lambda: stage.write(topic)
