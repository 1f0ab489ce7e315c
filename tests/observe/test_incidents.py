"""Incidents on a real broker: the doctor's first finding names the cause."""

from __future__ import annotations

import pytest

from consumer_membership.observe.doctor import diagnose
from consumer_membership.observe.observation import observe
from tests.observe.conversion_incidents import CONVERSIONS
from tests.observe.incidents import INCIDENTS, Incident, Stage
from tests.observe.unseen_incidents import UNSEEN
from tests.support.acls import AUTHORIZER
from tests.support.brokers import RunBrokers
from tests.support.kafka import unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Members settle sooner, and topics are not auto-created.
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


@pytest.mark.parametrize("incident", [*INCIDENTS, *UNSEEN, *CONVERSIONS], ids=lambda one: one.name)
def test_doctor_names_cause_of_incident_first(incident: Incident, broker_pool: RunBrokers) -> None:
    """The cause of each incident is the doctor's first finding."""
    broker = broker_pool.shared(properties=LIMITED if incident.is_limited else QUICK)
    stage, group = Stage(broker.bootstrap_servers), unique("group")
    with incident.make(stage, group) as go_on:
        # The incident continues between two samples, in place of a pause.
        findings = diagnose(observe(stage.admin, group, 4.5, lambda _: go_on()))
    assert findings[0].cause is incident.cause, findings
