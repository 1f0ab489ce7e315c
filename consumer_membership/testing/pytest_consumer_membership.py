"""The pytest plugin: fixtures with a cluster inside the test process, and with a real broker.

The distribution installs this file as a module of its own, beside the package: pytest imports the plugins of all
installed distributions in every run, and an import of the package would take a tenth of a second. So this module
imports only pytest, and each fixture imports what it needs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from consumer_membership.testing import FakeCluster, SharedBroker


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, for runs with strict markers."""
    config.addinivalue_line("markers", "kafka_topic(partitions=1): how many partitions the fixture `kafka_topic` has")


@pytest.fixture
def fake_kafka() -> Iterator[FakeCluster]:
    """A `FakeCluster` on virtual time, installed for producers; its consumers are closed at the end of the test."""
    from consumer_membership.testing import FakeCluster  # noqa: PLC0415 - only for runs that use it

    with FakeCluster() as cluster, cluster.installed():
        yield cluster


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    """A real Apache Kafka for the whole session: all workers of pytest-xdist share one broker.

    `KAFKA_BOOTSTRAP_SERVERS` names an existing broker instead; then nothing is started.
    """
    from consumer_membership.testing.shared_broker import shared_broker  # noqa: PLC0415 - only for runs that use it

    folder = tmp_path_factory.getbasetemp()
    with shared_broker(folder.parent if folder.name.startswith("popen-") else folder) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: SharedBroker) -> Iterator[str]:
    """The name of a new topic, which is deleted after the test; `@pytest.mark.kafka_topic(partitions=4)`."""
    marker = request.node.get_closest_marker("kafka_topic")
    partitions = marker.kwargs.get("partitions", 1) if marker is not None else 1
    with kafka_broker.topic(f"{request.node.originalname}-{uuid.uuid4().hex[:8]}", partitions) as name:
        yield name


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest) -> str:
    """The name of a new group."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:8]}"
