import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from consumer_membership.testing import FakeCluster

MOCK = """
import sys
from confluent_kafka import Producer

cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
brokers = cluster.list_topics(timeout=10).brokers
print(",".join(f"{broker.host}:{broker.port}" for broker in brokers.values()), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Return a cluster inside this process, on virtual time."""
    with FakeCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def mock_servers() -> Iterator[str]:
    """Return the bootstrap servers of a mock cluster. It ends when its standard input is closed."""
    process = subprocess.Popen([sys.executable, "-c", MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().strip()
    process.communicate(timeout=10)


@pytest.fixture(scope="session")
def broker_servers() -> Iterator[str]:
    """Return the bootstrap servers of a real Apache Kafka, or of the one that KAFKA_BOOTSTRAP_SERVERS names."""
    from consumer_membership.devbroker import start

    with start() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def stopping() -> Iterator[threading.Event]:
    """Return an event that is set at the latest when the test ends."""
    event = threading.Event()
    yield event
    event.set()
