"""Joins, scale-out and scale-in, leaves, failing callbacks and slow applications, on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.membership.states import MemberState
from consumer_membership.types import TopicPartition
from tests.integration.environments import CONSUMER, COOPERATIVE, EAGER, Environment
from tests.integration.offsets import committed
from tests.support.brokers import RunBrokers
from tests.support.kafka import produce, unique
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def topic(environment: Environment) -> str:
    """A topic of twelve partitions."""
    return environment.topic(12)


def test_first_member_owns_everything_and_reads_every_record(environment: Environment, topic: str) -> None:
    """M20: A first member goes through join, assignment, RECONCILE and acknowledgement to STABLE.

    The records come from the start.
    """
    produce(environment.bootstrap_servers, topic, 600)
    with environment.member(unique("group"), [topic]) as worker:
        worker.wait(lambda w: len(w.notes.records) == 600, "600 records")
        worker.settled(12)
        states = [t.new for t in worker.consumer.membership().transitions]
        # A classic member sends no acknowledgement: its next JoinGroup reports its partitions.
        acknowledges = [] if environment.is_classic else [MemberState.ACK]
        assert states[:4] == [MemberState.JOINING, MemberState.RECONCILE, *acknowledges, MemberState.STABLE]
        assert worker.notes.named("assign") == [tuple((topic, p) for p in range(12))]
        assert worker.consumer.generation() > 0
        assert (
            worker.consumer.owned_since(Partition(topic, 0))
            == worker.consumer.membership().owned[TopicPartition(topic, 0)]
        )


def test_scale_out_and_in_returns_every_record_once(environment: Environment, topic: str) -> None:
    """S02, S09: Members join and leave cleanly; each record is read exactly once."""
    group = unique("group")
    first = environment.member(group, [topic])
    second = environment.member(group, [topic])
    with first:
        first.settled(12)
        produce(environment.bootstrap_servers, topic, 3000)
        with second:
            second.settled(6)
            first.settled(6)
            produce(environment.bootstrap_servers, topic, 3000)
            assert first.owned | second.owned == {(topic, p) for p in range(12)}
        first.settled(12)
        produce(environment.bootstrap_servers, topic, 3000)
        first.wait(lambda w: len(w.notes.records) + len(second.notes.records) >= 9000, "9000 records in all")
    seen = Counter((partition, offset) for w in (first, second) for _, partition, offset, _ in w.notes.records)
    assert (len(seen), max(seen.values())) == (9000, 1)
    assert sum(committed(environment.broker, group, topic, 12).values()) == 9000


def test_revocation_commits_before_the_callback(environment: Environment, topic: str) -> None:
    """M34, C07: The consumed offsets of revoked partitions are already committed when on_revoke runs."""
    group = unique("group")
    found: dict[int, int] = {}

    def on_call(call: str, consumer: Consumer, partitions: list[Partition]) -> None:
        if call == "revoke" and not found:
            found.update({p.partition: p.offset for p in consumer.committed(partitions, timeout=PATIENCE_S)})

    first = environment.member(group, [topic], on_call, auto_commit_interval_ms=600_000)
    with first:
        produce(environment.bootstrap_servers, topic, 1200)
        first.wait(lambda w: len(w.notes.records) == 1200, "1200 records")
        with environment.member(group, [topic]) as second:
            second.settled(6)
    assert (len(found), set(found.values())) == (12 if environment.is_eager else 6, {100})


def test_failing_revoke_callback_is_called_again_until_it_succeeds(environment: Environment, topic: str) -> None:
    """M41: An on_revoke that raises leaves the revocation unacknowledged; the next poll calls it again."""
    group = unique("group")
    failures = [RuntimeError("first"), RuntimeError("second")]

    def on_call(call: str, _consumer: Consumer, _partitions: list[Partition]) -> None:
        if call == "revoke" and failures:
            raise failures.pop(0)

    with environment.member(group, [topic], on_call) as first:
        first.settled(12)
        with environment.member(group, [topic]) as second:
            second.settled(6)
            first.settled(6)
            assert [str(error) for error in first.take_raised()] == ["first", "second"]
            revoked = first.notes.named("revoke")
            assert len(revoked) == 3
            assert len(set(revoked)) == 1


def test_poll_timeout_leaves_the_group_and_rejoins(environment: Environment, topic: str) -> None:
    """C01, C20: An application that stops polling loses its partitions, gets the error and on_lost, and rejoins."""
    group = unique("group")
    with (
        environment.member(group, [topic], max_poll_interval_ms=5000) as slow,
        environment.member(group, [topic]) as other,
    ):
        slow.settled(6)
        slow.freeze()
        other.settled(12)
        assert slow.state is MemberState.STALE
        slow.thaw()
        slow.settled(6)
        assert [error.code() for error in slow.notes.errors] == [KafkaError._MAX_POLL_EXCEEDED]
        assert len(slow.notes.named("lost")) == 1
        assert slow.notes.raised == []


def test_closed_static_member_returns_to_its_partitions(environment: Environment, topic: str) -> None:
    """B05: A static member that closes and returns gets the same partitions; the other member sees no change."""
    group = unique("group")
    with environment.member(group, [topic], group_instance_id="b") as stays:
        with environment.member(group, [topic], group_instance_id="a") as first:
            first.settled(6)
            stays.settled(6)
            owned = first.owned
        before = list(stays.notes.calls)
        with environment.member(group, [topic], group_instance_id="a") as again:
            again.settled(6)
            assert again.owned == owned
        # A returning leader may cause one more rebalance of a cooperative group, in which no partition moves.
        assert [call for call in stays.notes.calls if call[1]] == [call for call in before if call[1]]


def test_two_groups_read_the_same_topic_independently(environment: Environment, topic: str) -> None:
    """Each group reads every record and commits its own offsets."""
    produce(environment.bootstrap_servers, topic, 240)
    groups = [unique("group"), unique("group")]
    with (
        environment.member(groups[0], [topic]) as one,
        environment.member(groups[1], [topic]) as two,
    ):
        one.wait(lambda w: len(w.notes.records) == 240, "240 records")
        two.wait(lambda w: len(w.notes.records) == 240, "240 records")
    assert [sum(committed(environment.broker, group, topic, 12).values()) for group in groups] == [240, 240]


def test_commit_of_a_non_member_is_refused_until_the_group_is_empty(environment: Environment, topic: str) -> None:
    """B31, B32: A non-member's commit is refused with UNKNOWN_MEMBER_ID until the group is empty.

    It may always fetch offsets.
    """
    group = unique("group")
    stranger = Consumer({"bootstrap.servers": environment.bootstrap_servers, "group.id": group})
    offsets = [Partition(topic, 0, 3)]
    try:
        with environment.member(group, [topic], enable_auto_commit=False) as member:
            member.settled(12)
            with pytest.raises(KafkaException) as refused:
                stranger.commit(offsets=offsets, asynchronous=False)
            assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
            mine, done = [Partition(topic, 1, 7)], []
            member.order(lambda consumer: done.append(consumer.commit(offsets=mine, asynchronous=False)))
            member.wait(lambda _: bool(done), "its commit")
            asked = [Partition(topic, 0), Partition(topic, 1)]
            assert [p.offset for p in stranger.committed(asked, timeout=PATIENCE_S)] == [-1001, 7]
        stranger.commit(offsets=offsets, asynchronous=False)
        assert [p.offset for p in stranger.committed(offsets, timeout=PATIENCE_S)] == [3]
    finally:
        stranger.close()


def test_two_hundred_partitions_are_read_and_shared(environment: Environment) -> None:
    """A member of a topic with 200 partitions owns and reads all of them, and shares them in a scale-out."""
    topic = environment.topic(200, "wide")
    group = unique("group")
    produce(environment.bootstrap_servers, topic, 2000)
    with environment.member(group, [topic]) as first:
        first.wait(lambda w: len(w.notes.records) == 2000, "2000 records")
        with environment.member(group, [topic]) as second:
            second.settled(100)
            first.settled(100)


@pytest.mark.parametrize("mode", [CONSUMER, EAGER, COOPERATIVE], ids=["consumer", "eager", "cooperative"])
def test_full_group_refuses_an_additional_member_only(broker_pool: RunBrokers, mode: Mapping[str, object]) -> None:
    """C19, KIP-389: GROUP_MAX_SIZE_REACHED is fatal at once, with the broker's text.

    The other members are not affected.
    """
    limits = {"group.consumer.max.size": "1", "group.max.size": "1"}
    environment = Environment(broker=broker_pool.shared(NEWEST, properties=limits), mode=mode)
    topic, group = environment.topic(2), unique("group")
    with environment.member(group, [topic]) as first:
        first.settled(2)
        calls = list(first.notes.calls)
        with environment.member(group, [topic]) as second:
            second.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the fatal error")
            error = second.notes.errors[0]
            assert (error.code(), error.fatal()) == (KafkaError.GROUP_MAX_SIZE_REACHED, True)
            assert ("group.max.size" if environment.is_classic else "group.consumer.max.size") in error.str()
        produce(environment.bootstrap_servers, topic, 100)
        first.wait(lambda w: len(w.notes.records) == 100, "100 records")
        assert first.notes.calls == calls
