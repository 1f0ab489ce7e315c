"""Finished offsets in the commit metadata on a real broker, as both consumers and the operators' queries read them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.observe.doctor import diagnose
from consumer_membership.observe.findings import Cause
from consumer_membership.observe.observation import observe
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.translation.offset_metadata import decode
from tests.integration.processors import Handled, Run, running
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: The default of offset.metadata.max.bytes.
LIMIT = 4096


def unfinished(capacity: int) -> UnfinishedOffsets:
    """Return the offsets of an owner that has finished every second record, as many as the metadata can list."""
    offsets = UnfinishedOffsets(0, None, capacity)
    for offset in range(10 * capacity):
        offsets.admit(offset)
        if not offsets.start(offset):
            break
        if offset % 2:
            offsets.finish(offset)
    return offsets


@pytest.mark.parametrize("kind", [RawConsumer, Consumer], ids=["confluent-kafka", "ours"])
def test_metadata_at_the_limit_is_accepted_and_returned(kafka: Broker, kind: Any) -> None:
    """The broker accepts the longest text, both consumers return it, and `describe` counts its offsets."""
    servers, group = kafka.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"))
    produce(servers, topic, 10)
    commit = unfinished(LIMIT).to_commit()
    assert commit is not None
    assert LIMIT - 4 <= len(commit.metadata) < LIMIT
    consumer = kind({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[Partition(topic, 0, commit.offset, commit.metadata)], asynchronous=False)
    (found,) = consumer.committed([Partition(topic, 0)], PATIENCE_S)
    consumer.close()
    finished = decode(found.metadata, found.offset)
    assert finished is not None
    assert finished == decode(commit.metadata, commit.offset)
    (row,) = GroupAdmin({"bootstrap.servers": servers}).describe(group).partitions
    assert (row.committed, row.finished_beyond, row.lag, row.remaining) == (0, finished.count, 10, 0)


@pytest.mark.parametrize("kind", [RawConsumer, Consumer], ids=["confluent-kafka", "ours"])
def test_metadata_beyond_the_limit_is_refused(kafka: Broker, kind: Any) -> None:
    """With the terminating zero, a text of 4,096 characters is too long."""
    servers = kafka.bootstrap_servers
    topic = create_topic(servers, unique("topic"))
    consumer = kind({"bootstrap.servers": servers, "group.id": unique("group")})
    with pytest.raises(KafkaException) as raised:
        consumer.commit(offsets=[Partition(topic, 0, 0, "m" * LIMIT)], asynchronous=False)
    assert raised.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    consumer.close()


def test_describe_and_doctor_name_the_record_that_holds_back_a_processor(kafka: Broker) -> None:
    """While one handler runs, later records finish: both queries show this, and the group does not count as stalled."""
    servers, group = kafka.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"))
    produce(servers, topic, [(f"k{number}", str(number)) for number in range(10)])
    admin, handled = GroupAdmin({"bootstrap.servers": servers}), Handled()
    handled.hold("3")

    def finished() -> int:
        return sum(one.finished_beyond for one in admin.describe(group).partitions)

    def finish_one_more(_: float) -> None:
        expected = finished() + 1
        produce(servers, topic, [("k", "more")])
        wait_until(lambda: finished() == expected, "a commit with one more finished record")

    with running(Run(servers, topic, group, handled, {"auto.commit.interval.ms": 50})):
        handled.wait_for_end(*(str(number) for number in range(10) if number != 3))
        wait_until(lambda: finished() == 6, "a commit with all finished records")
        (row,) = admin.describe(group).partitions
        assert (row.committed, row.lag, row.remaining) == (3, 7, 1)
        (found,) = diagnose(observe(admin, group, 3.0, finish_one_more))
        assert (found.cause, found.subject) == (Cause.COMMIT_HELD_BACK, f"{topic}[0]")
        assert "the record at offset 3 is not finished" in found.explanation
        assert "8 later offsets are finished" in found.explanation
        handled.release()
        wait_until(lambda: admin.describe(group).lag == 0, "a commit of the end")
    assert finished() == 0
