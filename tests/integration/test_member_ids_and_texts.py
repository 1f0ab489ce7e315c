"""Values that a program reads back, beside confluent-kafka: member ids, commit metadata, constructed messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.support.kafka import create_topic, unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Either consumer: the calls are the same.
AnyConsumer = Any
Make = Callable[..., AnyConsumer]


@pytest.fixture
def topic(kafka: Broker) -> str:
    """Three partitions."""
    return create_topic(kafka.bootstrap_servers, unique("topic"), 3)


def made(kind: Make, kafka: Broker, **config: object) -> AnyConsumer:
    """A consumer of its own new group."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group"), "log_level": 0}
    return kind({**settings, **{key.replace("_", "."): value for key, value in config.items()}})


def until(consumer: AnyConsumer, is_so: Callable[[], bool]) -> None:
    """Poll until this condition holds."""
    wait_until(is_so, "another assignment", between=lambda: consumer.poll(0.05), seen=consumer.memberid)


# ---- member ids -----------------------------------------------------------------------------------------------------


def id_through_a_life(consumer: AnyConsumer, topic: str) -> list[str]:
    """The form of `memberid()` at each stage: none, 22 characters, or an id that the broker assigned."""

    def kind() -> str:
        member_id = consumer.memberid()
        return "none" if member_id is None else "its own" if len(member_id) == 22 else "the broker's"

    stages = [kind()]
    consumer.subscribe([topic])
    stages.append(kind())
    until(consumer, lambda: bool(consumer.assignment()))
    stages.append(kind())
    consumer.unsubscribe()
    until(consumer, lambda: not consumer.assignment() and (consumer.memberid() is None or kind() == "its own"))
    return [*stages, kind()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_memberid_exists_at_the_same_stages_as_confluent_kafka_s(kafka: Broker, topic: str, protocol: str) -> None:
    """A classic member has no id before its join and after its leave; a consumer protocol member makes its own id."""
    lives = []
    for kind in (confluent_kafka.Consumer, Consumer):
        with closing(made(kind, kafka, group_protocol=protocol)) as consumer:
            lives.append(id_through_a_life(consumer, topic))
    assert lives[1] == lives[0]


def test_memberid_is_none_until_the_protocol_is_known(kafka: Broker, topic: str) -> None:
    """confluent-kafka's default is classic, which has no id before the join.

    This package's default may also become classic.
    """
    with closing(made(Consumer, kafka)) as consumer:
        assert id_through_a_life(consumer, topic) == ["none", "none", "its own", "none"]
        assert consumer.membership().member_id != ""


# ---- texts of commits -----------------------------------------------------------------------------------------------


def test_commit_metadata_is_written_as_confluent_kafka_writes_it(kafka: Broker, topic: str) -> None:
    """An empty text is metadata; each client reads what the other one committed, as operators do."""
    offsets = [Partition(topic, 0, 5, ""), Partition(topic, 1, 6, "größer ✓"), Partition(topic, 2, 7)]
    asked = [Partition(topic, number) for number in range(3)]
    stored, answered = [], []
    for kind in (confluent_kafka.Consumer, Consumer):
        group = unique("group")
        with closing(made(kind, kafka, group_id=group)) as consumer:
            answered.append(
                [(one.offset, one.metadata) for one in consumer.commit(offsets=offsets, asynchronous=False)]
            )
        stored.append(GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).committed(group))
        for reader in (confluent_kafka.Consumer, Consumer):
            with closing(made(reader, kafka, group_id=group)) as consumer:
                found = consumer.committed(asked, PATIENCE_S)
                assert [(one.offset, one.metadata) for one in found] == [(5, ""), (6, "größer ✓"), (7, None)]
    assert stored[1] == stored[0]
    # For operators without the zero that ends them there.
    assert stored[1][TopicPartition(topic, 1)] == OffsetAndMetadata(offset=6, leader_epoch=None, metadata="größer ✓")
    assert answered[1] == answered[0]


# ---- messages that a program made itself ----------------------------------------------------------------------------

#: What such a message has; confluent-kafka ends the process on one without topic while something is assigned.
PARTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a topic": {"topic": ""},
    "topic and partition": {"topic": "", "partition": 0},
    "all": {"topic": "", "partition": 0, "offset": 4},
}


def outcome(call: Callable[[], object]) -> object:
    """The result of the call, or the code and text of the exception."""
    try:
        result = call()
    except KafkaException as failed:
        return failed.args[0].code(), failed.args[0].str()
    return [(one.partition, one.offset) for one in result] if isinstance(result, list) else result


@pytest.mark.parametrize("is_assigned", [False, True])
@pytest.mark.parametrize("parts", PARTS)
def test_constructed_message_has_confluent_kafka_s_outcome(
    kafka: Broker, topic: str, parts: str, *, is_assigned: bool
) -> None:
    """`store_offsets` returns None or raises "unknown partition".

    `commit` raises "no offset stored" without an offset.
    """
    given = {**PARTS[parts], **({"topic": topic} if "topic" in PARTS[parts] else {})}
    message, outcomes = Message(**given), []
    for kind in (confluent_kafka.Consumer, Consumer):
        with closing(made(kind, kafka, enable_auto_offset_store=False)) as consumer:
            if is_assigned:
                consumer.assign([Partition(topic, 0, 0)])
            calls = [] if is_assigned and not given else [lambda: consumer.store_offsets(message)]
            calls.append(lambda: consumer.commit(message, asynchronous=False))
            calls.append(lambda: consumer.commit(asynchronous=False))
            outcomes.append([outcome(call) for call in calls])
    assert outcomes[1] == outcomes[0]


def test_message_without_a_topic_raises_an_error(kafka: Broker, topic: str) -> None:
    """confluent-kafka aborts the process on the first two messages and raises SystemError for the third."""
    with closing(made(Consumer, kafka, enable_auto_offset_store=False)) as consumer:
        consumer.assign([Partition(topic, 0, 0)])
        assert outcome(lambda: consumer.store_offsets(Message())) == (
            -190,
            "StoreOffsets failed: Local: Unknown partition",
        )
        refused = outcome(lambda: consumer.commit(Message(partition=0, offset=4)))
        assert refused == (-186, "Cannot commit offsets for a message without topic")
        assert consumer.commit(Message()) is None
