"""The callbacks of a classic member, beside confluent-kafka's, and what the application may call inside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from consumer_membership.membership.states import MemberState
from tests.integration.environments import CLASSIC, COOPERATIVE, EAGER, Environment, on
from tests.integration.offsets import committed
from tests.integration.polled_group import AnyConsumer, Calls, PolledGroup, change_of_subscription, scale_out_and_in
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, delete_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# ---- beside confluent-kafka -----------------------------------------------------------------------------------------


def numbers_of(calls: Calls) -> object:
    """Return only the number of partitions of each callback.

    Which partitions a sticky assignor moves differs between Java, which this package follows, and librdkafka. The
    number of rounds of a cooperative group depends on the members' timing, so rounds that give a member no partition
    are not compared.
    """
    return {name: [(call, len(partitions)) for call, partitions in made if partitions] for name, made in calls.items()}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("scene", [scale_out_and_in, change_of_subscription])
def test_classic_callbacks_match_confluent_kafka(
    broker: Broker, strategy: str, scene: Callable[[PolledGroup], None]
) -> None:
    """Rules 4.4, 4.5: Both clients call each member's on_assign, on_revoke and on_lost in the same order."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 6)
    calls: dict[type[AnyConsumer], Calls] = {}
    for kind in (RawConsumer, Consumer):
        classic = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
        with closing(PolledGroup(kind, broker, topic, classic)) as polled_group:
            scene(polled_group)
        calls[kind] = polled_group.calls
    assert numbers_of(calls[Consumer]) == numbers_of(calls[RawConsumer])
    assert strategy != "range" or calls[Consumer] == calls[RawConsumer]


# ---- what an application does in callbacks --------------------------------------------------------------------------


@on(*CLASSIC)
def test_callbacks_may_seek_query_positions_and_commit(environment: Environment) -> None:
    """C06, C07: on_assign may set other start offsets.

    On_revoke may query positions and commit in the generation that is still valid.
    """
    topic, group = environment.topic(4), unique("group")
    produce(environment.bootstrap_servers, topic, 80)
    is_moved: list[bool] = []
    positions: list[int] = []
    results: list[list[int]] = []

    def on_call(call: str, consumer: Consumer, partitions: list[Partition]) -> None:
        if call == "assign" and not is_moved:
            is_moved.append(True)
            starts = [Partition(topic, p.partition, 5) for p in partitions]
            (consumer.assign if environment.is_eager else consumer.incremental_assign)(starts)
        if call == "revoke" and partitions:
            positions.extend(p.offset for p in consumer.position(partitions))
            offsets = [Partition(topic, p.partition, 11) for p in partitions]
            done = consumer.commit(offsets=offsets, asynchronous=False) or []
            results.append([p.offset for p in done if p.error is None])

    with environment.member(group, [topic], on_call, enable_auto_commit=False) as first:
        first.wait(lambda w: len(w.notes.records) == 60, "60 records")
        with environment.member(group, [topic], enable_auto_commit=False) as second:
            second.settled(2)
            first.settled(2)
            moved = 4 if environment.is_eager else 2
            assert (positions, results) == ([20] * moved, [[11] * moved])
            assert first.notes.raised == []
        # A member that closes while its group rebalances cannot commit any more.
        first.settled(4)
    offsets = committed(environment.broker, group, topic, 4)
    assert sorted(offsets.values()) == [11] * 4


_SESSION_S = 4


@contextmanager
def long_callback(environment: Environment, which: str) -> Iterator[tuple[Worker, Worker]]:
    """Hold the first of two members in this callback for two of its sessions, then let it continue."""
    topic, group = environment.topic(4), unique("group")
    is_in, may_end = threading.Event(), threading.Event()
    armed = threading.Event()

    def on_call(call: str, _consumer: Consumer, partitions: list[Partition]) -> None:
        if call == which and partitions and armed.is_set() and not is_in.is_set():
            is_in.set()
            assert may_end.wait(PATIENCE_S)

    quick: dict[str, Any] = {"session_timeout_ms": _SESSION_S * 1000}
    with environment.member(group, [topic], on_call, **quick) as first:
        if which == "assign":
            armed.set()
        else:
            first.settled(4)
            armed.set()
        with environment.member(group, [topic], **quick) as second:
            assert is_in.wait(PATIENCE_S)
            until = monotonic() + 2 * _SESSION_S
            try:
                # The second member polls meanwhile; the condition is checked after each of its polls.
                second.wait(lambda _: (first.consumer.membership().last_heartbeat_at or 0) > until, "two sessions")
            finally:
                may_end.set()
            yield first, second


@pytest.mark.parametrize("mode", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("which", ["assign", "revoke"])
def test_callback_longer_than_a_session_delays_only_the_handover(
    broker_pool: RunBrokers, mode: Mapping[str, object], which: str
) -> None:
    """C02, C03: Heartbeats continue during the callback, no member is removed, and the handover then completes."""
    environment = Environment(broker=broker_pool.shared(NEWEST, properties=SHORT_SESSIONS), mode=mode)
    with long_callback(environment, which) as (first, second):
        first.settled(2)
        second.settled(2)
        assert not first.owned & second.owned
        assert (first.notes.named("lost"), first.notes.errors, second.notes.named("lost")) == ([], [], [])


@on("newest-cooperative", "oldest-eager")
def test_late_poll_within_the_limit_completes_the_rebalance(environment: Environment) -> None:
    """C04: An owner that polls late, but within its limit, revokes the moving partitions at its next poll."""
    topic, group = environment.topic(4), unique("group")
    with environment.member(group, [topic]) as first:
        first.settled(4)
        first.freeze()
        with environment.member(group, [topic]) as second:
            until = monotonic() + 1.0
            second.wait(lambda _: monotonic() > until, "a while")
            assert (second.owned, len(first.owned)) == (frozenset(), 4)
            first.thaw()
            second.settled(2)
            first.settled(2)
        assert first.notes.named("lost") == []


# ---- what is kept and what is not -----------------------------------------------------------------------------------


@on(*CLASSIC)
def test_cooperative_rebalance_keeps_retained_partitions_paused(environment: Environment) -> None:
    """C09: A cooperative member's retained partitions stay paused; a revoked partition comes back unpaused."""
    topic, group = environment.topic(4), unique("group")
    with environment.member(group, [topic]) as first:
        first.settled(4)
        done: list[None] = []
        first.order(lambda consumer: done.append(consumer.pause(consumer.assignment())))
        first.wait(lambda _: bool(done), "the pause")
        with environment.member(group, [topic]) as second:
            second.settled(2)
            first.settled(2)
            kept = first.owned
        first.settled(4)
        produce(environment.bootstrap_servers, topic, 40)
        comes = 40 if environment.is_eager else 20
        first.wait(lambda w: len(w.notes.records) == comes, f"{comes} records")
        paused = frozenset() if environment.is_eager else kept
        assert {(t, p) for t, p, *_ in first.notes.records} == {(topic, p) for p in range(4)} - paused
        first.order(lambda consumer: consumer.resume(consumer.assignment()))
        first.wait(lambda w: len(w.notes.records) == 40, "the rest")


@on("newest-consumer", *CLASSIC)
def test_unsubscribe_auto_commits_before_it_revokes(environment: Environment) -> None:
    """C08: `unsubscribe` runs the automatic commits before it revokes the partitions, as `close` does."""
    topic, group = environment.topic(4), unique("group")
    produce(environment.bootstrap_servers, topic, 40)
    with environment.member(group, [topic], auto_commit_interval_ms=600_000) as worker:
        worker.wait(lambda w: len(w.notes.records) == 40, "40 records")
        worker.order(lambda consumer: consumer.unsubscribe())
        worker.wait(lambda w: w.state is MemberState.UNSUBSCRIBED and not w.owned, "UNSUBSCRIBED")
        assert sum(committed(environment.broker, group, topic, 4).values()) == 40


@on("newest-cooperative", "oldest-eager")
def test_unsubscribed_consumer_reads_manually_assigned_partitions(environment: Environment) -> None:
    """C12: After `unsubscribe` the consumer reads manually assigned partitions, and the group has no member."""
    topic, group = environment.topic(4), unique("group")
    produce(environment.bootstrap_servers, topic, 40)
    with environment.member(group, [topic], enable_auto_commit=False) as worker:
        worker.wait(lambda w: len(w.notes.records) == 40, "40 records")
        worker.order(lambda consumer: consumer.unsubscribe())
        worker.wait(lambda w: w.state is MemberState.UNSUBSCRIBED and not w.owned, "UNSUBSCRIBED")
        worker.order(lambda consumer: consumer.assign([Partition(topic, 2, 4)]))
        worker.wait(lambda w: len(w.notes.records) == 46, "six records of one partition")
        assert [name for name, _ in worker.notes.calls] == ["assign", "revoke"]


def share(one: Worker, two: Worker, partitions: set[tuple[str, int]]) -> None:
    """Return when both are STABLE and each owns one half. Each member discovers topics itself and rejoins."""

    def is_shared(_: Worker) -> bool:
        halves = (one.owned, two.owned)
        are_stable = one.state is two.state is MemberState.STABLE
        return are_stable and halves[0] | halves[1] == partitions and len(halves[0]) == len(halves[1])

    one.wait(is_shared, f"one half each of {sorted(partitions)}")


@on(*CLASSIC)
def test_pattern_subscription_follows_created_and_deleted_topics(environment: Environment) -> None:
    """C13: Two members with one pattern share a topic that is created and then deleted.

    Each partition has one owner.
    """
    name, group = unique("events"), unique("group")
    early = create_topic(environment.bootstrap_servers, f"{name}-early", 2)
    with environment.member(group, [f"^{name}-.*"]) as one, environment.member(group, [f"^{name}-.*"]) as two:
        one.settled(1)
        two.settled(1)
        late = create_topic(environment.bootstrap_servers, f"{name}-late", 2)
        share(one, two, {(topic, p) for topic in (early, late) for p in range(2)})
        delete_topic(environment.bootstrap_servers, late)
        share(one, two, {(early, 0), (early, 1)})
        assert (one.notes.errors, two.notes.errors) == ([], [])
