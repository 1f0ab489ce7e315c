"""The brokers of floor 5: the oldest and the newest version that the package is shown on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumer_membership.devbroker import Broker, start
from consumer_membership.devbroker.pool import BrokerPool

#: Sessions that end within a test; the other group settings are Kafka's own.
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="session", params=["4.3.1", "4.0.0"])
def broker(request: pytest.FixtureRequest, broker_pool: BrokerPool) -> Broker:
    """One broker of each version, with Kafka's own group settings."""
    return broker_pool.shared(request.param)


@pytest.fixture(params=["4.3.1", "4.0.0"])
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that this test may stop and start."""
    with start(request.param) as broker:
        yield broker
