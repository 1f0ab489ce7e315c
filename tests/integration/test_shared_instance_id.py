"""One instance id in the environment and two consumers in the process, on a real broker: the reason for the warning."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_shared_instance_id_is_warned_of_before_the_fence(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second consumer takes over the first one's place, which ends the first one."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_GROUP_INSTANCE_ID", "one-for-all")
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group"), "log_level": 0}
    with Consumer(config) as first, Consumer(config) as second:
        first.subscribe([topic])
        wait_until(first.assignment, "an assignment", between=lambda: first.poll(0.1))
        second.subscribe([topic])
        assert "CONSUMER_MEMBERSHIP_GROUP_INSTANCE_ID_POOL" in caplog.text
        last = wait_until(lambda: first.poll(0.05), "the end of the first", between=lambda: second.poll(0.05))
        error = last.error()
        assert error is not None
        assert error.code() == KafkaError.FENCED_INSTANCE_ID
