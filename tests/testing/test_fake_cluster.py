"""`FakeCluster`: real consumers on a cluster inside the test process, and the events that a test can cause."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

import consumer_membership
from consumer_membership import Consumer, MemberState
from consumer_membership.aio import AIOConsumer
from consumer_membership.errors import UseError
from consumer_membership.processing import Processor
from consumer_membership.testing import FakeCluster
from tests.support.waiting import PATIENCE_S

EARLIEST = {"auto.offset.reset": "earliest"}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Start a cluster with virtual time."""
    with FakeCluster() as cluster:
        yield cluster


def take(consumer: Consumer, count: int) -> list[Message]:
    """Poll this number of records."""
    taken = [consumer.poll(60) for _ in range(count)]
    assert all(message is not None and message.error() is None for message in taken)
    return [message for message in taken if message is not None]


def subscribed(cluster: FakeCluster, config: dict[str, object] | None = None) -> tuple[Consumer, list[tuple[str, int]]]:
    """Create a consumer of `orders`, and a list of its callbacks with the number of their partitions."""
    consumer, calls = cluster.consumer({**EARLIEST, "group.protocol": "consumer", **(config or {})}), []
    consumer.subscribe(
        ["orders"],
        on_assign=lambda _, partitions: calls.append(("assigned", len(partitions))),
        on_revoke=lambda _, partitions: calls.append(("revoked", len(partitions))),
        on_lost=lambda _, partitions: calls.append(("lost", len(partitions))),
    )
    return consumer, calls


def test_consumer_receives_records_with_their_fields(cluster: FakeCluster) -> None:
    """A record has the key, value, headers, timestamp and offset with which it was delivered."""
    cluster.create_topic("orders", 2)
    cluster.deliver("orders", "one", key="k", partition=1, headers=[("h", b"x")], timestamp_ms=5)
    consumer, _ = subscribed(cluster)
    (message,) = take(consumer, 1)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"one", [("h", b"x")])
    assert (message.topic(), message.partition(), message.offset()) == ("orders", 1, 0)
    assert message.timestamp() == (1, 5)


def test_virtual_time_moves_only_with_calls_that_wait(cluster: FakeCluster) -> None:
    """Five minutes of polls take no real time, and the member keeps its partitions."""
    cluster.create_topic("orders")
    consumer, calls = subscribed(cluster)
    began = time.monotonic()
    for _ in range(5):
        assert consumer.poll(60) is None
    assert time.monotonic() - began < 150  # half of the virtual time, for a busy machine
    assert calls == [("assigned", 1)]
    assert cluster.engine.now() >= 300


def test_commit_is_kept_by_the_coordinator_and_is_the_start_of_the_next_member(cluster: FakeCluster) -> None:
    """A member starts at the group's committed offset."""
    for value in range(3):
        cluster.deliver("orders", str(value))
    consumer, _ = subscribed(cluster, {"enable.auto.commit": False})
    consumer.commit(take(consumer, 2)[-1], asynchronous=False)
    assert cluster.committed() == {("orders", 0): 2}
    consumer.close()
    assert cluster.members() == ()
    (message,) = take(subscribed(cluster)[0], 1)
    assert message.offset() == 2


def test_two_members_share_the_partitions(cluster: FakeCluster) -> None:
    """A second member receives half of the partitions, after the first one has revoked them."""
    cluster.create_topic("orders", 4)
    first, calls = subscribed(cluster)
    first.poll(1)
    second, others = subscribed(cluster)
    for _ in range(20):
        second.poll(1)
        first.poll(1)
    assert [[call for call in one if call[1]] for one in (calls, others)] == [
        [("assigned", 4), ("revoked", 2)],
        [("assigned", 2)],
    ]
    assert [len(member.partitions) for member in cluster.members()] == [2, 2]


def test_rebalance_revokes_everything_and_assigns_it_again(cluster: FakeCluster) -> None:
    """`rebalance` calls on_revoke with all partitions, and on_assign afterwards."""
    cluster.create_topic("orders", 3)
    consumer, calls = subscribed(cluster)
    consumer.poll(1)
    cluster.rebalance()
    consumer.poll(60)
    assert [call for call in calls if call[1]] == [("assigned", 3), ("revoked", 3), ("assigned", 3)]


def test_revoked_partition_is_given_back(cluster: FakeCluster) -> None:
    """`revoke` takes a partition from its member until `give_back`; a classic group's leader chooses its assignment."""
    cluster.create_topic("orders", 2)
    consumer, _ = subscribed(cluster)
    consumer.poll(1)
    cluster.revoke([("orders", 0)])
    consumer.poll(60)
    assert [one.partition for one in consumer.assignment()] == [1]
    cluster.give_back()
    consumer.poll(60)
    assert [one.partition for one in consumer.assignment()] == [0, 1]


def test_fenced_member_loses_its_partitions_and_rejoins(cluster: FakeCluster) -> None:
    """`fence` calls on_lost; an uncommitted record is redelivered after the member has joined again."""
    cluster.deliver("orders", "one")
    consumer, calls = subscribed(cluster, {"enable.auto.commit": False})
    take(consumer, 1)
    cluster.fence(consumer)
    (again,) = take(consumer, 1)
    assert (again.offset(), calls) == (0, [("assigned", 1), ("lost", 1), ("assigned", 1)])


def test_expired_session_gives_the_partitions_to_another_member(cluster: FakeCluster) -> None:
    """`expire_session` removes the member, whose later commits are rejected."""
    cluster.deliver("orders", "one")
    first, _ = subscribed(cluster, {"enable.auto.commit": False})
    (message,) = take(first, 1)
    cluster.expire_session(first)
    second, _ = subscribed(cluster)
    take(second, 1)
    with pytest.raises(KafkaException):
        first.commit(message, asynchronous=False)


def test_poll_interval_ends_on_virtual_time(cluster: FakeCluster) -> None:
    """A handler that takes longer than max.poll.interval.ms makes its member leave."""
    cluster.deliver("orders", "one")
    consumer, calls = subscribed(cluster, {"max.poll.interval.ms": 60_000})
    take(consumer, 1)
    cluster.advance(61)
    assert consumer.membership().state is MemberState.STALE
    message = consumer.poll(1)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._MAX_POLL_EXCEEDED
    consumer.poll(60)
    assert [name for name, _ in calls] == ["assigned", "lost", "assigned"]


def test_member_finds_the_coordinator_that_moved(cluster: FakeCluster) -> None:
    """Commits and heartbeats go to the new coordinator after it has loaded the group."""
    cluster.deliver("orders", "one")
    consumer, calls = subscribed(cluster)
    take(consumer, 1)
    cluster.move_coordinator(loading_s=2.0)
    consumer.commit(asynchronous=False)
    assert cluster.committed() == {("orders", 0): 1}
    consumer.poll(30)
    assert calls == [("assigned", 1)]


def test_failed_commits(cluster: FakeCluster) -> None:
    """A retriable error of a commit is retried, and any other error is raised."""
    cluster.deliver("orders", "one")
    consumer, _ = subscribed(cluster)
    take(consumer, 1)
    cluster.fail_commits("COORDINATOR_LOAD_IN_PROGRESS", times=2)
    consumer.commit(asynchronous=False)
    cluster.deliver("orders", "two")
    take(consumer, 1)
    cluster.fail_commits("TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_mistakes_of_a_test_raise_with_the_fix(cluster: FakeCluster) -> None:
    """A wrong name raises an error, whose message has the existing names."""
    cluster.create_topic("orders")
    consumer, _ = subscribed(cluster)
    consumer.poll(1)
    with pytest.raises(UseError, match=r"no group 'other'; existing groups: 'test'"):
        cluster.rebalance("other")
    with pytest.raises(UseError, match=f"no member 'other'; its members: '{consumer.memberid()}'"):
        cluster.fence("other")
    with pytest.raises(UseError, match="no partition 3 of a topic 'orders'"):
        cluster.revoke([("orders", 3)])
    with pytest.raises(UseError, match="no topic 'ordres'"):
        cluster.delete_topic("ordres")
    with pytest.raises(UseError, match="did you mean GROUP_AUTHORIZATION_FAILED"):
        cluster.fail_commits("GROUP_AUTHORISATION_FAILED")


@pytest.mark.parametrize("protocol", ["classic", "auto"])
def test_classic_and_automatic_members_consume(cluster: FakeCluster, protocol: str) -> None:
    """Members of both protocols work, with the eager callbacks of confluent-kafka."""
    cluster.create_topic("orders", 2)
    cluster.deliver("orders", "one", partition=0)
    consumer, calls = subscribed(cluster, {"group.protocol": protocol})
    take(consumer, 1)
    cluster.rebalance()
    consumer.poll(30)
    assert calls[0] == ("assigned", 2)
    assert calls[-1] == ("assigned", 2)
    assert ("revoked", 2) in calls
    if protocol == "classic":
        with pytest.raises(UseError, match="classic group"):
            cluster.revoke([("orders", 0)])


def test_seek_pause_and_position(cluster: FakeCluster) -> None:
    """Calls that change the position have the same effects as in librdkafka."""
    for value in range(5):
        cluster.deliver("orders", str(value))
    consumer, _ = subscribed(cluster)
    take(consumer, 5)
    place = TopicPartition("orders", 0)
    assert consumer.position([place])[0].offset == 5
    consumer.seek(TopicPartition("orders", 0, 1))
    assert take(consumer, 1)[0].offset() == 1
    consumer.pause([place])
    assert consumer.poll(5) is None
    consumer.resume([place])
    assert take(consumer, 1)[0].offset() == 2
    assert consumer.get_watermark_offsets(place) == (0, 5)
    assert consumer.list_topics("orders").topics["orders"].partitions.keys() == {0}


def test_producer_calls_delivery_reports_in_poll(cluster: FakeCluster) -> None:
    """A record is appended to the log immediately, and the next poll or flush calls its delivery report."""
    reports: list[tuple[object, int | None]] = []
    producer = cluster.producer()
    producer.produce("orders", b"one", key=b"k", on_delivery=lambda error, m: reports.append((error, m.offset())))
    assert (reports, len(producer)) == ([], 1)
    assert producer.flush() == 0
    assert reports == [(None, 0)]
    assert [record.value() for record in cluster.records("orders")] == [b"one"]


def test_transaction_commits_records_and_offsets_together(cluster: FakeCluster) -> None:
    """An aborted transaction has no effect; a committed transaction adds its records and commits its offsets."""
    cluster.deliver("orders", "one")
    consumer, _ = subscribed(cluster, {"enable.auto.commit": False})
    take(consumer, 1)
    producer = cluster.producer({"transactional.id": "copy"})
    producer.init_transactions()
    for ends in (producer.abort_transaction, producer.commit_transaction):
        assert (cluster.records("copies"), cluster.committed()) == ([], {})
        producer.begin_transaction()
        producer.produce("copies", b"1")
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        ends()
    assert [record.value() for record in cluster.records("copies")] == [b"1"]
    assert cluster.committed() == {("orders", 0): 1}
    other = cluster.producer({"transactional.id": "copy"})
    other.init_transactions()
    with pytest.raises(KafkaException):
        producer.begin_transaction()


def test_transaction_of_a_fenced_member_is_refused(cluster: FakeCluster) -> None:
    """The coordinator checks the member's epoch, so that a former owner commits nothing."""
    cluster.deliver("orders", "one")
    consumer, _ = subscribed(cluster, {"enable.auto.commit": False})
    take(consumer, 1)
    metadata, offsets = consumer.consumer_group_metadata(), consumer.position(consumer.assignment())
    cluster.expire_session(consumer)
    producer = cluster.producer({"transactional.id": "copy"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("copies", b"1")
    producer.send_offsets_to_transaction(offsets, metadata)
    with pytest.raises(KafkaException):
        producer.commit_transaction()
    assert cluster.committed() == {}


def test_installed_cluster_serves_producers_by_their_servers(cluster: FakeCluster) -> None:
    """An application that creates its own clients uses the cluster, and the original class is restored afterwards."""
    original = consumer_membership.Producer
    with cluster.installed():
        producer = consumer_membership.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("orders", b"one")
        producer.flush()
    assert consumer_membership.Producer is original
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "own", **EARLIEST}
    with Consumer(config) as consumer:
        consumer.subscribe(["orders"])
        assert take(consumer, 1)[0].value() == b"one"


def test_aio_consumer_receives_records_and_rebalances() -> None:
    """`AIOConsumer` works on the cluster, also when it waits in a thread."""

    async def run(cluster: FakeCluster) -> tuple[bytes | str | None, int]:
        consumer: AIOConsumer = cluster.aio_consumer({**EARLIEST, "group.protocol": "consumer"})
        await consumer.subscribe(["orders"])
        waiting = asyncio.create_task(consumer.poll(30))
        await asyncio.sleep(0)
        cluster.deliver("orders", "one")
        message = await waiting
        assert message is not None
        await consumer.commit(asynchronous=False)
        await consumer.close()
        return message.value(), cluster.committed()["orders", 0]  # type: ignore[index]  # a named tuple

    with FakeCluster(time="real") as cluster:
        cluster.create_topic("orders")
        assert asyncio.run(run(cluster)) == (b"one", 1)


def test_processor_writes_outputs_and_commits() -> None:
    """A `Processor` with threads, outputs and dead letters runs on real time."""
    handled: list[object] = []
    all_are_handled = threading.Event()

    def handle(message: Message) -> None:
        handled.append(message.value())
        if len(handled) == 10:
            all_are_handled.set()

    with FakeCluster(time="real", partitions=2) as cluster, cluster.installed():
        for value in range(10):
            cluster.deliver("orders", str(value))
        config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "workers", **EARLIEST}
        processor = Processor(config, ["orders"], handle)
        thread = threading.Thread(target=processor.run)
        thread.start()
        assert all_are_handled.wait(PATIENCE_S)
        processor.stop()
        thread.join()
        assert sum(cluster.committed("workers").values()) == 10
