"""The handover of a batch to the sink: a silent coordinator, and a member's view that is not yet current."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

import pytest
from confluent_kafka import Message
from hypothesis import assume, given
from hypothesis import strategies as st
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, FencedError, HandlerError, SinkError, TransportError
from consumer_membership.membership.effects import AssignPartitions
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.spark.batches import ranges_of, runs_of
from consumer_membership.spark.bounds import Bounds
from consumer_membership.spark.context import SinkContext
from consumer_membership.spark.handover import CONFIRMED_S, BatchLimit, FetchedBatch, Handover
from consumer_membership.spark.plan import MemberPlan, member_config, planned
from consumer_membership.spark.task import foreach_partition
from consumer_membership.types import BrokerError, TopicPartition
from tests.clients.conftest import PARTITIONS, RECORDS, filled
from tests.clients.scripted import ScriptedConsumer
from tests.support.kafka import create_topic, produce, unique
from tests.support.mock_cluster import MockCluster
from tests.support.proxy import HEARTBEAT, Proxy
from tests.support.waiting import PATIENCE_S, wait_until

TOPIC = "records"


class Noting:
    """A sink that notes the offsets that it receives."""

    def __init__(self) -> None:
        self.given: list[tuple[int, int]] = []

    def __call__(self, batch: list[Message], _: SinkContext) -> None:
        self.given += [(message.partition() or 0, message.offset() or 0) for message in batch]


def held(plan: MemberPlan, records: list[Message]) -> FetchedBatch:
    """These records in the form in which a member passes them to its handover."""
    assert [message.error() for message in records if message.error() is not None] == []
    return FetchedBatch(batch=records, ranges=ranges_of(runs_of(records, plan.topics)))


# ---- the member played by the test: a real consumer on a mock cluster ------------------------------------------------


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[MockCluster]:
    """A mock cluster with records in each partition of a topic."""
    with MockCluster.start(1) as cluster:
        filled(cluster, TOPIC)
        yield cluster


@pytest.fixture
def plan(mock_cluster: MockCluster) -> MemberPlan:
    """One task that consumes the topic without an end."""
    config = {"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0}
    return planned(config, [TOPIC], "group")


@pytest.fixture
def consumer(plan: MemberPlan) -> Iterator[ScriptedConsumer]:
    """The task's consumer, subscribed."""
    with ScriptedConsumer(member_config(plan, 0, 1)) as consumer:
        consumer.subscribe([TOPIC])
        yield consumer


def everything(consumer: ScriptedConsumer) -> list[Message]:
    """Fetch all records of the topic."""
    return consumer.consume(PARTITIONS * RECORDS, PATIENCE_S)


STARTS = {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)}


@pytest.mark.slow
def test_handover_gives_records_before_the_view_shows_their_partition(
    plan: MemberPlan, consumer: ScriptedConsumer
) -> None:
    """The sink receives fetched records even if the member's view does not show their partition yet.

    Omitted records would be lost: they are not fetched again, and the next commit covers them.
    """
    sink = Noting()
    handover = Handover(plan, sink, 0, 1, consumer, Bounds(plan.run, plan.ends))
    # Only the order is sent: the member does not know yet that it was performed, and shows the old assignment.
    consumer.member.order(AssignPartitions(attempt=1, offsets=STARTS, member_epoch=2))
    records = everything(consumer)
    assert consumer.membership().owned == {}
    handover.give(held(plan, records))
    assert sorted(sink.given) == [(number, offset) for number in range(PARTITIONS) for offset in range(RECORDS)]
    assert {
        (p.partition, at.offset) for p, at in consumer.member.committed.items() if not isinstance(at, BrokerError)
    } == {(number, RECORDS) for number in range(PARTITIONS)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (BrokerError(code=-185, name="_TIMED_OUT"), TransportError),
        (BrokerError(code=-195, name="_TRANSPORT"), TransportError),
        (BrokerError(code=14, name="COORDINATOR_LOAD_IN_PROGRESS"), TransportError),
        (BrokerError(code=113, name="STALE_MEMBER_EPOCH"), TransportError),
        (BrokerError(code=82, name="FENCED_INSTANCE_ID"), FencedError),
    ],
    ids=lambda given: given.name if isinstance(given, BrokerError) else given.__name__,
)
def test_handover_raises_fenced_error_only_if_the_coordinator_fences(
    plan: MemberPlan, consumer: ScriptedConsumer, error: BrokerError, raised: type[Exception]
) -> None:
    """The sink is not called without a confirmation. Only a fence raises `FencedError`; Spark retries other errors."""
    sink = Noting()
    handover = Handover(plan, sink, 0, 1, consumer, Bounds(plan.run, plan.ends))
    consumer.member.assign(STARTS)
    records = everything(consumer)
    consumer.member.commit_error = error
    if raised is FencedError:
        consumer.member.in_state(MemberState.FATAL)
    with pytest.raises(raised, match=r"the coordinator does not confirm the member: .*; nothing was written"):
        handover.give(held(plan, records))
    assert (sink.given, consumer.member.committed) == ([], {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [BrokerError(code=25, name="UNKNOWN_MEMBER_ID"), BrokerError(code=-142, name="_ASSIGNMENT_LOST")],
    ids=lambda error: error.name,
)
@pytest.mark.parametrize("state", [MemberState.FENCED, MemberState.STALE])
def test_batch_of_a_fenced_or_stale_member_is_dropped_without_error(
    plan: MemberPlan, consumer: ScriptedConsumer, error: BrokerError, state: MemberState
) -> None:
    """If the member's session ended while its process was stopped, nothing is written, committed or raised."""
    sink = Noting()
    handover = Handover(plan, sink, 0, 1, consumer, Bounds(plan.run, plan.ends))
    consumer.member.assign(STARTS)
    records = everything(consumer)
    consumer.member.commit_error = error
    consumer.member.in_state(state)
    assert not handover.give(held(plan, records))
    assert (sink.given, consumer.member.committed, handover.records) == ([], {}, 0)


def answer_heartbeat(consumer: ScriptedConsumer) -> None:
    """Record that the coordinator answered a heartbeat just now."""
    consumer.member.view = replace(consumer.member.view, last_heartbeat_at=time.monotonic())


def at_looks(consumer: ScriptedConsumer, happens: Mapping[int, Callable[[], object]]) -> None:
    """Call these functions before the numbered calls of `membership()`, from 1 on."""
    looks, look = count(1), consumer.membership

    def membership() -> MembershipView:
        happens.get(next(looks), lambda: None)()
        return look()

    consumer.membership = membership  # type: ignore[method-assign]  # it only counts the calls


@dataclass(frozen=True)
class Fenced:
    """A sink whose output another attempt has written to while this member's process was stopped."""

    then: Callable[[], object]
    is_final: bool = False

    def __call__(self, _: list[Message], __: SinkContext) -> None:
        """Call `then` and raise `FencedError`."""
        self.then()
        raise FencedError("somebody else wrote last", is_final=self.is_final)


def given_to(plan: MemberPlan, consumer: ScriptedConsumer, sink: object) -> bool:
    """Give a batch of a group member to this sink; return whether the batch was accepted."""
    handover = Handover(plan, sink, 0, 1, consumer, Bounds(plan.run, plan.ends))
    consumer.member.assign(STARTS)
    records = everything(consumer)
    answer_heartbeat(consumer)
    return handover.give(held(plan, records))


@pytest.mark.slow
def test_batch_refused_by_the_sink_of_a_fenced_member_is_dropped(plan: MemberPlan, consumer: ScriptedConsumer) -> None:
    """If the sink fences a member that left its group meanwhile, its batch is dropped and nothing fails."""
    assert not given_to(plan, consumer, Fenced(lambda: consumer.member.in_state(MemberState.FENCED)))
    assert consumer.member.committed == {}


@pytest.mark.slow
@pytest.mark.parametrize(("state", "is_final"), [(MemberState.FENCED, True), (MemberState.FATAL, False)])
def test_fenced_error_of_a_sink_fails_a_replaced_member(
    plan: MemberPlan, consumer: ScriptedConsumer, state: MemberState, *, is_final: bool
) -> None:
    """A sink's `FencedError` fails the task if the fence is final or the group has replaced the member."""
    with pytest.raises(FencedError, match="somebody else wrote last"):
        given_to(plan, consumer, Fenced(lambda: consumer.member.in_state(state), is_final=is_final))


@pytest.mark.slow
def test_fenced_error_of_a_sink_fails_a_member_that_stayed_in_its_group(
    plan: MemberPlan, consumer: ScriptedConsumer
) -> None:
    """For a member that stayed in its group, the fences belong to a deleted group, and retries would never end."""
    with pytest.raises(FencedError, match="somebody else wrote last"):
        given_to(
            plan,
            consumer,
            Fenced(
                lambda: at_looks(
                    consumer, {2: lambda: answer_heartbeat(consumer), 4: lambda: answer_heartbeat(consumer)}
                )
            ),
        )


@pytest.mark.slow
def test_heartbeat_answer_from_before_a_pause_confirms_no_membership(
    plan: MemberPlan, consumer: ScriptedConsumer
) -> None:
    """An answer to a heartbeat sent before the pause confirms nothing; the answer to the next heartbeat decides."""
    happens = {2: lambda: answer_heartbeat(consumer), 4: lambda: consumer.member.in_state(MemberState.FENCED)}
    assert not given_to(plan, consumer, Fenced(lambda: at_looks(consumer, happens)))


@pytest.mark.slow
def test_fenced_error_after_the_sink_timeout_counts_as_a_late_batch(
    plan: MemberPlan, consumer: ScriptedConsumer
) -> None:
    """A sink that raises `FencedError` after its timeout counts as late and fails the task after `sink_attempts`."""
    plan = replace(plan, sink_attempts=1, sink_timeout_s=1.0)

    def expire() -> None:
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > plan.sink_timeout_s, "the end of the sink's time")
        consumer.member.in_state(MemberState.STALE)

    with pytest.raises(SinkError, match=r"longer than sink_timeout_s=1, .*batch_size=10000; 1 of 1 batches"):
        given_to(plan, consumer, Fenced(expire))


@pytest.mark.slow
def test_sink_error_of_an_iterator_function_names_its_last_record(plan: MemberPlan, consumer: ScriptedConsumer) -> None:
    """The error of a function over an iterator names the record at which it failed, and then the batch."""

    def write(records: Iterator[Message]) -> None:
        for message in records:
            if (message.partition(), message.offset()) == (1, 3):
                raise ValueError("no number")

    with pytest.raises(SinkError) as failed:
        given_to(replace(plan, sink_attempts=1), consumer, foreach_partition(write))
    assert str(failed.value).startswith(
        f"the sink raised ValueError: no number, at record {TOPIC}-1@3 (1 of 1 calls); not committed: {TOPIC}-0@0.."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "raised",
    [
        ConfigurationError("folder", "out", "give another one"),
        HandlerError("the handler failed for folder='out'", TopicPartition(TOPIC, 0), 0),
    ],
)
def test_error_that_each_call_would_raise_fails_the_task_at_the_first_call(
    plan: MemberPlan, consumer: ScriptedConsumer, raised: Exception
) -> None:
    """The handover does not retry a wrong configuration, nor a handler that has retried its record."""
    calls: list[int] = []

    def refuse(batch: list[Message], _: SinkContext) -> None:
        calls.append(len(batch))
        raise raised

    with pytest.raises(SinkError, match=r"folder='out'.*\(1 of 3 calls\)"):
        given_to(plan, consumer, refuse)
    assert len(calls) == 1


# ---- how many records a batch may have -------------------------------------------------------------------------------


@given(
    st.integers(1, 10_000),
    st.floats(1.0, 3600.0),
    st.floats(1e-6, 10.0),
    st.lists(st.booleans(), max_size=40),
)
def test_batch_limit_leaves_a_steady_sink_its_time_after_one_late_batch(
    batch_size: int, timeout_s: float, per_record_s: float, skipped: list[bool]
) -> None:
    """After one late batch, no later one is late if the sink manages 8 records or more in half of its time.

    This also holds with up to four batches in between that take no time, as in a sink that skips records that it has
    already written (`skipped`).
    """
    limit = BatchLimit(batch_size, timeout_s)
    limit.learn(batch_size, batch_size * per_record_s)
    assume(limit.records >= 8)
    in_a_row = 0
    for is_skipped in skipped:
        records, in_a_row = limit.records, in_a_row + 1 if is_skipped else 0
        assert 1 <= records <= batch_size
        if is_skipped and in_a_row < 5:
            limit.learn(records, 0.0)
            continue
        assert records * per_record_s <= timeout_s
        limit.learn(records, records * per_record_s)


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_batch_limit_grows_back_to_the_batch_size(batch_size: int, records: int) -> None:
    """After one slow batch, a sink that is fast again gets full batches after a bounded number of batches."""
    limit = BatchLimit(batch_size, 3.0)
    limit.learn(min(records, batch_size), 1e6)
    assert limit.records == 1
    for _ in range(110):
        limit.learn(limit.records, 0.0)
    assert limit.records == batch_size


def test_batch_limit_ignores_batches_smaller_than_itself() -> None:
    """A batch with fewer records than the limit does not show that a larger one fits."""
    limit = BatchLimit(100, 10.0)
    limit.learn(100, 10.0)
    limit.learn(49, 0.0)
    assert limit.records == 50


# ---- a real coordinator behind a cable that is pulled ----------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.slow
def test_disconnect_between_fetch_and_sink_keeps_the_member_and_its_records(kafka: Broker) -> None:
    """While the coordinator is unreachable, the sink is not called; the same member gives the records to it later."""
    topic, group, sink = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group"), Noting()
    produce(kafka.bootstrap_servers, topic, 100)
    with Proxy(kafka.bootstrap_servers) as proxy:
        config: dict[str, object] = {"bootstrap.servers": proxy.address, "log_level": 0, "socket.timeout.ms": 1000}
        plan = planned(config, [topic], group)
        with Consumer(member_config(plan, 0, 1)) as consumer:
            handover = Handover(plan, sink, 0, 1, consumer, Bounds(plan.run, plan.ends))
            consumer.subscribe([topic])
            batch = held(plan, consumer.consume(100, PATIENCE_S))
            member_id = consumer.membership().member_id
            proxy.hold_from(HEARTBEAT)
            wait_until(
                lambda: time.monotonic() - (consumer.membership().last_heartbeat_at or 0.0) > CONFIRMED_S, "silence"
            )
            proxy.wait(lambda: proxy.held[HEARTBEAT] > 0, "a heartbeat that does not get through")
            with pytest.raises(TransportError, match=r"does not confirm the member: .*; nothing was written"):
                handover.give(batch)
            assert sink.given == []
            healed_at = time.monotonic()
            proxy.heal()
            wait_until(
                lambda: (
                    consumer.poll(0) is None
                    and consumer.membership().coordinator is not None
                    and (consumer.membership().last_heartbeat_at or 0.0) > healed_at
                ),
                "a coordinator that answers",
            )
            # A commit may still get no response if it uses a connection that broke during the pause.
            Retrying(
                retry=retry_if_exception_type(TransportError),
                wait=wait_fixed(0.1),
                stop=stop_after_delay(PATIENCE_S),
                reraise=True,
            )(handover.give, batch)
            assert sink.given == [(0, offset) for offset in range(100)]
            assert consumer.membership().member_id == member_id
