"""The pytest plugin: fixtures with a cluster inside the test process, and with a real broker.

The distribution installs this file as a separate module, beside the package: pytest imports the plugins of all
installed distributions in every run, and an import of the package would take a tenth of a second. So this module
imports only pytest, and each fixture imports the other modules that it needs.
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
    """Provide a `FakeCluster` on virtual time, with `installed()`; the end of the test closes its consumers."""
    from consumer_membership.testing import FakeCluster  # noqa: PLC0415 - only for runs that use it

    with FakeCluster() as cluster, cluster.installed():
        yield cluster


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    """Provide a real Apache Kafka broker for the whole session, which all pytest-xdist workers share.

    If `KAFKA_BOOTSTRAP_SERVERS` is set, the fixture uses that existing broker and starts no process.
    """
    from consumer_membership.testing.shared_broker import shared_broker  # noqa: PLC0415 - only for runs that use it

    folder = tmp_path_factory.getbasetemp()
    with shared_broker(folder.parent if folder.name.startswith("popen-") else folder) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: SharedBroker) -> Iterator[str]:
    """Create a topic, provide its name, and delete it after the test; `@pytest.mark.kafka_topic(partitions=4)`."""
    marker = request.node.get_closest_marker("kafka_topic")
    partitions = marker.kwargs.get("partitions", 1) if marker is not None else 1
    with kafka_broker.topic(f"{request.node.originalname}-{uuid.uuid4().hex[:8]}", partitions) as name:
        yield name


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest) -> str:
    """Return the name of a new group."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:8]}"
