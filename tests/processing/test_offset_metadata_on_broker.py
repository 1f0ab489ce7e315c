"""Finished offsets in the metadata of commits on a real broker, with both consumers and the queries of operators."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.translation.offset_metadata import decode
from tests.support.kafka import create_topic, produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: The default of offset.metadata.max.bytes.
LIMIT = 4096


def unfinished(capacity: int) -> UnfinishedOffsets:
    """Return the offsets of an owner that has finished each second record of as many as the metadata can list."""
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
    (found,) = consumer.committed([Partition(topic, 0)], 30)
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
