"""Fixtures of level 5: the brokers that most of its tests take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumer_membership.devbroker import Broker
from consumer_membership.membership.consumer import claim
from tests.integration.environments import MODES, SOME, VERSIONS, Environment
from tests.support.brokers import RunBrokers
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import PATIENCE_S


@pytest.fixture(params=SOME)
def environment(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Environment:
    """The default environments; a test that needs others selects them with `on`."""
    version, _, mode = str(request.param).partition("-")
    return Environment(broker=broker_pool.shared(VERSIONS[version]), mode=MODES[mode])


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def broker(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Broker:
    """One broker of each version, with Kafka's own group settings."""
    return broker_pool.shared(request.param)


@pytest.fixture(params=[NEWEST, OLDEST])
def own_broker(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Iterator[Broker]:
    """A broker that this test may stop and start."""
    with broker_pool.own(request.param) as broker:
        yield broker


@pytest.fixture(autouse=True)
def late_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise `NEWEST_FOR_S` for members of this process: on a busy machine, a join can take over 2 s.

    A test starts the newest holder last, so a holder that is reported late is still the older one. Members in other
    processes keep the time of 2 s.
    """
    monkeypatch.setattr(claim, "NEWEST_FOR_S", PATIENCE_S)
