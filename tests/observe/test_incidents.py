"""Incidents made on a real broker: the doctor names the one that was made, and names it first."""

from __future__ import annotations

import pytest

from consumer_membership.observe.doctor import diagnosed
from consumer_membership.observe.observation import observe
from tests.observe.conversion_incidents import CONVERSIONS
from tests.observe.incidents import INCIDENTS, Incident, Stage
from tests.observe.unseen_incidents import UNSEEN
from tests.support.acls import AUTHORIZER
from tests.support.brokers import RunBrokers
from tests.support.kafka import unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Members settle sooner, and nobody's topic is made for being asked for.
QUICK = {
    **AUTHORIZER,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
LIMITED = {
    "group.max.size": "2",
    "group.consumer.max.size": "2",
    "group.consumer.migration.policy": "disabled",
    "offsets.retention.minutes": "60",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "4000",
}
#: By incident, whether the cause was named first.
NAMED_FIRST: dict[str, bool] = {}


@pytest.mark.parametrize("incident", [*INCIDENTS, *UNSEEN, *CONVERSIONS], ids=lambda one: one.name)
def test_cause_is_named_first(incident: Incident, broker_pool: RunBrokers) -> None:
    """Whoever looks at the first line knows what to do."""
    broker = broker_pool.shared(properties=LIMITED if incident.is_limited else QUICK)
    stage, group = Stage(broker.bootstrap_servers), unique("group")
    NAMED_FIRST[incident.name] = False
    with incident.make(stage, group) as go_on:
        # Between two looks stands what happens, and no pause.
        findings = diagnosed(observe(stage.admin, group, 4.5, lambda _: go_on()))
    assert findings[0].cause is incident.cause, findings
    NAMED_FIRST[incident.name] = True


def test_incidents_are_counted() -> None:
    """At least 28 of 30; this file says of how many, if all of it was run."""
    print(f"named first: {sum(NAMED_FIRST.values())} of {len(NAMED_FIRST)} incidents")
    assert len(INCIDENTS) >= 30
    assert sum(NAMED_FIRST.values()) >= 28 or len(NAMED_FIRST) < len(INCIDENTS) + len(UNSEEN) + len(CONVERSIONS)
