"""Each row of the ACL table in docs/operating/tls-sasl-acls.md: what the operation allows, and what fails without it.

On these brokers a resource without ACLs is open to everyone, and a resource with an ACL denies every operation that no
ACL allows. `tests/test_acl_table.py` maps the rows to these and to other tests.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AclOperation, ResourceType

from consumer_membership import Consumer, Producer
from consumer_membership.admin import GroupAdmin, GroupSurvey, Subject
from consumer_membership.devbroker import Broker
from tests.integration.environments import CONSUMER, COOPERATIVE
from tests.integration.polls import poll_until
from tests.runtime.guardian.consumers import ConsumerProcess
from tests.support.acls import AUTHORIZER, allow, forbid, restrict_cluster
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import commit, create_topic, open_transaction, produce, unique
from tests.support.telemetry import receiver
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS = 20
#: Kafka's name of the only resource of the type cluster.
CLUSTER = "kafka-cluster"


@pytest.fixture
def broker(broker_pool: RunBrokers) -> Broker:
    """A broker with an authorizer, shared with other tests: each test uses its own topics and groups."""
    return broker_pool.shared(NEWEST, properties=AUTHORIZER)


@pytest.fixture
def topic(broker: Broker) -> str:
    """Two partitions with records; no ACL yet."""
    made = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    produce(broker.bootstrap_servers, made, RECORDS)
    return made


def allow_reading(broker: Broker, group: str, topic: str) -> None:
    """Allow READ on the group and the topic, which includes DESCRIBE, and no other operation on them."""
    allow(broker.bootstrap_servers, ResourceType.GROUP, group, AclOperation.READ)
    allow(broker.bootstrap_servers, ResourceType.TOPIC, topic, AclOperation.READ)


@pytest.mark.parametrize("mode", [CONSUMER, COOPERATIVE], ids=["consumer", "cooperative"])
def test_read_on_group_and_topic_is_enough_for_a_static_consumer_and_its_takeover(
    broker: Broker, topic: str, mode: Mapping[str, Any]
) -> None:
    """READ on the group and on the topic is enough to join, fetch, commit, and take over a static member's place."""
    servers, group = broker.bootstrap_servers, unique("group")
    allow_reading(broker, group, topic)
    # With automatic commits, the commit below could have nothing left to commit, which is an error.
    with Worker(servers, group, [topic], group_instance_id="i", enable_auto_commit=False, **mode) as former:
        former.wait(lambda w: len(w.notes.records) == RECORDS, "all records")
        former.do(lambda consumer: consumer.commit(asynchronous=False))
        with Worker(servers, group, [topic], group_instance_id="i", **mode) as newcomer:
            newcomer.settled(2)
            found = newcomer.consumer.committed([Partition(topic, 0), Partition(topic, 1)], PATIENCE_S)
            assert sum(one.offset for one in found) == RECORDS
            # In a classic group, the former holder is also fenced.
            former.wait(lambda w: bool(w.notes.errors), "its fatal error")
            assert former.notes.errors[0].code() == KafkaError.FENCED_INSTANCE_ID


def test_topic_without_read_is_assigned_but_not_fetched_and_not_committed(broker: Broker, topic: str) -> None:
    """With DESCRIBE alone on a topic, a member gets its partitions; each fetch and each commit is rejected."""
    servers, group = broker.bootstrap_servers, unique("group")
    allow(servers, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    refused: list[object] = []

    def commits(consumer: Consumer) -> None:
        try:
            consumer.commit(offsets=[Partition(topic, 0, 1)], asynchronous=False)
        except KafkaException as error:
            refused.append(error.args[0].code())

    with Worker(servers, group, [topic]) as member:
        member.settled(2)
        member.wait(lambda w: bool(w.notes.errors), "the rejected fetch")
        assert {error.code() for error in member.notes.errors} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
        assert not any(error.fatal() for error in member.notes.errors)
        member.do(commits)
        assert refused == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        assert member.notes.records == []


@pytest.mark.parametrize("mode", [CONSUMER, COOPERATIVE], ids=["consumer", "cooperative"])
def test_pattern_omits_topics_without_describe_and_reports_no_error(broker: Broker, mode: Mapping[str, Any]) -> None:
    """A pattern matches only topics that the member may describe; the others are omitted without an error."""
    servers, prefix = broker.bootstrap_servers, unique("pattern")
    seen, hidden = create_topic(servers, f"{prefix}-seen", 2), create_topic(servers, f"{prefix}-hidden", 2)
    forbid(servers, ResourceType.TOPIC, hidden, AclOperation.DESCRIBE)
    with Worker(servers, unique("group"), [f"^{prefix}-"], **mode) as member:
        member.settled(2)
        assert {name for name, _ in member.owned} == {seen}
        assert member.notes.errors == []


def test_allow_auto_create_topics_needs_create_on_topic_or_cluster(broker_pool: RunBrokers) -> None:
    """Without CREATE on the topic and on the cluster, a subscribed topic is not created, and an error names it."""
    with broker_pool.own(NEWEST, properties={**AUTHORIZER, "auto.create.topics.enable": "true"}) as broker:
        servers, denied = broker.bootstrap_servers, unique("denied")
        granted = unique("granted")
        restrict_cluster(servers)
        allow(servers, ResourceType.TOPIC, granted, AclOperation.CREATE)
        allow(servers, ResourceType.TOPIC, granted, AclOperation.READ)
        with Worker(servers, unique("group"), [granted], allow_auto_create_topics=True) as member:
            member.settled(1)
        forbid(servers, ResourceType.TOPIC, denied, AclOperation.CREATE)
        with Worker(servers, unique("group"), [denied], allow_auto_create_topics=True) as member:
            member.wait(
                lambda w: any(error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED for error in w.notes.errors),
                "the refusal of the topic",
            )
            assert any(denied in error.str() for error in member.notes.errors)
            assert member.owned == frozenset()


def test_guardian_needs_read_on_the_group_and_logs_a_refused_leave(broker: Broker, topic: str, tmp_path: Path) -> None:
    """READ on the group is enough for the guardian; without it, the leave is refused with error code 30."""
    servers = broker.bootstrap_servers
    group, denied = unique("group"), unique("denied")
    allow_reading(broker, group, topic)
    with ConsumerProcess(servers, group, topic, tmp_path / "allowed") as one:
        one.settled(2)
        one.kill()
        wait_until(lambda: len(one.guardian_lines()) == 1, "the guardian's line", seen=one.log.read_text)
        assert "left on its behalf (epoch -1)" in one.guardian_lines()[0]
    # A stopped member sends no request between the new ACL and its death, and so receives no refusal itself.
    with ConsumerProcess(servers, denied, topic, tmp_path / "denied") as one:
        one.settled(2)
        one.process.send_signal(signal.SIGSTOP)
        allow(servers, ResourceType.GROUP, denied, AclOperation.DESCRIBE)
        wait_until(lambda: is_commit_denied(broker, denied, topic), "the ACL")
        one.kill()
        wait_until(lambda: len(one.guardian_lines()) == 1, "the guardian's line", seen=one.log.read_text)
        assert "could not leave on its behalf" in one.guardian_lines()[0]
        assert "error code 30" in one.guardian_lines()[0]


def test_hand_over_without_read_on_the_helper_group_works_like_wait(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Holder and successor log a warning; the successor waits, and joins when the holder leaves."""
    servers, group = broker.bootstrap_servers, unique("group")
    allow_reading(broker, group, topic)
    forbid(servers, ResourceType.GROUP, f"{group}.hand-over", AclOperation.READ)
    config: Mapping[str, Any] = {"group_instance_id": "i", "group_instance_id_conflict_policy": "hand-over"}
    warning = f"Hand-overs need READ on the helper group '{group}.hand-over'"
    with Worker(servers, group, [topic], **config) as former:
        former.settled(2)
        with Worker(servers, group, [topic], **config) as newcomer:
            newcomer.wait(lambda _: caplog.text.count(warning) == 2, "the warnings of both")
            newcomer.wait(lambda w: w.consumer.membership().waits_for == "group.instance.id", "its wait for the id")
            owned = former.owned
            former.stop()
            newcomer.settled(2)
            assert (newcomer.owned, former.notes.errors) == (owned, [])


def is_commit_denied(broker: Broker, group: str, topic: str) -> bool:
    """Return whether the broker applies the missing READ on the group; before, it rejects the unknown member."""
    try:
        commit(broker.bootstrap_servers, group, Partition(topic, 0, 0))
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED)
    return False


def surveyed(broker: Broker, group: str) -> GroupSurvey:
    """What `consumer-membership doctor` requests."""
    return GroupAdmin({"bootstrap.servers": broker.bootstrap_servers}, timeout_s=PATIENCE_S).survey(group)


def test_survey_names_open_transactions_only_with_read_and_describe(broker: Broker, topic: str) -> None:
    """Open transactions need READ on the topic; their names need DESCRIBE on the transactional id."""
    servers, group, name = broker.bootstrap_servers, unique("group"), unique("tx")
    commit(broker.bootstrap_servers, group, Partition(topic, 0, 1))
    # The producer ends before the rules change: it would fail if it looked up its coordinator without DESCRIBE.
    open_transaction(servers, topic, name)
    assert [one.transactional_id for one in surveyed(broker, group).transactions] == [name]
    allow(servers, ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE)
    forbid(servers, ResourceType.TRANSACTIONAL_ID, name, AclOperation.DESCRIBE)
    wait_until(
        lambda: [one.transactional_id for one in surveyed(broker, group).transactions] == [None],
        "a transaction without its name",
        seen=lambda: surveyed(broker, group).transactions,
    )
    allow(servers, ResourceType.TOPIC, topic, AclOperation.WRITE)
    wait_until(lambda: Subject.TRANSACTIONS in surveyed(broker, group).refusals, "the refusal of open transactions")


def test_survey_needs_describe_configs_for_the_settings_of_broker_and_group(broker_pool: RunBrokers) -> None:
    """Without DESCRIBE_CONFIGS on cluster and group, the survey has no limits, and everything else."""
    with broker_pool.own(NEWEST, properties=AUTHORIZER) as broker:
        servers, group = broker.bootstrap_servers, unique("group")
        commit(broker.bootstrap_servers, group, Partition(create_topic(servers, unique("topic")), 0, 0))
        restrict_cluster(servers)
        allow(servers, ResourceType.GROUP, group, AclOperation.READ)
        both = {Subject.BROKER_SETTINGS, Subject.GROUP_SETTINGS}
        wait_until(lambda: surveyed(broker, group).refusals.keys() == both, "both refusals")
        assert surveyed(broker, group).group is not None


def test_list_groups_shows_only_groups_with_describe(broker_pool: RunBrokers) -> None:
    """Without DESCRIBE on the cluster, the listing has only the groups with DESCRIBE on the group."""
    with broker_pool.own(NEWEST, properties=AUTHORIZER) as broker:
        servers, seen, hidden = broker.bootstrap_servers, unique("seen"), unique("hidden")
        topic = create_topic(servers, unique("topic"))
        for group in (seen, hidden):
            commit(broker.bootstrap_servers, group, Partition(topic, 0, 0))

        def listed() -> list[str]:
            return [one.group_id for one in GroupAdmin({"bootstrap.servers": servers}).list_groups().groups]

        restrict_cluster(servers)
        allow(servers, ResourceType.GROUP, hidden, AclOperation.DESCRIBE_CONFIGS)
        # DESCRIBE on the cluster shows every group.
        assert set(listed()) == {seen, hidden}
        forbid(servers, ResourceType.BROKER, CLUSTER, AclOperation.DESCRIBE)
        wait_until(lambda: listed() == [seen], "the listing", seen=listed)


def test_transactional_producer_needs_write_on_transactional_id_and_topic(broker: Broker, topic: str) -> None:
    """Exactly once from Kafka to Kafka needs WRITE on the transactional id and on the topic, and READ on the group."""
    servers, name, group = broker.bootstrap_servers, unique("tx"), unique("group")
    allow(servers, ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE)
    allow(servers, ResourceType.TOPIC, topic, AclOperation.WRITE)
    source = create_topic(servers, unique("source"))
    allow_reading(broker, group, source)
    with Worker(servers, group, [source]) as member:
        member.settled(1)
        metadata = member.consumer.consumer_group_metadata()
        producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"out")
        producer.send_offsets_to_transaction([Partition(source, 0, 0)], metadata, PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        for kind, name, error in (
            (ResourceType.TOPIC, source, KafkaError.TOPIC_AUTHORIZATION_FAILED),
            (ResourceType.GROUP, group, KafkaError.GROUP_AUTHORIZATION_FAILED),
        ):
            forbid(servers, kind, name, AclOperation.READ)
            producer.begin_transaction()
            with pytest.raises(KafkaException) as refused:
                producer.send_offsets_to_transaction([Partition(source, 0, 0)], metadata, PATIENCE_S)
            assert refused.value.args[0].code() == error
            producer.abort_transaction(PATIENCE_S)
        read_only = create_topic(servers, unique("read-only"))
        allow(servers, ResourceType.TOPIC, read_only, AclOperation.READ)
        producer.begin_transaction()
        producer.produce(read_only, b"out")
        with pytest.raises(KafkaException) as refused:
            producer.commit_transaction(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        producer.abort_transaction(PATIENCE_S)
        member.take_raised()
    denied = unique("tx")
    forbid(servers, ResourceType.TRANSACTIONAL_ID, denied, AclOperation.WRITE)
    with pytest.raises(KafkaException) as refused:
        Producer({"bootstrap.servers": servers, "transactional.id": denied}).init_transactions(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_pushed_metrics_need_no_acl(broker_pool: RunBrokers, tmp_path: Path) -> None:
    """A consumer pushes its metrics (KIP-714) without any operation on the cluster."""

    def start(version: str, nodes: int | None, properties: Mapping[str, str], **options: Any) -> Any:
        return broker_pool.own(version, nodes, {**properties, **AUTHORIZER}, **options)

    with receiver(start, tmp_path) as metrics:
        servers, group, client_id = metrics.broker.bootstrap_servers, unique("group"), unique("client")
        metrics.subscribe("consumers", "org.apache.kafka.consumer.", 200)
        topic = create_topic(servers, unique("topic"), 1)
        produce(servers, topic, RECORDS)
        allow_reading(metrics.broker, group, topic)
        restrict_cluster(servers)
        forbid(servers, ResourceType.BROKER, CLUSTER, AclOperation.DESCRIBE)
        config = {"bootstrap.servers": servers, "group.id": group, "client.id": client_id}
        with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([topic])
            poll_until(lambda: bool(metrics.pushes(client_id)), "a push", consumer)
