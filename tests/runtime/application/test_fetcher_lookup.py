"""A connected handle requests the metadata of a new topic immediately."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import monotonic

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.runtime.application.prefetch_buffer import PrefetchBuffer
from tests.support.mock_cluster import MockCluster
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

_LOG = logging.getLogger("tests.handle")

#: librdkafka's log line for a broker that is connected under its id, not only as a bootstrap server.
CONNECTED = "/1: Broker changed state APIVERSION_QUERY -> UP"
#: librdkafka's log line for a metadata request of the application; librdkafka's own requests log other reasons.
REQUESTED = "Request metadata for 1 topic(s): application requested"


class Handle:
    """A connected fetching handle, and the lines of its log."""

    def __init__(self, bootstrap_servers: str, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        log.set_level(logging.DEBUG, _LOG.name)
        config = {"bootstrap.servers": bootstrap_servers, "group.id": "g", "debug": "broker,metadata"}
        self.consumer = Consumer(config, logger=_LOG)
        assert self.logs(CONNECTED)

    def logs(self, ending: str) -> bool:
        """Wait for a log line with this ending, and return whether it appeared."""
        deadline = monotonic() + PATIENCE_S
        while not any(line.endswith(ending) for line in self._log.messages):
            if monotonic() > deadline:
                return False
            self.consumer.poll(0.05)
        return True


@pytest.fixture
def handle(caplog: pytest.LogCaptureFixture) -> Iterator[Handle]:
    """A handle that is connected to a broker."""
    with MockCluster.start(1) as cluster:
        connected = Handle(cluster.bootstrap_servers, caplog)
        yield connected
        connected.consumer.close()


@pytest.mark.parametrize(
    "come",
    [
        pytest.param(lambda fetcher: fetcher.prefetch_metadata({"t"}), id="subscribed"),
        pytest.param(lambda fetcher: fetcher.replace([PartitionOffset("t", 0, 0)]), id="assigned manually"),
        pytest.param(lambda fetcher: fetcher.add([PartitionOffset("t", 0, 0)]), id="added manually"),
    ],
)
def test_fetcher_requests_metadata_of_a_new_topic_at_once(handle: Handle, come: Callable[[Fetcher], None]) -> None:
    """On its own, librdkafka notices the topic with its next timer, which runs once a second."""
    come(Fetcher(lambda: handle.consumer, PrefetchBuffer()))
    assert handle.logs(REQUESTED)
