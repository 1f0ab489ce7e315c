"""The work of an idle consumer: it is small, and the consumer still handles every event."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.runtime.application.fetcher import BATCH_BYTES
from consumer_membership.runtime.application.orders import IDLE_SLICE_S
from tests.clients.application import at, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory, filled
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.mock_cluster import MockCluster
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


def idling(consumers: ConsumerFactory, topic: str, last: int = RECORDS - 1) -> ScriptedConsumer:
    """A member that read the last record of its partition and polls in long slices."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign({at(topic, 0)[0]: last})
    assert record(consumer).offset() == last
    assert consumer.poll(0.3) is None
    return consumer


@pytest.mark.parametrize("timeout_s", [0.12, 0.2])
def test_idle_poll_waits_in_whole_slices(consumers: ConsumerFactory, topic: str, timeout_s: float) -> None:
    """A poll makes at most one turn per slice and two more.

    A remaining fraction of a millisecond, which librdkafka cannot wait for, causes no loop.
    """
    consumer = idling(consumers, topic)
    turns = consumer.member.progress()[0]
    assert consumer.poll(timeout_s) is None
    assert consumer.member.progress()[0] - turns <= timeout_s / IDLE_SLICE_S + 2


def test_idle_poll_waits_in_longer_slices_as_soon_as_no_record_is_left(consumers: ConsumerFactory, topic: str) -> None:
    """The slices cause most of the cost of a consumer with few or no records; ten per second are enough."""
    consumer = idling(consumers, topic)
    turns = consumer.member.progress()[0]
    assert consumer.poll(0.6) is None
    assert consumer.member.progress()[0] - turns <= 0.6 / IDLE_SLICE_S + 2


def test_idle_poll_performs_an_ordered_assignment(consumers: ConsumerFactory, topic: str) -> None:
    """A long poll counts as progress (max.poll.interval.ms), assigns a partition, and returns a record of it."""
    consumer = idling(consumers, topic)
    turns = consumer.member.progress()[0]

    def assign() -> None:
        wait_until(lambda: consumer.member.progress()[0] >= turns + 3, "three turns of the poll")
        consumer.member.assign({at(topic, 1)[0]: 0})

    ordering = Thread(assign)
    message = record(consumer)
    assert (message.partition(), message.offset()) == (1, 0)
    ordering.outcome()


@pytest.mark.parametrize("is_calm", [False, True])
def test_record_after_a_calm_period_triggers_a_progress_sample(
    consumers: ConsumerFactory,
    topic: str,
    is_calm: bool,  # noqa: FBT001
) -> None:
    """The first record after a calm period makes the membership thread sample the progress soon; others do not."""
    consumer = idling(consumers, topic)
    consumer.seek(PartitionOffset(topic, 0, RECORDS - 1))
    if is_calm:
        consumer.member.calm_down()
    samples = consumer.member.samples
    assert record(consumer).offset() == RECORDS - 1
    assert consumer.member.samples - samples == is_calm


def test_size_of_the_first_record_after_idling_limits_the_next_batch(
    consumers: ConsumerFactory, cluster: MockCluster
) -> None:
    """The first record of an idle partition is fetched alone. If it is large, the next batch is small at once."""
    topic, record_bytes = "heavy", BATCH_BYTES // 4
    filled(cluster, topic, 1)
    consumer = idling(consumers, topic, last=0)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 0})
    polling = Thread(lambda: record(consumer))
    producer.produce(topic, value=bytes(record_bytes), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    polling.outcome()
    assert consumer._session is not None
    assert consumer._session.fetcher._batch == 4
