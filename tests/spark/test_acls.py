"""The Spark rows of the ACL table in docs/operating/tls-sasl-acls.md; `tests/test_acl_table.py` maps them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType

from consumer_membership.devbroker import Broker
from consumer_membership.errors import GroupError, MembershipError, SinkError
from consumer_membership.spark import CheckpointFolder
from consumer_membership.spark.mirror import _MirroredGroup
from consumer_membership.spark.sinks import KafkaSink
from consumer_membership.spark.source.options import read_options
from consumer_membership.spark.source.stream import GroupStream
from tests.spark.sinks.builders import use
from tests.support.acls import AUTHORIZER, allow, forbid
from tests.support.brokers import RunBrokers
from tests.support.kafka import commit, create_topic, produce, unique
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def broker(broker_pool: RunBrokers) -> Broker:
    """A broker with an authorizer, shared with other tests: each test uses its own topics and groups."""
    return broker_pool.shared(NEWEST, properties=AUTHORIZER)


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with two partitions and ten records; READ is the only operation that every user may perform on it."""
    made = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    produce(broker.bootstrap_servers, made, 10)
    allow(broker.bootstrap_servers, ResourceType.TOPIC, made, AclOperation.READ)
    return made


def group_of(broker: Broker, operation: AclOperation) -> str:
    """Return a group on which every user may perform this operation, and those that it implies."""
    name = unique("group")
    allow(broker.bootstrap_servers, ResourceType.GROUP, name, operation)
    return name


def test_kafka_group_source_needs_read_on_group_and_topic(broker: Broker, topic: str) -> None:
    """A `kafka-group` stream plans a batch with READ alone; without READ on the group it raises an error."""

    def planned(group: str) -> int:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "group.id": group, "subscribe": topic}
        stream = GroupStream(read_options({**given, "startingOffsets": "earliest"}, is_streaming=True))
        try:
            first = stream.initial()
            return sum(piece.end - piece.first for task in stream.plan(first, stream.latest(first)) for piece in task)
        finally:
            stream.close()

    assert planned(group_of(broker, AclOperation.READ)) == 10
    with pytest.raises(MembershipError, match=r"[Aa]uthoriz"):
        planned(group_of(broker, AclOperation.DESCRIBE))


def test_offset_mirror_needs_read_on_group_and_topic(broker: Broker, topic: str) -> None:
    """The mirror commits with READ alone; without READ on the group its state has the error."""

    @contextmanager
    def mirrored(group: str) -> Iterator[_MirroredGroup]:
        made = _MirroredGroup("query", group, {"bootstrap.servers": broker.bootstrap_servers})
        made.show(0, {(topic, 0): 5, (topic, 1): 5})
        try:
            yield made
        finally:
            made.end()
            made.join()

    with mirrored(group_of(broker, AclOperation.READ)) as shown:
        wait_until(lambda: shown.state.batch_id == 0, "the mirrored batch", seen=lambda: shown.state)
    denied = group_of(broker, AclOperation.DESCRIBE)
    with mirrored(denied) as shown:
        wait_until(lambda: shown.state.error is not None, "the error")
        assert denied in str(shown.state.error)


def test_checkpoint_commands_need_describe_to_read_a_group_and_read_to_write_it(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """`from_group` needs DESCRIBE on group and topics; `to_group` needs READ on both."""
    config = {"bootstrap.servers": broker.bootstrap_servers}
    source = unique("source")
    commit(broker.bootstrap_servers, source, *(TopicPartition(topic, number, 3) for number in range(2)))
    allow(broker.bootstrap_servers, ResourceType.GROUP, source, AclOperation.DESCRIBE)
    made = CheckpointFolder(str(tmp_path / "checkpoint"))
    assert made.from_group(config, source) == {(topic, 0): 3, (topic, 1): 3}
    # `to_group` refuses the folder of a query that may be running; recent writes are the only sign of that.
    for path in (tmp_path / "checkpoint").rglob("*"):
        os.utime(path, (0, 0))
    target = group_of(broker, AclOperation.READ)
    assert made.to_group(config, target).offsets == {(topic, 0): 3, (topic, 1): 3}
    with pytest.raises(GroupError, match=r"[Aa]uthoriz"):
        made.to_group(config, group_of(broker, AclOperation.DESCRIBE))
    hidden = unique("hidden")
    forbid(broker.bootstrap_servers, ResourceType.GROUP, hidden, AclOperation.DESCRIBE)
    with pytest.raises(GroupError, match="DESCRIBE on the group"):
        CheckpointFolder(str(tmp_path / "other")).from_group(config, hidden)


def test_kafka_sink_needs_write_on_its_transactional_id_and_topics(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`prepare` fails without WRITE on the transactional id, and `check_use` without WRITE on a topic."""
    # By default the check raises another error if a busy broker does not respond within five seconds.
    monkeypatch.setattr("consumer_membership.spark.sinks.kafka._CHECK_S", PATIENCE_S)
    servers = broker.bootstrap_servers
    name, out = unique("tx"), create_topic(servers, unique("out"))
    forbid(servers, ResourceType.TRANSACTIONAL_ID, f"{name}-0", AclOperation.WRITE)
    config = {"bootstrap.servers": servers, "transactional.id": name}
    with pytest.raises(SinkError, match=r"[Aa]uthoriz"):
        KafkaSink(config, lambda _: ()).prepare(0, "pipe-0")
    KafkaSink(config, lambda _: ()).prepare(1, "pipe-1")
    allow(servers, ResourceType.TOPIC, out, AclOperation.READ)
    with pytest.raises(MembershipError, match="operation WRITE"):
        KafkaSink(config, lambda _: (), topics=[out]).check_use(use())
