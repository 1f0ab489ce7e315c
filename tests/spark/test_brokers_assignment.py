"""`assign_at_once` on brokers that know the group's configuration key, on older brokers, and without rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType

from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, TransportError
from consumer_membership.spark.brokers import INTERVAL_KEY, AssigningAtOnce
from consumer_membership.spark.plan import MemberPlan, planned
from tests.support.acls import AUTHORIZER, forbid
from tests.support.brokers import RunBrokers
from tests.support.kafka import unique
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def plan_for(bootstrap: str) -> MemberPlan:
    """The plan of a run with a new group."""
    return planned({"bootstrap.servers": bootstrap}, ["records"], unique("group"))


def test_assign_at_once_sets_the_group_configuration_permanently(kafka: Broker) -> None:
    """`assign_at_once` sets a configuration of the group, which remains set."""
    plan = plan_for(kafka.bootstrap_servers)
    AssigningAtOnce(plan).wait()
    asked = ConfigResource(ConfigResource.Type.GROUP, plan.group)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    # `wait` returns when the controller has written the change; the broker shows it a moment later.
    wait_until(
        lambda: admin.describe_configs([asked])[asked].result(PATIENCE_S)[INTERVAL_KEY].value == "0",
        "the setting of the group",
    )


def test_assign_at_once_does_nothing_before_kafka_4_3(broker_pool: RunBrokers) -> None:
    """Brokers before Kafka 4.3 have no assignment interval, so `assign_at_once` does nothing and raises no error."""
    AssigningAtOnce(plan_for(broker_pool.shared("4.0.0").bootstrap_servers)).wait()


def test_assign_at_once_without_rights_names_the_key_and_the_grant(kafka_broker: BrokerFactory) -> None:
    """Without the right to alter the group, the error names the configuration key and the right to grant."""
    broker = kafka_broker(properties=AUTHORIZER)
    plan = plan_for(broker.bootstrap_servers)
    forbid(broker.bootstrap_servers, ResourceType.GROUP, plan.group, AclOperation.ALTER_CONFIGS)

    def is_refused() -> bool:
        try:
            AssigningAtOnce(plan).wait()
        except ConfigurationError as refused:
            return "uthoriz" in str(refused) and "grant ALTER_CONFIGS on the group" in str(refused)
        return False

    wait_until(is_refused, "a refusal")


def test_assign_at_once_raises_in_bounded_time_if_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the broker does not respond, `assign_at_once` raises an error in bounded time."""
    monkeypatch.setattr("consumer_membership.spark.brokers._TIMEOUT_S", 0.5)
    with pytest.raises(TransportError, match="was not changed"):
        AssigningAtOnce(plan_for("127.0.0.1:1")).wait()
