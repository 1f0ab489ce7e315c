"""The contract of `FakeCluster`: each scenario has the same results on a fake cluster and on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.testing import FakeCluster
from tests.support.documents import ROOT
from tests.support.kafka import create_topic
from tests.testing.processor_scenarios import SCENARIOS
from tests.testing.scenarios import Ground


class RealCluster:
    """A broker, with the methods of `FakeCluster` that scenarios call."""

    def __init__(self, servers: str) -> None:
        self.bootstrap_servers = servers
        self._servers = {"bootstrap.servers": servers}

    def consumer(self, config: dict[str, object]) -> Consumer:
        """Create a consumer."""
        return Consumer({**config, **self._servers})

    def producer(self, config: dict[str, object]) -> Producer:
        """Create a producer."""
        return Producer({**config, **self._servers})

    def admin_client(self, config: dict[str, object]) -> AdminClient:
        """Create an admin client."""
        given: dict[str, str | int | float | bool] = {
            key: str(value) for key, value in (config | self._servers).items()
        }
        return AdminClient(given)

    def group_admin(self, config: dict[str, object]) -> GroupAdmin:
        """Create a `GroupAdmin`."""
        return GroupAdmin({**config, **self._servers})

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        create_topic(self.bootstrap_servers, name, partitions)

    def start(self, call: Callable[[], None]) -> None:
        """Call this function in a thread."""
        threading.Thread(target=call, daemon=True).start()

    def advance(self, seconds: float) -> None:
        """Do nothing: other threads run anyway."""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Start a cluster with virtual time."""
    with FakeCluster() as cluster, cluster.installed():
        yield cluster


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_on_a_fake_cluster(name: str, cluster: FakeCluster) -> None:
    """Each scenario passes on the fake cluster."""
    run, partitions = SCENARIOS[name]
    ground = Ground(cluster, partitions)
    with ground.clients:
        run(ground)


@pytest.mark.integration
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_on_a_broker(name: str, kafka: Broker) -> None:
    """Each scenario passes on a real broker, so the scenarios describe the behavior of brokers."""
    run, partitions = SCENARIOS[name]
    ground = Ground(RealCluster(kafka.bootstrap_servers), partitions)
    with ground.clients:
        run(ground)


def test_document_names_the_number_of_scenarios() -> None:
    """The page about tests has the current number of scenarios."""
    page = (ROOT / "docs" / "consuming" / "testing.md").read_text()
    assert f"runs {len(SCENARIOS)} scenarios" in page
