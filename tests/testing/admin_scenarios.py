"""Scenarios of admin clients and of statistics, with equal results on a `FakeCluster` and on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.support.waiting import PATIENCE_S, wait_until
from tests.testing.scenarios import SCENARIOS, Ground, code_of, join, rounds, scenario, take

__all__ = ["SCENARIOS"]


def of(futures: Mapping[Any, Any]) -> Any:
    """Return the result of the only future."""
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def refused(futures: Mapping[Any, Any]) -> int:
    """Return the error code of the only future, which must fail."""
    with pytest.raises(KafkaException) as caught:
        of(futures)
    return code_of(caught)


def soon(question: Callable[[], object], expected: object) -> None:
    """Repeat a call until it returns this value: brokers apply changes of topics a moment after their response."""

    def is_answered() -> bool:
        try:
            return question() == expected
        except KafkaException:
            return False

    wait_until(is_answered, f"the answer {expected}")


def offsets_of(ground: Ground, admin: AdminClient, group: str, *numbers: int) -> list[tuple[int, int, str | None]]:
    """Return the committed offsets of these partitions, or of all partitions, with their metadata."""
    wanted = [ground.place(partition=number) for number in numbers] or None
    found = of(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))
    assert found.group_id == group
    return [(one.partition, one.offset, one.metadata) for one in found.topic_partitions]


def entry_of(ground: Ground, admin: AdminClient, name: str) -> ConfigEntry:
    """Return the entry of the topic's configuration with this name."""
    found: ConfigEntry = of(admin.describe_configs([ConfigResource("topic", ground.topic)]))[name]
    return found


# ---- topics ----------------------------------------------------------------------------------------------------------


@scenario()
def admin_creates_a_topic(ground: Ground) -> None:
    admin, name = ground.admin(), f"{ground.topic}-new"
    assert of(admin.create_topics([NewTopic(name, 3, 1)])) is None
    soon(lambda: set(admin.list_topics(name, PATIENCE_S).topics[name].partitions), {0, 1, 2})
    (message,) = ground.produce("v", topic=name, partition=2)
    assert message.partition() == 2


@scenario()
def admin_only_validates_a_topic(ground: Ground) -> None:
    admin, name = ground.admin(), f"{ground.topic}-new"
    assert of(admin.create_topics([NewTopic(name)], validate_only=True)) is None
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


@scenario()
def topic_that_exists_or_is_wrong_is_not_created(ground: Ground) -> None:
    admin = ground.admin()
    wrong = {
        KafkaError.TOPIC_ALREADY_EXISTS: NewTopic(ground.topic, 1, 1),
        KafkaError.TOPIC_EXCEPTION: NewTopic("bad name!", 1, 1),
        KafkaError.INVALID_PARTITIONS: NewTopic(f"{ground.topic}-p", 0, 1),
        KafkaError.INVALID_REPLICATION_FACTOR: NewTopic(f"{ground.topic}-r", 1, 5),
        KafkaError.INVALID_CONFIG: NewTopic(f"{ground.topic}-c", 1, 1, config={"nope": "1"}),
    }
    assert [refused(admin.create_topics([topic])) for topic in wrong.values()] == [*wrong]
    with pytest.raises(ValueError, match="Expected non-empty list of NewTopic objects"):
        admin.create_topics([])
    with pytest.raises(TypeError, match="nope"):
        admin.create_topics([NewTopic("t")], nope=True)


@scenario()
def admin_deletes_a_topic(ground: Ground) -> None:
    admin = ground.admin()
    assert of(admin.delete_topics([ground.topic])) is None
    assert refused(admin.delete_topics([ground.topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    soon(lambda: ground.topic in admin.list_topics(timeout=PATIENCE_S).topics, expected=False)


@scenario(2)
def admin_adds_partitions(ground: Ground) -> None:
    admin = ground.admin()
    assert of(admin.create_partitions([NewPartitions(ground.topic, 3)])) is None
    assert refused(admin.create_partitions([NewPartitions(ground.topic, 3)])) == KafkaError.INVALID_PARTITIONS
    assert refused(admin.create_partitions([NewPartitions(ground.topic, 1)])) == KafkaError.INVALID_PARTITIONS
    unknown = admin.create_partitions([NewPartitions(f"{ground.topic}-other", 3)])
    assert refused(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART
    soon(lambda: len(admin.list_topics(ground.topic, PATIENCE_S).topics[ground.topic].partitions), 3)


@scenario(2)
def admin_describes_topics_and_the_cluster(ground: Ground) -> None:
    admin, other = ground.admin(), f"{ground.topic}-other"
    futures = admin.describe_topics(TopicCollection([ground.topic, other]), include_authorized_operations=True)
    topic = futures[ground.topic].result(PATIENCE_S)
    assert (topic.name, topic.is_internal, [one.id for one in topic.partitions]) == (ground.topic, False, [0, 1])
    assert [(one.leader.id, len(one.replicas), len(one.isr)) for one in topic.partitions] == [(1, 1, 1)] * 2
    assert len(topic.authorized_operations) == 8
    assert refused({other: futures[other]}) == KafkaError.UNKNOWN_TOPIC_OR_PART
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert (cluster.controller.id, [one.id for one in cluster.nodes]) == (1, [1])
    assert cluster.cluster_id == admin.cluster_id(PATIENCE_S)


@scenario()
def admin_lists_offsets_of_partitions(ground: Ground) -> None:
    for number in range(3):
        ground.produce("v", timestamp=1_700_000_000_000 + 1000 * number)
    admin = ground.admin()
    specs = {
        (0, -1): OffsetSpec.earliest(),
        (3, -1): OffsetSpec.latest(),
        (2, 1_700_000_002_000): OffsetSpec.max_timestamp(),
        (1, 1_700_000_001_000): OffsetSpec.for_timestamp(1_700_000_000_500),
        (-1, -1): OffsetSpec.for_timestamp(1_900_000_000_000),
    }
    found = [of(admin.list_offsets({ground.place(): spec})) for spec in specs.values()]
    assert [(one.offset, one.timestamp) for one in found] == [*specs]
    assert refused(admin.list_offsets({ground.place(partition=7): OffsetSpec.latest()})) == KafkaError._NOENT


# ---- configurations --------------------------------------------------------------------------------------------------


@scenario()
def admin_describes_the_configuration_of_a_topic(ground: Ground) -> None:
    admin, name = ground.admin(), f"{ground.topic}-new"
    of(admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "1000"})]))
    resource = ConfigResource("topic", name)
    soon(lambda: of(admin.describe_configs([resource]))["retention.ms"].value, "1000")
    found = of(admin.describe_configs([resource]))
    assert len(found) >= 30
    assert [
        (found[key].value, found[key].is_default) for key in ("retention.ms", "cleanup.policy", "segment.bytes")
    ] == [
        ("1000", False),
        ("delete", True),
        ("1073741824", True),
    ]
    unknown = admin.describe_configs([ConfigResource("topic", f"{ground.topic}-other")])
    assert refused(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART


@scenario()
def admin_alters_the_configuration_of_a_topic(ground: Ground) -> None:
    admin = ground.admin()

    def alter(key: str, value: str | None, operation: AlterConfigOpType) -> dict[ConfigResource, Any]:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        return admin.incremental_alter_configs([ConfigResource("topic", ground.topic, incremental_configs=[entry])])

    of(alter("retention.ms", "1000", AlterConfigOpType.SET))
    of(alter("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    soon(lambda: entry_of(ground, admin, "retention.ms").value, "1000")
    soon(lambda: entry_of(ground, admin, "cleanup.policy").value, "delete,compact")
    of(alter("retention.ms", None, AlterConfigOpType.DELETE))
    of(alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    soon(lambda: entry_of(ground, admin, "retention.ms").is_default, expected=True)
    soon(lambda: entry_of(ground, admin, "cleanup.policy").value, "compact")
    assert refused(alter("nope", "1", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    assert refused(alter("retention.ms", "abc", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG


# ---- groups ----------------------------------------------------------------------------------------------------------


@scenario(2)
def admin_describes_a_group_of_the_consumer_protocol(ground: Ground) -> None:
    consumer = ground.subscribed(client_id="billing", group_instance_id="a")
    join(consumer, 2)
    rounds([consumer], lambda: consumer.membership().is_settled)
    group = of(ground.admin().describe_consumer_groups([ground.group]))
    assert (group.group_id, group.state, group.type) == (
        *(ground.group, ConsumerGroupState.STABLE),
        ConsumerGroupType.CONSUMER,
    )
    assert (group.partition_assignor, group.is_simple_consumer_group, group.coordinator.id) == ("uniform", False, 1)
    (member,) = group.members
    assert (member.member_id, member.client_id, member.group_instance_id) == (consumer.memberid(), "billing", "a")
    assert member.assignment.topic_partitions == member.target_assignment.topic_partitions
    assert [one.partition for one in member.assignment.topic_partitions] == [0, 1]


@scenario(2)
def admin_describes_a_classic_group(ground: Ground) -> None:
    consumer = ground.subscribed(group_protocol="classic", client_id="billing")
    join(consumer, 2)
    admin = ground.admin()
    group = of(admin.describe_consumer_groups([ground.group]))
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
    assert (group.partition_assignor, group.is_simple_consumer_group) == ("range", False)
    (member,) = group.members
    assert (member.member_id, member.client_id, member.target_assignment) == (consumer.memberid(), "billing", None)
    assert [one.partition for one in member.assignment.topic_partitions] == [0, 1]
    with pytest.warns(DeprecationWarning, match="list_consumer_groups"):
        (old,) = admin.list_groups(ground.group, PATIENCE_S)
    assert (old.state, old.protocol_type, old.protocol, [one.id for one in old.members]) == (
        *("Stable", "consumer", "range"),
        [consumer.memberid()],
    )


@scenario()
def group_that_does_not_exist_is_dead(ground: Ground) -> None:
    group = of(ground.admin().describe_consumer_groups([ground.group]))
    assert (group.state, group.members, group.is_simple_consumer_group) == (ConsumerGroupState.DEAD, [], True)


@scenario()
def admin_lists_groups_by_state_and_type(ground: Ground) -> None:
    consumer, admin = ground.subscribed(), ground.admin()
    join(consumer)
    rounds([consumer], lambda: consumer.membership().is_settled)

    def listed(**which: object) -> list[tuple[str, ConsumerGroupState]]:
        found = admin.list_consumer_groups(**which).result(PATIENCE_S)
        assert found.errors == []
        return [(one.group_id, one.state) for one in found.valid if one.group_id == ground.group]

    assert listed() == [(ground.group, ConsumerGroupState.STABLE)]
    assert listed(states={ConsumerGroupState.EMPTY}) == []
    assert listed(types={ConsumerGroupType.CLASSIC}) == []
    assert listed(types={ConsumerGroupType.CONSUMER}, states={ConsumerGroupState.STABLE})
    consumer.close()
    assert listed() == [(ground.group, ConsumerGroupState.EMPTY)]


@scenario()
def admin_deletes_an_empty_group(ground: Ground) -> None:
    consumer, admin = ground.subscribed(), ground.admin()
    join(consumer)
    assert refused(admin.delete_consumer_groups([ground.group])) == KafkaError.NON_EMPTY_GROUP
    consumer.commit(offsets=[ground.place(1)], asynchronous=False)
    consumer.close()
    assert of(admin.delete_consumer_groups([ground.group])) is None
    assert refused(admin.delete_consumer_groups([ground.group])) == KafkaError.GROUP_ID_NOT_FOUND
    assert offsets_of(ground, admin, ground.group) == []


@scenario(3)
def admin_lists_committed_offsets(ground: Ground) -> None:
    admin, consumer = ground.admin(), ground.consumer()
    consumer.commit(offsets=[TopicPartition(ground.topic, 2, 3, metadata="state")], asynchronous=False)
    assert offsets_of(ground, admin, ground.group) == [(2, 3, "state")]
    assert [one[:2] for one in offsets_of(ground, admin, ground.group, 2, 0)] == [(0, OFFSET_INVALID), (2, 3)]
    assert offsets_of(ground, admin, f"{ground.group}-other") == []


@scenario(2)
def admin_alters_committed_offsets(ground: Ground) -> None:
    ground.produce("a", "b", "c", partition=0)
    admin = ground.admin()
    places = [ground.place(1, 0), ground.place(1, 7)]
    done = of(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(ground.group, places)]))
    errors = [one.error and one.error.code() for one in done.topic_partitions]
    assert errors == [None, KafkaError.UNKNOWN_TOPIC_OR_PART]
    consumer = ground.subscribed()
    assert take(consumer, 1)[0].value() == b"b"
    request = [ConsumerGroupTopicPartitions(ground.group, [ground.place(0, 0)])]
    (refusal,) = of(admin.alter_consumer_group_offsets(request)).topic_partitions
    assert refusal.error.code() == KafkaError.UNKNOWN_MEMBER_ID


# ---- statistics ------------------------------------------------------------------------------------------------------


@scenario()
def statistics_have_offsets_and_the_group(ground: Ground) -> None:
    texts: list[str] = []
    ground.produce("one", "two", "three")
    consumer = ground.subscribed(
        statistics_interval_ms=100, stats_cb=texts.append, enable_auto_commit=False, client_id="billing"
    )
    consumer.commit(take(consumer, 2)[-1], asynchronous=False)
    texts.clear()

    def partition() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(texts[-1])["topics"][ground.topic]["partitions"]["0"]
        return found

    take(consumer, 1)
    expected = {"app_offset": 3, "hi_offset": 3, "lo_offset": 0, "consumer_lag": 1, "rxmsgs": 3, "rxbytes": 11}
    expected["committed_offset"] = 2
    # A statistics document from before the last record may arrive after the record.
    rounds([consumer], lambda: bool(texts) and {name: partition()[name] for name in expected} == expected)
    document, found = json.loads(texts[-1]), partition()
    assert (document["type"], document["client_id"], document["rxmsgs"]) == ("consumer", "billing", 3)
    assert (found["fetch_state"], found["next_offset"], found["stored_offset"]) == ("active", 3, 3)
    group = document["cgrp"]
    assert (group["state"], group["join_state"], group["assignment_size"]) == ("up", "steady", 1)

    def has_ages() -> bool:
        """Return whether the rebalance is younger than the consumer; its age is measured later, at the callback."""
        latest = json.loads(texts[-1])
        return bool(0 <= latest["cgrp"]["rebalance_age"] <= latest["age"] / 1000)

    rounds([consumer], has_ages)
    (broker,) = [one for one in document["brokers"].values() if one["nodeid"] == 1]
    assert (broker["state"], broker["rtt"].keys() >= {"avg", "p99"}) == ("UP", True)
    assert broker["toppars"].keys() == {f"{ground.topic}-0"}


@scenario()
def statistics_come_again_and_again(ground: Ground) -> None:
    times: list[int] = []
    consumer = ground.subscribed(statistics_interval_ms=200, stats_cb=lambda text: times.append(json.loads(text)["ts"]))
    rounds([consumer], lambda: len(times) >= 4)
    assert times == sorted(set(times))
