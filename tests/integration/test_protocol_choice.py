"""`group.protocol=auto` on real brokers: which protocol a member uses, why, and how it reports that."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.membership.states import MemberState
from consumer_membership.types import GroupProtocol
from tests.integration.environments import COOPERATIVE, EAGER
from tests.integration.offsets import committed
from tests.integration.polls import poll_until
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import CLASSIC_ONLY, SHORT_SESSIONS
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_LOG = "consumer_membership.membership"


@pytest.fixture(params=[NEWEST, OLDEST])
def old_style(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Broker:
    """A broker with the consumer protocol switched off."""
    return broker_pool.shared(request.param, properties=CLASSIC_ONLY)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The membership's log messages of INFO and above."""
    caplog.set_level(logging.INFO, logger=_LOG)
    return caplog


def lines(log: pytest.LogCaptureFixture, words: str) -> list[str]:
    """Return the messages that contain this text."""
    return [record.getMessage() for record in log.records if words in record.getMessage()]


def protocol_of(worker: Worker) -> tuple[GroupProtocol, str]:
    """The protocol in the view."""
    view = worker.consumer.membership()
    return view.protocol, view.protocol_reason


@contextmanager
def raw_member(broker: Broker, group: str, topic: str, **config: object) -> Iterator[RawConsumer]:
    """A confluent-kafka member that has its partitions; the caller polls it."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = RawConsumer(settings | {key.replace("_", "."): value for key, value in config.items()})
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()


# ---- the consumer protocol, where it is offered ---------------------------------------------------------------------


def test_auto_selects_the_consumer_protocol_by_default(broker: Broker, log: pytest.LogCaptureFixture) -> None:
    """B02: Without configuration, the view and one log line name the protocol and the reason."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    with Worker(broker.bootstrap_servers, unique("group"), [topic]) as worker:
        worker.settled(2)
        assert protocol_of(worker) == (GroupProtocol.CONSUMER, "group.protocol=auto")
    assert len(lines(log, "Group protocol: consumer (group.protocol=auto)")) == 1


def test_auto_warns_once_about_each_key_of_the_other_protocol(broker: Broker, log: pytest.LogCaptureFixture) -> None:
    """Such a key does not decide the protocol; one warning for each names the setting that replaces it."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    config: dict[str, Any] = {"session_timeout_ms": 30_000, "partition_assignment_strategy": "cooperative-sticky"}
    with Worker(broker.bootstrap_servers, unique("group"), [topic], **config) as worker:
        worker.settled(2)
        worker.order(lambda consumer: consumer.unsubscribe())
        worker.wait(lambda w: w.state is MemberState.UNSUBSCRIBED, "UNSUBSCRIBED")
        worker.order(lambda consumer: consumer.subscribe([topic]))
        worker.settled(2)
        assert worker.consumer.membership().protocol is GroupProtocol.CONSUMER
    (session,) = lines(log, "session.timeout.ms=30000 is not used")
    assert "group.consumer.session.timeout.ms" in session
    assert "consumer.session.timeout.ms for one group" in session
    (strategy,) = lines(log, "partition.assignment.strategy=cooperative-sticky is not used")
    assert "group.remote.assignor" in strategy


def test_own_assignor_selects_the_classic_protocol(broker: Broker, log: pytest.LogCaptureFixture) -> None:
    """A user's assignor runs only in classic groups, so the consumer protocol is not tried."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    config: dict[str, Any] = {"partition_assignment_strategy": "tests.integration.assignors:Alphabetical"}
    with Worker(broker.bootstrap_servers, unique("group"), [topic], **config) as worker:
        worker.settled(2)
        protocol, reason = protocol_of(worker)
        assert protocol is GroupProtocol.CLASSIC
        assert "the assignor 'alphabetical' of partition.assignment.strategy runs in classic groups only" in reason
    assert lines(log, "refused") == []


# ---- the consumer protocol, where it is not offered -----------------------------------------------------------------


def test_broker_without_the_consumer_protocol_makes_classic_members(
    old_style: Broker, log: pytest.LogCaptureFixture
) -> None:
    """B01: UNSUPPORTED_VERSION makes members classic; view and log have the reason, and the group works."""
    topic = create_topic(old_style.bootstrap_servers, unique("topic"), 4)
    group = unique("group")
    with (
        Worker(old_style.bootstrap_servers, group, [topic]) as one,
        Worker(old_style.bootstrap_servers, group, [topic]) as two,
    ):
        one.settled(2)
        two.settled(2)
        protocol, reason = protocol_of(one)
        assert protocol is GroupProtocol.CLASSIC
        assert "group.protocol=auto; consumer was refused: UNSUPPORTED_VERSION" in reason
        assert (one.notes.errors, two.notes.errors) == ([], [])
        produce(old_style.bootstrap_servers, topic, 40)
        one.wait(lambda w: len(w.notes.records) + len(two.notes.records) == 40, "40 records")
    assert lines(log, f"Group protocol: classic ({reason})") != []
    assert [record for record in log.records if record.levelno >= logging.ERROR] == []


def test_commits_and_assignments_before_the_first_poll_survive_the_fallback(old_style: Broker) -> None:
    """The classic member executes commits and manual assignments that were requested before the fallback."""
    topic = create_topic(old_style.bootstrap_servers, unique("topic"), 2)
    produce(old_style.bootstrap_servers, topic, 20)
    group = unique("group")
    outcomes: list[object] = []
    settings = {"bootstrap.servers": old_style.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    # Automatic commits are on but not due: records that are polled before the member joins must not be committed.
    settings |= {"auto.commit.interval.ms": "600000"}
    consumer = Consumer(settings | {"on_commit": lambda error, _: outcomes.append(error)})
    try:
        consumer.assign([Partition(topic, 0, 0)])
        wait_until(lambda: consumer.poll(0.1), "the record")
        consumer.commit(offsets=[Partition(topic, 0, 1)], asynchronous=False)
        consumer.unassign()
        consumer.subscribe([topic])
        consumer.commit(offsets=[Partition(topic, 1, 7)], asynchronous=True)
        poll_until(
            lambda: consumer.membership().state is MemberState.STABLE and outcomes, "STABLE and an outcome", consumer
        )
        assert (consumer.membership().protocol, outcomes) == (GroupProtocol.CLASSIC, [None])
        assert committed(old_style, group, topic, 2)[1] == 7
    finally:
        consumer.close()


# ---- groups of the other type ---------------------------------------------------------------------------------------


def test_auto_joins_a_classic_group_with_members_as_a_classic_member(
    broker: Broker, log: pytest.LogCaptureFixture
) -> None:
    """The group has another client's member, and no setting requests a conversion; one log line names that setting."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 4)
    group = unique("group")
    with raw_member(broker, group, topic) as other, Worker(broker.bootstrap_servers, group, [topic]) as worker:
        worker.wait(lambda w: other.poll(0.05) is None and len(w.owned) == 2, "its share")
        worker.settled(2)
        protocol, reason = protocol_of(worker)
        assert protocol is GroupProtocol.CLASSIC
        assert reason == "group.protocol=auto; the group has 1 classic member; group.protocol=consumer converts it"
        assert worker.notes.errors == []
        admin = GroupAdmin({"bootstrap.servers": broker.bootstrap_servers})
        assert admin.describe(group).group.protocol is GroupProtocol.CLASSIC
    assert len(lines(log, f"Group protocol: classic ({reason})")) == 1


def test_auto_converts_an_emptied_classic_group(broker: Broker) -> None:
    """An empty group has only offsets, so a conversion affects no member."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    produce(broker.bootstrap_servers, topic, 10)
    group = unique("group")
    with raw_member(broker, group, topic) as other:
        other.commit(offsets=[Partition(topic, 0, 5), Partition(topic, 1, 5)], asynchronous=False)
    with Worker(broker.bootstrap_servers, group, [topic]) as worker:
        worker.settled(2)
        assert protocol_of(worker) == (GroupProtocol.CONSUMER, "group.protocol=auto")


def test_auto_with_a_pool_converts_no_classic_group_with_members(broker: Broker) -> None:
    """A pool requires the consumer protocol: with `auto` the member ends, and its error names the remedies."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    group = unique("group")
    with raw_member(broker, group, topic) as other:
        with Worker(broker.bootstrap_servers, group, [topic], group_instance_id_pool="a,b") as worker:
            worker.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the fatal error")
            words = str(worker.notes.errors[0])
        assert "the group has 1 classic member; group.protocol=consumer converts it" in words
        assert "remove group.instance.id.pool=a,b, which needs the consumer protocol" in words
        assert len(other.assignment()) == 2


def test_consumer_group_refuses_a_classic_only_member(broker_pool: RunBrokers) -> None:
    """B23: A member configured as classic ends with the broker's text if the group takes no classic members.

    Kafka 4.0.0 admits it under every policy.
    """
    strict = broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)
    topic = create_topic(strict.bootstrap_servers, unique("topic"), 4)
    group = unique("group")
    with Worker(strict.bootstrap_servers, group, [topic]) as holder:
        holder.settled(4)
        calls = list(holder.notes.calls)
        with Worker(strict.bootstrap_servers, group, [topic], group_protocol="classic") as refused:
            refused.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the fatal error")
            error = refused.notes.errors[0]
            assert (error.code(), error.fatal()) == (KafkaError.INCONSISTENT_GROUP_PROTOCOL, True)
            assert "set group.protocol to auto" in error.str()
        assert holder.notes.calls == calls


def test_classic_member_follows_its_group_to_the_consumer_protocol(broker_pool: RunBrokers) -> None:
    """B23: The group changed its protocol while the member was away; the member is refused as classic and changes."""
    strict = broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)
    topic = create_topic(strict.bootstrap_servers, unique("topic"), 4)
    group = unique("group")
    with Worker(strict.bootstrap_servers, group, [topic]) as worker:
        worker.stop()
    with raw_member(strict, group, topic) as other, Worker(strict.bootstrap_servers, group, [topic]) as worker:
        worker.wait(lambda w: other.poll(0.05) is None and len(w.owned) == 2, "its share")
        assert protocol_of(worker)[0] is GroupProtocol.CLASSIC
        worker.order(lambda consumer: consumer.unsubscribe())
        worker.wait(lambda w: other.poll(0.05) is None and w.state is MemberState.UNSUBSCRIBED, "UNSUBSCRIBED")
        other.close()
        with raw_member(strict, group, topic, group_protocol="consumer") as newer:
            worker.order(lambda consumer: consumer.subscribe([topic]))
            worker.wait(lambda w: newer.poll(0.05) is None and len(w.owned) == 2, "its share")
            protocol, reason = protocol_of(worker)
            assert protocol is GroupProtocol.CONSUMER
            assert "classic was refused: INCONSISTENT_GROUP_PROTOCOL" in reason
            assert worker.notes.errors == []


@pytest.mark.parametrize("mode", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("instance_id", [None, "a"], ids=["dynamic", "static"])
def test_consumer_protocol_member_converts_a_classic_group(
    broker: Broker, mode: Mapping[str, Any], instance_id: str | None
) -> None:
    """B21, B22: Under Kafka's default policy the first consumer protocol member converts a group.

    The leave of the last one converts it back.
    """
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 4)
    group = unique("group")
    with Worker(broker.bootstrap_servers, group, [topic], **mode, group_instance_id=instance_id) as classic:
        classic.settled(4)
        with Worker(broker.bootstrap_servers, group, [topic], group_protocol="consumer") as newer:
            newer.settled(2)
            classic.settled(2)
            assert [protocol_of(worker)[0] for worker in (classic, newer)] == [
                GroupProtocol.CLASSIC,
                GroupProtocol.CONSUMER,
            ]
        classic.settled(4)
        assert (classic.notes.errors, classic.notes.named("lost")) == ([], [])


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_empty_group_changes_its_type_under_every_policy(broker_pool: RunBrokers, version: str) -> None:
    """B20: An empty group takes the type of its next member and keeps its offsets."""
    strict = broker_pool.shared(version, properties=SHORT_SESSIONS)
    topic = create_topic(strict.bootstrap_servers, unique("topic"), 2)
    group, seen = unique("group"), 0
    for protocol in ("classic", "consumer", "classic", "auto"):
        produce(strict.bootstrap_servers, topic, 10)
        with Worker(strict.bootstrap_servers, group, [topic], group_protocol=protocol) as worker:
            worker.wait(lambda w: len(w.notes.records) == 10, "ten new records")
            seen += 10
        assert (worker.notes.errors, len(worker.notes.records)) == ([], 10)
    assert sum(committed(strict, group, topic, 2).values()) == seen


#: A kafka-python member with an assignor that sends user data to each member. It has its own process, because its
#: import warns, and ends with the process that holds its stdin. It refreshes its metadata often, because they may have
#: fewer partitions at first.
_TELLS = """
import os, sys, threading
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

class Telling(RangePartitionAssignor):
    @classmethod
    def assign(cls, cluster, members):
        shares = super().assign(cluster, members)
        for share in shares.values():
            share.user_data = b"a word"
        return shares

threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
consumer = KafkaConsumer(sys.argv[3], bootstrap_servers=sys.argv[1], group_id=sys.argv[2], heartbeat_interval_ms=200,
    metadata_max_age_ms=500, partition_assignment_strategy=[Telling])
while True:
    # It gives up what it waits for when this is over: with less it never joins on a machine that is slow.
    consumer.poll(timeout_ms=2000)
    if consumer.assignment():
        print(len(consumer.assignment()), flush=True)
"""


def test_user_data_keeps_a_group_classic(broker: Broker) -> None:
    """B24: The coordinator does not convert a group whose assignor sends user data. The data would be lost."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 4)
    group = unique("group")
    words = [sys.executable, "-c", _TELLS, broker.bootstrap_servers, group, topic]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other, ExitStack() as at_the_end:
        at_the_end.callback(other.kill)
        assert other.stdout is not None
        # Its metadata may get the topic's partitions one after the other.
        assert b"4\n" in iter(other.stdout.readline, b"")
        with Worker(broker.bootstrap_servers, group, [topic], group_protocol="consumer") as worker:
            worker.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the fatal error")
            error = worker.notes.errors[0]
            assert (error.code(), error.fatal()) == (KafkaError.GROUP_ID_NOT_FOUND, True)
            assert "an unsupported custom assignor is in use" in error.str()
