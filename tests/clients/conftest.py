"""A mock cluster with records, and consumers on it whose member is scripted by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from tests.clients.scripted import ScriptedConsumer
from tests.support.mock_cluster import MockCluster

#: The mock cluster creates a topic with this many partitions for the first record that is produced to it.
PARTITIONS = 4
#: Records in each partition of `topic`.
RECORDS = 50

#: Configuration keys with underscores; in all other keyword arguments an underscore means a dot.
_UNDERSCORED = frozenset({"error_cb", "stats_cb", "throttle_cb", "on_commit", "log_level"})

ConsumerFactory = Callable[..., ScriptedConsumer]


@pytest.fixture(scope="session")
def cluster() -> Iterator[MockCluster]:
    """A mock cluster of one broker, for all these tests."""
    with MockCluster.start(1) as started:
        yield started


@pytest.fixture(scope="session")
def topic(cluster: MockCluster) -> str:
    """A topic of 4 partitions with 50 records each; a record's value is its offset."""
    return filled(cluster, "records")


def filled(cluster: MockCluster, name: str, records: int = RECORDS) -> str:
    """Create a topic with this many records."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for offset in range(records):
        for partition in range(PARTITIONS):
            producer.produce(name, value=str(offset).encode(), partition=partition)
    assert producer.flush(20) == 0
    return name


@pytest.fixture
def consumers(cluster: MockCluster) -> Iterator[ConsumerFactory]:
    """Makes consumers on the cluster, which are closed at the end of the test."""
    made: list[ScriptedConsumer] = []

    def make(**config: object) -> ScriptedConsumer:
        settings: dict[str, object] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        settings |= {key if key in _UNDERSCORED else key.replace("_", "."): value for key, value in config.items()}
        consumer = ScriptedConsumer(settings)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.member.confirms_leaves = True
        consumer.close()
