"""A real broker's refusals of the protocol, the group and the topic. The application gets each with its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation, ResourceType

from consumer_membership.devbroker import Broker
from consumer_membership.membership.states import MemberState
from tests.integration.environments import CONSUMER, COOPERATIVE, EAGER, Environment
from tests.support.acls import AUTHORIZER, forbid
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import CLASSIC_ONLY
from tests.support.versions import NEWEST, OLDEST

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_broker_without_the_consumer_protocol_ends_a_consumer_only_member(broker_pool: RunBrokers) -> None:
    """B01, H32: UNSUPPORTED_VERSION is fatal if only the consumer protocol is configured; the error has the remedy."""
    broker = broker_pool.shared(OLDEST, properties=CLASSIC_ONLY)
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    with Worker(broker.bootstrap_servers, unique("group"), [topic], group_protocol="consumer") as worker:
        worker.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the fatal error")
        error = worker.notes.errors[0]
        assert (error.code(), error.fatal()) == (KafkaError.UNSUPPORTED_VERSION, True)
        assert "consumer" in error.str().lower()


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"group_instance_id_pool": "a,b"}, "group.instance.id.pool=a,b"),
        (
            {"group_instance_id": "a", "group_instance_id_conflict_policy": "wait"},
            "group.instance.id.conflict.policy=wait",
        ),
    ],
    ids=["pool", "wait"],
)
def test_consumer_only_settings_on_an_older_broker_are_named_with_a_remedy(
    broker_pool: RunBrokers, config: Mapping[str, Any], key: str
) -> None:
    """The error about a pool or `wait` names the key, its value and the remedy once."""
    broker = broker_pool.shared(OLDEST, properties=CLASSIC_ONLY)
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    with Worker(broker.bootstrap_servers, unique("group"), [topic], **config) as worker:
        worker.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the fatal error")
        text = worker.notes.errors[0].str()
        assert f"or remove {key}, which needs the consumer protocol" in text
        assert "set a different group.instance.id in each process" in text
        assert text.count("Apache Kafka 4.0") == 1


@pytest.mark.parametrize("mode", [CONSUMER, EAGER, COOPERATIVE], ids=["consumer", "eager", "cooperative"])
def test_forbidden_group_is_fatal_and_forbidden_topic_is_reported(
    broker_pool: RunBrokers, mode: Mapping[str, object]
) -> None:
    """H15: GROUP_AUTHORIZATION_FAILED ends the member.

    TOPIC_AUTHORIZATION_FAILED is reported, and the member continues.
    """
    environment = Environment(broker=broker_pool.shared(NEWEST, properties=AUTHORIZER), mode=mode)
    bootstrap = environment.bootstrap_servers
    open_topic, closed_topic = environment.topic(2, "open"), environment.topic(2, "closed")
    group = unique("forbidden")
    forbid(bootstrap, ResourceType.GROUP, group, AclOperation.READ)
    forbid(bootstrap, ResourceType.TOPIC, closed_topic, AclOperation.DESCRIBE)
    with environment.member(group, [open_topic]) as refused:
        # librdkafka's handle also reports it, sooner or later, without the group.
        refused.wait(lambda w: any(group in error.str() for error in w.notes.errors), "the refusal of the group")
        assert {error.code() for error in refused.notes.errors} == {KafkaError.GROUP_AUTHORIZATION_FAILED}
    produce(bootstrap, open_topic, 20)
    with environment.member(unique("group"), [closed_topic]) as refused_member:
        refused_member.wait(lambda w: bool(w.notes.errors), "the refusal of the topic")
        assert refused_member.notes.errors[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert not refused_member.notes.errors[0].fatal()
        refused_member.order(lambda consumer: consumer.subscribe([open_topic]))
        refused_member.wait(lambda w: len(w.notes.records) == 20, "20 records of the other topic")


def test_session_timeout_outside_the_broker_s_bounds_is_fatal(broker: Broker) -> None:
    """Rules 4.9: INVALID_SESSION_TIMEOUT is fatal, and its error has the value and the two settings that bound it."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    config: dict[str, Any] = {"group_protocol": "classic", "session_timeout_ms": 1000}
    with Worker(broker.bootstrap_servers, unique("group"), [topic], **config) as worker:
        worker.wait(lambda w: bool(w.notes.errors), "the fatal error")
        error = worker.notes.errors[0]
        assert (error.code(), error.fatal()) == (KafkaError.INVALID_SESSION_TIMEOUT, True)
        assert "session.timeout.ms=1000 is outside" in error.str()
        assert "group.min.session.timeout.ms" in error.str()


def test_member_without_a_common_assignor_is_refused_by_a_classic_group(broker: Broker) -> None:
    """Rules 4.9: INCONSISTENT_GROUP_PROTOCOL is fatal without a common assignor. Other members see no change."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    with Worker(broker.bootstrap_servers, group, [topic], **EAGER) as member:
        member.settled(2)
        calls = list(member.notes.calls)
        with Worker(broker.bootstrap_servers, group, [topic], **COOPERATIVE) as stranger:
            stranger.wait(lambda w: bool(w.notes.errors), "the fatal error")
            error = stranger.notes.errors[0]
            assert (error.code(), error.fatal()) == (KafkaError.INCONSISTENT_GROUP_PROTOCOL, True)
            assert "cooperative-sticky" in error.str()
        assert member.notes.calls == calls
