"""Surveys and listings on a real broker: a group's state and environment, with errors in place of unavailable parts."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AclOperation, ResourceType

from consumer_membership.admin import GroupAdmin, PartitionOffsets, Subject
from consumer_membership.devbroker import Broker
from consumer_membership.errors import TransportError
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.support.acls import AUTHORIZER, forbid
from tests.support.brokers import RunBrokers
from tests.support.kafka import commit, create_topic, open_transaction, produce, unique
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_survey_returns_offsets_and_open_transactions(kafka: Broker) -> None:
    """Each partition of the group's topics has start, end and last stable offset."""
    topic, group, name = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group"), unique("tx")
    produce(kafka.bootstrap_servers, topic, 4)
    commit(kafka.bootstrap_servers, group, Partition(topic, 0, 1))
    admin = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    open_transaction(kafka.bootstrap_servers, topic, name)
    survey = admin.survey(group)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    committed = survey.committed[p0]
    assert isinstance(committed, OffsetAndMetadata)
    assert (set(survey.committed), committed.offset) == ({p0}, 1)
    assert survey.offsets == {
        p0: PartitionOffsets(start=0, end=3, stable=2),
        p1: PartitionOffsets(start=0, end=2, stable=2),
    }
    (opened,) = survey.transactions
    assert (opened.partition, opened.transactional_id, opened.start_offset) == (p0, name, 2)
    assert (opened.state, opened.timeout_ms) == ("Ongoing", 600_000)
    assert survey.group is not None
    assert (survey.group.state, survey.refusals, list(survey.topics)) == ("Empty", {}, [topic])
    assert int(survey.broker_settings["group.consumer.max.size"]) > 0
    assert int(survey.group_settings["consumer.session.timeout.ms"]) > 0


def test_quick_survey_returns_only_group_offsets_and_ends(kafka: Broker) -> None:
    """A quick survey omits settings and transactions, which rarely change."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    commit(kafka.bootstrap_servers, group, Partition(topic, 0, 0))
    survey = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).survey(group, in_depth=False)
    assert survey.offsets == {TopicPartition(topic, 0): PartitionOffsets(start=None, end=0, stable=None)}
    assert (survey.broker_settings, survey.group_settings, survey.transactions) == ({}, {}, ())


def test_survey_of_missing_group_contains_refusal(kafka: Broker) -> None:
    """A missing group does not fail the survey."""
    survey = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).survey(unique("nobody"))
    assert survey.group is None
    assert survey.refusals[Subject.GROUP].name == "GROUP_ID_NOT_FOUND"


def test_survey_without_describe_on_group_returns_other_parts(broker_pool: RunBrokers) -> None:
    """A missing ACL affects only its own part; the broker settings, for example, are returned."""
    broker = broker_pool.shared(properties=AUTHORIZER)
    topic, group = create_topic(broker.bootstrap_servers, unique("topic")), unique("group")
    commit(broker.bootstrap_servers, group, Partition(topic, 0, 0))
    forbid(broker.bootstrap_servers, ResourceType.GROUP, group, AclOperation.DESCRIBE)
    survey = GroupAdmin({"bootstrap.servers": broker.bootstrap_servers}, timeout_s=PATIENCE_S).survey(group)
    assert survey.refusals[Subject.COORDINATOR].name == "GROUP_AUTHORIZATION_FAILED"
    assert survey.broker_settings


def test_survey_of_unreachable_cluster_raises() -> None:
    """A survey raises an error if no broker responds."""
    with pytest.raises(TransportError):
        GroupAdmin({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.5).survey("g")


def test_list_groups_returns_state_and_type(kafka: Broker) -> None:
    """A group that only holds offsets is classic and empty."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    commit(kafka.bootstrap_servers, group, Partition(topic, 0, 0))
    listing = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).list_groups()
    (found,) = [one for one in listing.groups if one.group_id == group]
    assert (found.state, found.kind, listing.errors) == ("Empty", "classic", {})
