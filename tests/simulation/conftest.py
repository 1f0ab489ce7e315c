"""Coordinators under test: simulated coordinators with the rules of each version, and real brokers (integration).

The gate tests the newest broker; `python -m tests --full` also tests the oldest broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.consumer.coordinator import ConsumerCoordinator
from consumer_membership.testing.coordinators.either import EitherCoordinator
from consumer_membership.testing.coordinators.rules import RULES_4_0, RULES_4_2, RULES_4_4, ClassicRules, Rules
from tests.simulation.under_test import CoordinatorUnderTest, RulesT, SimulatedCoordinator
from tests.support.kinds import SHORT_SESSIONS, TWO_MEMBERS
from tests.support.versions import NEWEST, OLDEST

if TYPE_CHECKING:
    from consumer_membership.testing.coordinators.coordinator import GroupCoordinator

#: The number of members that fills a small group.
SMALL = 2

_REAL = (
    pytest.param(NEWEST, id="real newest", marks=pytest.mark.integration),
    pytest.param(OLDEST, id="real oldest", marks=pytest.mark.integration),
)
_CONSUMER_RULES: Mapping[str, Rules] = {"4.0": RULES_4_0, "4.2": RULES_4_2, "4.4": RULES_4_4}
_CONSUMER = (*_CONSUMER_RULES, *_REAL)
_CLASSIC = ("simulated", *_REAL)
#: The shortest session that `SHORT_SESSIONS` allows, and the initial delay of devbroker.
_CLASSIC_RULES = ClassicRules(initial_rebalance_delay_s=0.0, min_session_timeout_s=1.0)


@contextmanager
def _under_test(
    request: pytest.FixtureRequest,
    rules: RulesT,
    simulated: Callable[[RulesT], GroupCoordinator],
    kind: Mapping[str, str] | None = None,
) -> Iterator[CoordinatorUnderTest[RulesT]]:
    """Provide the coordinator of the fixture's parameter: simulated with these rules, or a real broker of this kind."""
    if request.param not in (NEWEST, OLDEST):
        yield SimulatedCoordinator(simulated(rules), rules)
        return
    from tests.simulation.real import RealCoordinator  # noqa: PLC0415 - not for a run without brokers

    broker = request.getfixturevalue("broker_pool").shared(request.param, properties=kind)
    sut = RealCoordinator(broker.bootstrap_servers, rules)
    yield sut
    sut.close()


def _consumer_rules(version: str) -> Rules:
    return _CONSUMER_RULES[".".join(version.split(".")[:2])]


@pytest.fixture(params=_CONSUMER)
def consumer(request: pytest.FixtureRequest) -> Iterator[CoordinatorUnderTest[Rules]]:
    """Provide a coordinator of consumer protocol groups whose sessions do not end within a test."""
    with _under_test(request, _consumer_rules(request.param), ConsumerCoordinator) as sut:
        yield sut


@pytest.fixture(params=_CONSUMER)
def brief_consumer(request: pytest.FixtureRequest) -> Iterator[CoordinatorUnderTest[Rules]]:
    """Provide a coordinator of consumer protocol groups whose sessions end within a test."""
    with _under_test(request, _consumer_rules(request.param), ConsumerCoordinator, SHORT_SESSIONS) as sut:
        yield sut


@pytest.fixture(params=_CONSUMER)
def small_consumer(request: pytest.FixtureRequest) -> Iterator[CoordinatorUnderTest[Rules]]:
    """Provide a coordinator of consumer protocol groups that are full with two members."""
    rules = replace(_consumer_rules(request.param), max_size=SMALL)
    with _under_test(request, rules, ConsumerCoordinator, TWO_MEMBERS) as sut:
        yield sut


@pytest.fixture(params=_CLASSIC)
def classic(request: pytest.FixtureRequest) -> Iterator[CoordinatorUnderTest[ClassicRules]]:
    """Provide a coordinator of classic groups, which do not wait for a second member."""
    with _under_test(request, _CLASSIC_RULES, ClassicCoordinator, SHORT_SESSIONS) as sut:
        yield sut


@pytest.fixture(params=_CLASSIC)
def small_classic(request: pytest.FixtureRequest) -> Iterator[CoordinatorUnderTest[ClassicRules]]:
    """Provide a coordinator of classic groups that are full with two members."""
    with _under_test(request, replace(_CLASSIC_RULES, max_size=SMALL), ClassicCoordinator, TWO_MEMBERS) as sut:
        yield sut


@pytest.fixture(params=_CONSUMER)
def either(request: pytest.FixtureRequest) -> Iterator[CoordinatorUnderTest[Rules]]:
    """Provide a coordinator for groups of both protocols, which does not convert groups with members."""

    def simulated(rules: Rules) -> EitherCoordinator:
        return EitherCoordinator(rules, _CLASSIC_RULES)

    with _under_test(request, _consumer_rules(request.param), simulated, SHORT_SESSIONS) as sut:
        yield sut
