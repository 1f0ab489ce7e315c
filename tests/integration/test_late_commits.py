"""A worker commits a partition after its consumer gave it up, with both clients on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.membership.states import MemberState
from tests.integration.polls import AnyConsumer, poll_until
from tests.support.kafka import create_topic, unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


class HandedOver:
    """A group in which `late` gave a partition up and `owner` has committed offset 9 of it."""

    def __init__(
        self, stack: ExitStack, kafka: Broker, protocol: str, make: Callable[..., AnyConsumer], **keys: object
    ) -> None:
        self._keys: dict[str, object] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": unique("group"),
            "group.protocol": protocol,
            "enable.auto.commit": False,
        }
        self.topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2)
        self.late = self._join(stack, make, keys)
        poll_until(lambda: len(self.late.assignment()) == 2, "both partitions", self.late)
        self.owner = self._join(stack, Consumer, {})
        poll_until(self._is_shared, "one partition each", self.late, self.owner)
        (owned,) = self.owner.assignment()
        self.partition = Partition(self.topic, owned.partition)
        self.owner.commit(offsets=[Partition(self.topic, owned.partition, 9)], asynchronous=False)

    def _join(self, stack: ExitStack, make: Callable[..., AnyConsumer], keys: dict[str, object]) -> AnyConsumer:
        consumer = make({**self._keys, **keys})
        stack.callback(consumer.close)
        consumer.subscribe([self.topic])
        return consumer

    def _is_shared(self) -> bool:
        return len(self.late.assignment()) == len(self.owner.assignment()) == 1

    def commit_late(self, *partitions: int) -> list[Partition]:
        """Commit offset 3 of the revoked partition, or of these partitions, as a worker does that finishes late."""
        numbers = partitions or (self.partition.partition,)
        return self.late.commit(offsets=[Partition(self.topic, one, 3) for one in numbers], asynchronous=False) or []

    @property
    def committed(self) -> int:
        """The committed offset of the partition."""
        return self.owner.committed([self.partition], PATIENCE_S)[0].offset


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes the consumers of a test."""
    with ExitStack() as stack:
        yield stack


@PROTOCOLS
def test_late_commit_does_not_move_the_committed_offset_of_the_new_owner(
    kafka: Broker, stack: ExitStack, protocol: str
) -> None:
    """The commit fails with _ASSIGNMENT_LOST."""
    group = HandedOver(stack, kafka, protocol, Consumer)
    with pytest.raises(KafkaException) as caught:
        group.commit_late()
    assert (caught.value.args[0].code(), group.committed) == (KafkaError._ASSIGNMENT_LOST, 9)


@PROTOCOLS
def test_commit_of_both_partitions_commits_the_owned_one(kafka: Broker, stack: ExitStack, protocol: str) -> None:
    """Each partition of the result has its own error."""
    group = HandedOver(stack, kafka, protocol, Consumer)
    results = group.commit_late(0, 1)
    codes = {one.partition: one.error and one.error.code() for one in results}
    given_up = group.partition.partition
    assert (codes, group.committed) == ({given_up: KafkaError._ASSIGNMENT_LOST, 1 - given_up: None}, 9)


@PROTOCOLS
def test_late_commit_is_sent_if_the_configuration_allows_it(kafka: Broker, stack: ExitStack, protocol: str) -> None:
    """With `allow.commit.revoked` the broker decides, which accepts the commit of a living member."""
    group = HandedOver(stack, kafka, protocol, Consumer, **{"allow.commit.revoked": True})
    group.commit_late()
    assert group.committed == 3


@PROTOCOLS
def test_late_commit_of_confluent_kafka_moves_the_committed_offset_back(
    kafka: Broker, stack: ExitStack, protocol: str
) -> None:
    """confluent-kafka sends the commit, and the broker accepts it; records 3 to 8 are repeated after a rebalance."""
    group = HandedOver(stack, kafka, protocol, confluent_kafka.Consumer)
    group.commit_late()
    assert group.committed == 3


@PROTOCOLS
def test_commit_in_the_on_revoke_of_a_member_that_was_removed_does_not_move_the_committed_offset(
    kafka: Broker, protocol: str
) -> None:
    """An administrator removes the member while it leaves; another member commits more, and leaves an empty group.

    An empty group accepts commits without a member id. confluent-kafka sends the former member id, and is refused.
    """
    group_id, topic = unique("group"), create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    keys: dict[str, object] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": group_id,
        "group.protocol": protocol,
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        keys["heartbeat.interval.ms"] = 500
    refusals: list[int] = []

    def on_revoke(consumer: Consumer, _: list[Partition]) -> None:
        GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).remove_members(group_id, all_members=True)
        wait_until(lambda: consumer.membership().state is MemberState.UNSUBSCRIBED, "a heartbeat that is refused")
        with joined(keys, topic) as other:
            other.commit(offsets=[Partition(topic, 0, 9)], asynchronous=False)
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=[Partition(topic, 0, 3)], asynchronous=False)
        refusals.append(caught.value.args[0].code())

    with joined(keys, topic, on_revoke=on_revoke):
        pass
    with joined(keys, topic) as later:
        committed = later.committed([Partition(topic, 0)], PATIENCE_S)[0].offset
    assert (refusals, committed) == ([KafkaError._ASSIGNMENT_LOST], 9)


@contextmanager
def joined(keys: dict[str, object], topic: str, **callbacks: Callable[..., None]) -> Iterator[Consumer]:
    """A consumer that owns the topic's partition, and is closed at the end."""
    with Consumer(keys) as consumer:
        consumer.subscribe([topic], **callbacks)
        poll_until(consumer.assignment, "the assignment", consumer)
        yield consumer
