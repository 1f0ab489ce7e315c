"""Leases in tasks: the context of a sink, and what a member and the sinks do after the end of a lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import KafkaException, Message

from consumer_membership.errors import FencedError, LeaseOverError
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.spark.batches import ranges_of, runs_of
from consumer_membership.spark.bounds import Bounds
from consumer_membership.spark.context import SinkContext
from consumer_membership.spark.handover import FetchedBatch, Handover
from consumer_membership.spark.plan import MemberPlan, member_config, planned
from consumer_membership.spark.sinks import HandlerSink, ParquetSink, PostgresSink
from consumer_membership.types import TopicPartition
from tests.clients.conftest import PARTITIONS, RECORDS, filled
from tests.clients.scripted import ScriptedConsumer
from tests.spark.sinks.builders import Word, batch, context
from tests.support.mock_cluster import MockCluster
from tests.support.postgres import postgres
from tests.support.waiting import PATIENCE_S

TOPIC = "orders"
EPOCH = 4
STARTS = {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)}


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[MockCluster]:
    """A mock cluster with records in each partition of a topic."""
    with MockCluster.start(1) as cluster:
        filled(cluster, TOPIC)
        yield cluster


def plan_with(mock_cluster: MockCluster, **config: object) -> MemberPlan:
    """One task that consumes the topic without an end, with leases unless the configuration disables them."""
    base = {"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0, "ownership.lease.enable": True}
    return planned(base | config, [TOPIC], "group")


@pytest.fixture
def plan(mock_cluster: MockCluster) -> MemberPlan:
    """One task with leases."""
    return plan_with(mock_cluster)


@pytest.fixture
def consumer(plan: MemberPlan) -> Iterator[ScriptedConsumer]:
    """The task's consumer, which owns all partitions and has received their records."""
    with ScriptedConsumer(member_config(plan, 0, 1)) as consumer:
        consumer.subscribe([TOPIC])
        consumer.member.assign(STARTS, epoch=EPOCH)
        confirm(consumer)
        yield consumer


def confirm(consumer: ScriptedConsumer, lease_s: float = PATIENCE_S) -> None:
    """Extend the leases, as if the coordinator had answered a heartbeat."""
    now = time.monotonic()
    consumer.member.view = replace(consumer.member.view, last_heartbeat_at=now, lease_until=now + lease_s)


def end_leases(consumer: ScriptedConsumer) -> None:
    """End the leases, as if the process had been stopped for longer than its session."""
    consumer.member.view = replace(consumer.member.view, lease_until=time.monotonic() - 1.0)


def confirm_at_next_reads(consumer: ScriptedConsumer) -> None:
    """Answer a heartbeat whenever the view is read, from the second read on."""
    reads, read = count(), consumer.membership

    def membership() -> MembershipView:
        if next(reads):
            confirm(consumer)
        return read()

    consumer.membership = membership  # type: ignore[method-assign]  # it only answers heartbeats


class Guarded:
    """A sink that works under the guard of its batch, and notes the batches that it finished."""

    def __init__(self, then: Callable[[], object]) -> None:
        self.calls = 0
        self.finished: list[int] = []
        self._then = then

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        self.calls += 1
        with context.guard():
            if self.calls == 1:
                self._then()
        self.finished.append(len(batch))


def is_taken(plan: MemberPlan, consumer: ScriptedConsumer, sink: object, before: Callable[[], object]) -> bool:
    """Fetch all records, then give them to the sink as one batch; return whether the batch was accepted."""
    handover = Handover(plan, sink, 0, 1, consumer, Bounds(plan.run, plan.ends))
    records = consumer.consume(PARTITIONS * RECORDS, PATIENCE_S)
    assert len(records) == PARTITIONS * RECORDS
    before()
    taken = handover.give(FetchedBatch(batch=records, ranges=ranges_of(runs_of(records, plan.topics))))
    handover.settle()
    return taken


def test_sink_does_not_begin_after_the_end_of_the_lease(plan: MemberPlan, consumer: ScriptedConsumer) -> None:
    """The member was fenced meanwhile: the batch is dropped, and its records go to the partitions' new owner."""
    sink = Guarded(lambda: None)

    def stop() -> None:
        end_leases(consumer)
        consumer.member.in_state(MemberState.FENCED)

    assert not is_taken(plan, consumer, sink, stop)
    assert (sink.calls, consumer.member.committed) == (0, {})


def test_sink_begins_when_the_coordinator_has_renewed_the_lease(plan: MemberPlan, consumer: ScriptedConsumer) -> None:
    """The member is still in its group after a pause: the batch is written once."""
    sink = Guarded(lambda: None)

    def stop() -> None:
        end_leases(consumer)
        confirm_at_next_reads(consumer)

    assert is_taken(plan, consumer, sink, stop)
    assert (sink.calls, sink.finished) == (1, [PARTITIONS * RECORDS])


def test_batch_whose_lease_ended_inside_the_sink_is_written_again_by_a_member(
    plan: MemberPlan, consumer: ScriptedConsumer
) -> None:
    """The guard rolls the first call back; the coordinator confirms the member, and the second call succeeds."""

    def stop() -> None:
        end_leases(consumer)
        confirm_at_next_reads(consumer)

    sink = Guarded(stop)
    assert is_taken(plan, consumer, sink, lambda: None)
    assert (sink.calls, sink.finished) == (2, [PARTITIONS * RECORDS])


def test_batch_whose_lease_ended_inside_the_sink_is_dropped_by_a_fenced_member(
    plan: MemberPlan, consumer: ScriptedConsumer
) -> None:
    """Nothing is committed, and the task continues."""

    def stop() -> None:
        end_leases(consumer)
        consumer.member.in_state(MemberState.FENCED)

    sink = Guarded(stop)
    assert not is_taken(plan, consumer, sink, lambda: None)
    assert (sink.finished, consumer.member.committed) == ([], {})


def test_failed_sink_of_a_replaced_member_is_not_called_again(plan: MemberPlan, consumer: ScriptedConsumer) -> None:
    """The lease ended inside a call that failed, and a later attempt has replaced the member: the task ends."""
    calls: list[int] = []

    def sink(batch: list[Message], _: SinkContext) -> None:
        calls.append(len(batch))
        end_leases(consumer)
        consumer.member.in_state(MemberState.FATAL)
        raise ConnectionError

    with pytest.raises(FencedError, match="is over"):
        is_taken(plan, consumer, sink, lambda: None)
    assert len(calls) == 1


def test_context_has_the_lease_of_each_partition(plan: MemberPlan, consumer: ScriptedConsumer) -> None:
    """The token is the epoch of the assignment."""
    tokens: dict[int, int] = {}

    def sink(_: list[Message], context: SinkContext) -> None:
        for part in context.ranges:
            lease = context.lease(part.topic_partition)
            assert lease.holds
            tokens[part.partition] = lease.token

    assert is_taken(plan, consumer, sink, lambda: None)
    assert tokens == dict.fromkeys(range(PARTITIONS), EPOCH)


def test_context_without_leases_refuses_to_guard(mock_cluster: MockCluster) -> None:
    """Without leases `guard` raises, so that a missing `ownership.lease.enable` is noticed; `check_leases` passes."""
    plan = plan_with(mock_cluster, **{"ownership.lease.enable": "false"})
    with ScriptedConsumer(member_config(plan, 0, 1)) as consumer:
        consumer.subscribe([TOPIC])
        consumer.member.assign(STARTS, epoch=EPOCH)
        confirm(consumer)
        refusals: list[str] = []

        def sink(_: list[Message], context: SinkContext) -> None:
            context.check_leases()
            with pytest.raises(KafkaException) as refused, context.guard():
                pytest.fail("the guard began")
            refusals.append(str(refused.value))

        assert is_taken(plan, consumer, sink, lambda: None)
        assert "ownership.lease.enable=true" in refusals[0]


# ---- the sinks of the package ---------------------------------------------------------------------------------------

PARTS = {0: range(5), 1: range(3)}


@pytest.fixture
def owner(consumer: ScriptedConsumer) -> ScriptedConsumer:
    """The consumer, which has performed its assignment."""
    assert consumer.consume(1, PATIENCE_S)
    return consumer


def test_parquet_sink_publishes_nothing_after_the_end_of_the_lease(owner: ScriptedConsumer, tmp_path: Path) -> None:
    """The files are written but not published; when the lease is renewed, the same sink publishes them."""
    sink = ParquetSink(tmp_path / "out")
    given = context(PARTS, ownership=Word(member=owner))
    end_leases(owner)
    with pytest.raises(LeaseOverError, match=r"orders-0 is over; nothing was written of orders-0@0\.\.4"):
        sink(batch(PARTS), given)
    assert not list((tmp_path / "out").rglob("*.parquet"))
    confirm(owner)
    sink(batch(PARTS), given)
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == len(PARTS)


def test_postgres_sink_rolls_back_after_the_end_of_the_lease(owner: ScriptedConsumer) -> None:
    """The lease ends while rows are written: no row and no fence stay."""

    def write(cursor: psycopg.Cursor[tuple[object, ...]], messages: list[Message], _: SinkContext) -> None:
        cursor.execute("INSERT INTO written VALUES (%s)", (len(messages),))
        if not is_over:
            is_over.append(True)
            end_leases(owner)

    is_over: list[bool] = []
    with postgres() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE written (records int)")
        sink: PostgresSink[list[Message]] = PostgresSink(conninfo, write, name="s")
        given = context(PARTS, ownership=Word(member=owner))
        with pytest.raises(LeaseOverError, match="is over"):
            sink(batch(PARTS), given)
        assert connection.execute("SELECT records FROM written").fetchall() == []
        confirm(owner)
        sink(batch(PARTS), given)
        assert connection.execute("SELECT records FROM written").fetchall() == [(8,)]
        sink.close()


def test_handler_sink_starts_no_handler_after_the_end_of_the_lease(owner: ScriptedConsumer) -> None:
    """The batch ends without a dead letter, after the running handlers have ended."""
    handled: list[tuple[int | None, int | None]] = []
    dead: list[Message] = []

    def handle(record: Message) -> None:
        handled.append((record.partition(), record.offset()))
        end_leases(owner)

    sink = HandlerSink(handle, concurrency=1, dead_letter=lambda record, _, __: dead.append(record))
    given = context(PARTS, ownership=Word(member=owner))
    end_leases(owner)
    with pytest.raises(LeaseOverError, match="is over"):
        sink(batch(PARTS), given)
    assert (handled, dead) == ([], [])


def test_handler_that_finds_its_lease_over_ends_the_batch(owner: ScriptedConsumer) -> None:
    """`LeaseOverError` is neither retried nor dead-lettered: the record was not handled."""
    dead: list[Message] = []

    def handle(_: Message, context: object) -> None:
        end_leases(owner)
        with context.lease.guard():  # type: ignore[attr-defined]  # a SinkHandlerContext
            pytest.fail("the work began")

    sink = HandlerSink(handle, dead_letter=lambda record, _, __: dead.append(record))
    with pytest.raises(LeaseOverError, match="is over"):
        sink(batch(PARTS), context(PARTS, ownership=Word(member=owner)))
    assert dead == []
