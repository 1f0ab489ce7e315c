"""Leases on a real broker: the session that they count, and the tokens of successive owners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from consumer_membership.errors import LeaseOverError
from consumer_membership.processing import HandlerContext, Processor
from tests.integration.polls import poll_until
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import configure_group, create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.proxy import Proxy
from tests.support.versions import NEWEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def quick_broker(broker_pool: RunBrokers) -> Broker:
    """A broker whose sessions end after 6 s."""
    return broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)


def is_record(message: Message | None) -> bool:
    """Whether a poll returned a record, and not an error of the connection."""
    return message is not None and message.error() is None


@contextmanager
def member(servers: str, group: str, topic: str, **keys: object) -> Iterator[Consumer]:
    """A dynamic member with leases."""
    given = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**given, "ownership.lease.enable": True, **keys})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def test_lease_of_a_dynamic_member_ends_before_the_session_of_its_group(quick_broker: Broker) -> None:
    """The broker's default session of 6 s is read from the group's configuration."""
    topic, group = create_topic(quick_broker.bootstrap_servers, unique("topic"), 1), unique("group")
    with member(quick_broker.bootstrap_servers, group, topic, **{"group.protocol": "consumer"}) as consumer:
        poll_until(lambda: consumer.membership().session_timeout_s == 6.0, "the session timeout", consumer)
        poll_until(consumer.assignment, "the partition", consumer)
        lease, view = consumer.lease(Partition(topic, 0)), consumer.membership()
        assert not view.is_session_assumed
        assert 0 < lease.remaining <= 0.95 * 6.0
        with lease.guard(at_least_s=1.0) as guard:
            pass
        assert guard.held


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_token_grows_with_each_owner_of_a_partition(kafka: Broker, protocol: str) -> None:
    """Three members own the partition one after the other; the lease of a former owner is over."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    tokens = []
    for _ in range(3):
        with member(kafka.bootstrap_servers, group, topic, **{"group.protocol": protocol}) as consumer:
            poll_until(lambda: consumer.membership().owned, "the partition", consumer)
            lease = consumer.lease(Partition(topic, 0))
            tokens.append(lease.token)
        with pytest.raises(LeaseOverError, match="nothing was begun"), lease.guard():
            pytest.fail("the work began")
    assert tokens == sorted(set(tokens))


def test_token_grows_with_each_process_that_continues_under_one_instance_id(kafka: Broker) -> None:
    """Each process gets the place after a leave, by a takeover or by a hand-over; the epoch alone would not change.

    The other member keeps its partitions.
    """
    servers = kafka.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 4), unique("group")
    keys: dict[str, Any] = {"group_protocol": "consumer", "ownership_lease_enable": True}
    with ExitStack() as workers:

        def start(**given: Any) -> Worker:
            return workers.enter_context(Worker(servers, group, [topic], **keys, **given))

        def token(worker: Worker) -> int:
            worker.settled(2)
            return worker.consumer.lease(place).token

        other, one = start(), start(group_instance_id="i")
        other.settled(2)
        one.settled(2)
        kept, calls, place = other.owned, list(other.notes.calls), Partition(*min(one.owned))
        tokens = [token(one)]
        for policy, is_left in (("takeover", True), ("takeover", False), ("hand-over", True), ("hand-over", False)):
            if is_left:
                one.stop()
            one = start(group_instance_id="i", group_instance_id_conflict_policy=policy)
            tokens.append(token(one))
        assert tokens == sorted(set(tokens))
        assert (other.owned, other.notes.calls) == (kept, calls)


def test_classic_member_with_an_instance_id_has_leases_without_a_token(kafka: Broker) -> None:
    """A replacement continues at the same generation, so a token would not distinguish the two processes."""
    servers = kafka.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 1), unique("group")
    keys: dict[str, object] = {"group.protocol": "classic", "group.instance.id": "i"}
    with member(servers, group, topic, **keys) as old, member(servers, group, topic, **keys) as new:
        poll_until(lambda: old.membership().owned, "the partition", old)
        poll_until(lambda: new.membership().owned, "the partition", new)
        lease = new.lease(Partition(topic, 0))
        assert lease.holds
        with pytest.raises(KafkaException, match=r"has no token: a classic member with a group\.instance\.id"):
            print(lease.token)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_token_grows_when_a_partition_moves_to_a_living_member(kafka: Broker, protocol: str) -> None:
    """The new owner's epoch is that of the assignment that moved the partition, or a later one."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    keys: dict[str, object] = {"group.protocol": protocol}
    if protocol == "classic":
        keys["partition.assignment.strategy"] = "cooperative-sticky"
    with member(kafka.bootstrap_servers, group, topic, **keys) as one:
        poll_until(lambda: len(one.membership().owned) == 2, "both partitions", one)
        before = {number: one.lease(Partition(topic, number)) for number in range(2)}
        with member(kafka.bootstrap_servers, group, topic, **keys) as two:
            poll_until(lambda: len(one.membership().owned) == len(two.membership().owned) == 1, "a share", one, two)
            (moved,) = two.membership().owned
            assert two.lease(Partition(topic, moved.partition)).token > before[moved.partition].token
            assert (before[moved.partition].holds, before[1 - moved.partition].holds) == (False, True)


def last_and_first_record(old: Consumer, new: Consumer) -> tuple[float, float]:
    """Poll both until `new` has a record; return the times of `old`'s last record (0: none) and of that record.

    `old` polls slowly, so that it still has records when its session ends, and returns none of them later.
    """
    last_at = 0.0
    while True:
        if is_record(old.poll(0)):
            last_at = monotonic()
        if is_record(new.poll(0.02)):
            began_at = monotonic()
            assert [one for one in (old.poll(0) for _ in range(100)) if is_record(one)] == []
            return last_at, began_at


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_dynamic_member_that_is_cut_off_stops_before_the_next_owner_begins(quick_broker: Broker, protocol: str) -> None:
    """It has records in its buffer, and its session is that of the group's configuration; one clock measures both."""
    servers = quick_broker.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 1), unique("group")
    keys: dict[str, object] = {"group.protocol": protocol, "auto.offset.reset": "earliest"}
    if protocol == "classic":
        keys["session.timeout.ms"] = 6000
    with Proxy(servers) as proxy, member(proxy.address, group, topic, **keys) as old:
        poll_until(lambda: protocol == "classic" or old.membership().session_timeout_s, "the session", old)
        produce(servers, topic, 5000)
        wait_until(lambda: is_record(old.poll(0.1)) and old._ready, "buffered records")
        # The new consumer joins with its first poll. It exists before the cut, because a start can take a session.
        with member(servers, group, topic, **keys) as new:
            proxy.cut()
            last_at, began_at = last_and_first_record(old, new)
        assert 0.0 < last_at < began_at


def test_member_that_is_cut_off_after_its_session_was_lowered_stops_in_time(quick_broker: Broker) -> None:
    """The timeout is read while the member runs, so its lease has the length of the new session."""
    servers = quick_broker.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 1), unique("group")
    keys: dict[str, object] = {"group.protocol": "consumer", "auto.offset.reset": "earliest"}
    with Proxy(servers) as proxy, member(proxy.address, group, topic, **keys) as old:
        poll_until(lambda: old.membership().session_timeout_s == 6.0, "the former session", old)
        configure_group(servers, group, {"consumer.session.timeout.ms": "2000"})
        wait_until(lambda: old.membership().session_timeout_s == 2.0, "the new session", between=lambda: old.poll(0.01))
        assert old.lease(Partition(topic, 0)).remaining <= 0.95 * 2.0
        produce(servers, topic, 5000)
        wait_until(lambda: is_record(old.poll(0.1)) and old._ready, "buffered records")
        # The new consumer joins with its first poll. It exists before the cut, because a start can take a session.
        with member(servers, group, topic, **keys) as new:
            proxy.cut()
            last_at, began_at = last_and_first_record(old, new)
        assert 0.0 < last_at < began_at


def test_handler_receives_the_lease_of_its_partition_with_its_first_record(kafka: Broker) -> None:
    """The lease begins with on_assign, and its token is the epoch in the context."""
    servers = kafka.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 1), unique("group")
    produce(servers, topic, 3)
    seen: list[tuple[bool, bool]] = []

    def handle(_: Message, context: HandlerContext) -> None:
        with context.lease.guard() as guard:
            is_epoch = context.lease.token == context.epoch
        seen.append((is_epoch, guard.held is True))
        if len(seen) == 3:
            processor.stop()

    config = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    processor = Processor({**config, "ownership.lease.enable": True}, [topic], handle)
    processor.run()
    assert seen == [(True, True)] * 3
