"""What a real broker refuses: the protocol, the group, the topic. Each reaches the application with its remedy."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from consumer_membership.devbroker import start
from consumer_membership.membership.states import MemberState
from tests.integration.worker import Worker
from tests.support.kafka import create_topic, produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Whatever no rule forbids is allowed, so that a test forbids exactly one thing.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def forbid(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """Deny everybody this operation on this resource; the rule, to be able to take it back."""
    return _rule(bootstrap, kind, name, operation, AclPermissionType.DENY)


def allow(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """Allow everybody this operation on this resource, and what it implies, and nothing else."""
    return _rule(bootstrap, kind, name, operation, AclPermissionType.ALLOW)


def _rule(
    bootstrap: str, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
) -> AclBinding:
    rule = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([rule], request_timeout=20)[rule].result()
    return rule


def test_broker_without_the_consumer_protocol_is_named_with_the_remedy() -> None:
    """H32: UNSUPPORTED_VERSION is fatal and says which brokers have the protocol and what to set."""
    with start("4.0.0", properties={"group.coordinator.rebalance.protocols": "classic"}) as broker:
        topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
        with Worker(broker.bootstrap_servers, unique("group"), [topic]) as worker:
            worker.wait(lambda w: bool(w.notes.errors), "the fatal error")
            error = worker.notes.errors[0]
            assert (error.code(), error.fatal()) == (KafkaError.UNSUPPORTED_VERSION, True)
            assert "consumer" in error.str().lower()
            assert worker.state is MemberState.FATAL


def test_forbidden_group_is_fatal_and_forbidden_topic_is_reported() -> None:
    """H15: GROUP_AUTHORIZATION_FAILED ends the member; TOPIC_AUTHORIZATION_FAILED is told, and the member goes on."""
    with start("4.3.1", properties=AUTHORIZER) as broker:
        bootstrap = broker.bootstrap_servers
        open_topic = create_topic(bootstrap, unique("open"), 2)
        closed_topic = create_topic(bootstrap, unique("closed"), 2)
        group = unique("forbidden")
        forbid(bootstrap, ResourceType.GROUP, group, AclOperation.READ)
        forbid(bootstrap, ResourceType.TOPIC, closed_topic, AclOperation.DESCRIBE)
        with Worker(bootstrap, group, [open_topic]) as refused:
            refused.wait(lambda w: bool(w.notes.errors), "the refusal of the group")
            error = refused.notes.errors[0]
            assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            assert group in error.str()
        produce(bootstrap, open_topic, 20)
        with Worker(bootstrap, unique("group"), [closed_topic]) as told:
            told.wait(lambda w: bool(w.notes.errors), "the refusal of the topic")
            assert told.notes.errors[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            assert not told.notes.errors[0].fatal()
            told.order(lambda consumer: consumer.subscribe([open_topic]))
            told.wait(lambda w: len(w.notes.records) == 20, "20 records of the other topic")
