"""The steps of a rebalance on the application's side: callbacks, fetched partitions, and reports to the member."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, Message
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer
from consumer_membership.config.patterns import translate
from consumer_membership.membership.effects import LeaveCompleted, PausePartitions, RevokePartitions
from consumer_membership.membership.events import LeaveRequested, Polled, Step, StepFinished, Subscribed
from consumer_membership.membership.states import MemberState
from consumer_membership.types import OffsetAndMetadata, Subscription, TopicPartition
from tests.clients.application import Called, at, drain, held, offset, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import Thread
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

# ---- subscribing ----


def test_first_poll_after_subscribe_starts_the_member(consumers: ConsumerFactory, topic: str) -> None:
    """M25: the member's thread starts at the first poll, which immediately reports that the application polls."""
    consumer = consumers()
    consumer.subscribe([topic, "^logs.*", "^more"])
    assert (consumer.member.is_started, consumer.member.of(Polled)) == (False, [])
    consumer.poll(0)
    assert consumer.member.is_started
    subscription = Subscription(topics=frozenset({topic}), patterns=frozenset(map(translate, ("^logs.*", "^more"))))
    assert subscription.pattern == "(?:^logs.*)|(?:^more.*)"
    (subscribed,) = consumer.member.of(Subscribed)
    assert consumer.member.events == [subscribed, Polled()]
    assert subscribed.subscription == subscription


def test_poll_posts_no_event_while_records_flow(consumers: ConsumerFactory, topic: str) -> None:
    """The hot path posts no event, because the member's thread reads the delivery counters."""
    consumer = consumers()
    consumer.subscribe([topic])
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    consumer.member.events.clear()
    before = consumer.member.progress()
    for _ in range(RECORDS - 1):
        record(consumer)
    after = consumer.member.progress()
    assert consumer.member.events == []
    assert after[1] - before[1] == RECORDS - 1
    assert after[0] > before[0]


@pytest.mark.parametrize("state", [MemberState.STALE, MemberState.FATAL, MemberState.UNSUBSCRIBED])
def test_poll_posts_one_event_if_the_member_waits_for_a_poll(
    consumers: ConsumerFactory, topic: str, state: MemberState
) -> None:
    """M124: a member outside its group rejoins at the next poll, without waiting for a sample of the counters."""
    consumer = consumers()
    consumer.subscribe([topic])
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    consumer.member.events.clear()
    consumer.member.in_state(state)
    consumer.consume(RECORDS - 1, 0.1)
    consumer.consume(1, 0.1)
    assert consumer.member.of(Polled) == [Polled()]


# ---- assigning ----


def test_on_assign_runs_before_the_partitions_start_at_the_members_offsets(
    consumers: ConsumerFactory, topic: str
) -> None:
    """M38, M40, C05: inside on_assign the new partitions are neither assigned nor delivered; they start afterwards."""
    seen: list[object] = []
    calls: Called = []

    def look(_: str, given: Consumer) -> None:
        seen.extend([given.assignment(), given.poll(0)])

    consumer = subscribed(consumers, topic, calls, look)
    attempt = consumer.member.assign({TopicPartition(topic, 1): 40, TopicPartition(topic, 0): 45})
    found = drain(consumer, 15)
    assert calls[0] == ("assign", [0, 1])
    assert seen[:2] == [[], None]
    assert sorted(found) == [(0, value) for value in range(45, 50)] + [(1, value) for value in range(40, 50)]
    assert consumer.member.steps == [StepFinished(attempt=attempt, step=Step.ASSIGN)]
    assert [partition.offset for partition in consumer.assignment()] == [-1000, -1000]


def test_assign_step_repeats_an_assignment_that_ctrl_c_interrupted(consumers: ConsumerFactory, topic: str) -> None:
    """A partition that only the handle knows still starts at the member's offset."""
    consumer = subscribed(consumers, topic, [])
    assert consumer._session is not None
    consumer._session.fetcher.handle.incremental_assign([PartitionOffset(topic, 0, 7)])
    consumer.member.assign({TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 0})
    assert min(start for number, start in drain(consumer, 2 * RECORDS - 3) if number == 0) == 3


def test_on_assign_receives_the_difference_while_retained_partitions_continue(
    consumers: ConsumerFactory, topic: str
) -> None:
    """M31: callbacks are incremental, and a second assignment adds to the first."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 48))
    assert drain(consumer, 2) == [(0, 48), (0, 49)]
    consumer.member.assign(dict.fromkeys(at(topic, 2), 49))
    assert drain(consumer, 1) == [(2, 49)]
    assert calls == [("assign", [0]), ("assign", [2])]
    assert held(consumer) == [0, 2]


def test_empty_assignment_calls_on_assign(consumers: ConsumerFactory, topic: str) -> None:
    """M23: on_assign is also called for an empty assignment."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign({})
    consumer.poll(0)
    assert calls == [("assign", [])]


def test_on_assign_that_raises_assigns_nothing_and_poll_raises(consumers: ConsumerFactory, topic: str) -> None:
    """M39, M42, M44: the member receives the failure, no partition is fetched, and a repeated step succeeds."""
    calls: Called = []

    def fail_once(_: str, __: Consumer) -> None:
        if len(calls) == 1:
            raise LookupError("no database")

    consumer = subscribed(consumers, topic, calls, fail_once)
    attempt = consumer.member.assign(dict.fromkeys(at(topic, 0), 48))
    with pytest.raises(LookupError, match="no database"):
        consumer.poll(PATIENCE_S)
    assert consumer.member.steps == [StepFinished(attempt=attempt, step=Step.ASSIGN, failed=True)]
    assert (held(consumer), drain(consumer)) == ([], [])
    consumer.member.assign(dict.fromkeys(at(topic, 0), 48))
    assert drain(consumer, 2) == [(0, 48), (0, 49)]
    assert calls == [("assign", [0]), ("assign", [0])]


def test_ctrl_c_inside_a_callback_finishes_the_step_as_failed(consumers: ConsumerFactory, topic: str) -> None:
    """M43, M44, C18: an interrupt counts as a failure of the callback; otherwise the member would wait forever."""

    def interrupt(_: str, __: Consumer) -> None:
        raise KeyboardInterrupt

    consumer = subscribed(consumers, topic, [], interrupt)
    attempt = consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(PATIENCE_S)
    assert consumer.member.steps == [StepFinished(attempt=attempt, step=Step.ASSIGN, failed=True)]


@pytest.mark.parametrize("method", ["assign", "incremental_assign"])
def test_assign_inside_on_assign_sets_the_start_offsets(consumers: ConsumerFactory, topic: str, method: str) -> None:
    """C06: the application may start elsewhere, and -1001 means the committed offset.

    Eager applications call `assign`.
    """
    calls: Called = []

    def take(name: str, given: Consumer) -> None:
        if name == "assign":
            getattr(given, method)([PartitionOffset(topic, 0, 47), PartitionOffset(topic, 1)])

    consumer = subscribed(consumers, topic, calls, take)
    consumer.member.assign({TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 49})
    assert sorted(drain(consumer, 4)) == [(0, 47), (0, 48), (0, 49), (1, 49)]
    assert [partition.offset for partition in consumer.assignment()] == [47, OFFSET_STORED]


def test_pause_inside_on_assign_pauses_the_new_partitions(consumers: ConsumerFactory, topic: str) -> None:
    """C06: `pause` inside on_assign applies to the partitions that are being assigned."""
    calls: Called = []

    def pause(name: str, given: Consumer) -> None:
        if name == "assign":
            given.pause([PartitionOffset(topic, 0)])

    consumer = subscribed(consumers, topic, calls, pause)
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 49))
    assert drain(consumer, 1) == [(1, 49)]
    consumer.resume([PartitionOffset(topic, 0)])
    assert drain(consumer, 1) == [(0, 49)]


def test_assign_outside_callbacks_raises_on_a_subscribed_consumer(consumers: ConsumerFactory, topic: str) -> None:
    """The group assigns, so the call raises `_STATE`, as confluent-kafka does under the consumer protocol."""
    consumer = subscribed(consumers, topic, [])
    for call in (lambda: consumer.assign([PartitionOffset(topic, 0)]), consumer.unassign):
        with pytest.raises(Exception, match="Erroneous state") as caught:
            call()
        assert caught.value.args[0].code() == -172


# ---- revoking ----


def test_pause_step_reports_the_first_undelivered_record_and_stops_delivery(
    consumers: ConsumerFactory, topic: str
) -> None:
    """M34: the reported offset is that of the application, and not of the records that librdkafka has fetched."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    assert [record(consumer).offset() for _ in range(3)] == [0, 1, 2]
    attempt = consumer.member.pause(at(topic, 0))
    assert drain(consumer) == []
    assert consumer.member.steps[-1] == StepFinished(
        attempt=attempt, step=Step.PAUSE, offsets={TopicPartition(topic, 0): offset(3)}
    )
    consumer.member.revoke(at(topic, 0))
    assert drain(consumer) == []
    assert calls[-1] == ("revoke", [0])
    assert consumer.member.steps[-1] == StepFinished(attempt=attempt, step=Step.REVOKE)
    assert held(consumer) == []


def test_retained_partitions_are_delivered_during_a_revocation(consumers: ConsumerFactory, topic: str) -> None:
    """Only the revoked partition stops; its buffered records are dropped, and those of other partitions are kept."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    first = record(consumer)
    consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    rest = drain(consumer, RECORDS - (first.partition() == 1))
    delivered = [(first.partition(), first.offset()), *rest]
    assert [value for partition, value in delivered if partition == 1] == list(range(RECORDS))
    assert [value for partition, value in rest if partition == 0] == []


def test_pause_step_reports_no_offsets_without_auto_commit(consumers: ConsumerFactory, topic: str) -> None:
    """M33: the application commits its own offsets."""
    consumer = subscribed(consumers, topic, [], enable_auto_commit=False)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    attempt = consumer.member.pause(None)
    consumer.poll(0)
    assert consumer.member.steps[-1] == StepFinished(attempt=attempt, step=Step.PAUSE)


def test_pause_step_reports_no_offset_of_an_undelivered_partition(consumers: ConsumerFactory, topic: str) -> None:
    """A partition without a delivered record has no position, although its records wait in the buffer."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    first = record(consumer)
    other = 1 - (first.partition() or 0)
    attempt = consumer.member.pause(None)
    consumer.poll(0)
    assert consumer.member.steps[-1] == StepFinished(
        attempt=attempt, step=Step.PAUSE, offsets={TopicPartition(topic, first.partition() or 0): offset(1)}
    )
    assert consumer.position([PartitionOffset(topic, other)])[0].offset == OFFSET_INVALID


def test_offset_stored_inside_on_revoke_is_reported_after_the_callback(consumers: ConsumerFactory, topic: str) -> None:
    """With enable.auto.offset.store=false, the last stored offset is committed before the acknowledgement."""
    calls: Called = []

    def store(name: str, given: Consumer) -> None:
        if name == "revoke":
            given.store_offsets(offsets=[PartitionOffset(topic, 0, 7)])

    consumer = subscribed(consumers, topic, calls, store, enable_auto_offset_store=False)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    consumer.store_offsets(record(consumer))
    attempt = consumer.member.pause(None)
    consumer.member.revoke(None)
    consumer.poll(0)
    stored = OffsetAndMetadata(offset=7)
    assert consumer.member.steps[1:] == [
        StepFinished(attempt=attempt, step=Step.PAUSE, offsets={TopicPartition(topic, 0): offset(1)}),
        StepFinished(attempt=attempt, step=Step.REVOKE, offsets={TopicPartition(topic, 0): stored}),
    ]


def test_assignment_inside_on_revoke_includes_the_revoked_partitions(consumers: ConsumerFactory, topic: str) -> None:
    """C06: inside on_revoke, `assignment` and `position` still include the partitions that are being revoked."""
    seen: list[object] = []

    def look(name: str, given: Consumer) -> None:
        if name == "revoke":
            seen.extend([held(given), [p.offset for p in given.position([PartitionOffset(topic, 0)])]])

    consumer = subscribed(consumers, topic, [], look)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    consumer.member.pause(None)
    consumer.member.revoke(None)
    consumer.poll(0)
    assert seen == [[0], [1]]


@pytest.mark.parametrize("method", ["unassign", "incremental_unassign"])
def test_unassign_inside_on_revoke_removes_only_the_revoked_partitions(
    consumers: ConsumerFactory, topic: str, method: str
) -> None:
    """As in confluent-kafka, eager applications call `unassign`, which removes only the revoked partitions."""

    def give_up(name: str, given: Consumer) -> None:
        if name == "revoke":
            getattr(given, method)(*([] if method == "unassign" else [[PartitionOffset(topic, 0)]]))
            assert held(given) == [1]

    consumer = subscribed(consumers, topic, [], give_up)
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    record(consumer)
    attempt = consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    drain(consumer)
    assert consumer.member.steps[-1] == StepFinished(attempt=attempt, step=Step.REVOKE)
    assert held(consumer) == [1]


def test_on_revoke_that_raises_keeps_the_partitions_frozen(consumers: ConsumerFactory, topic: str) -> None:
    """M41, M43: the partitions are neither released nor delivered, and the member orders the revocation again."""
    calls: Called = []

    def fail_once(_: str, __: Consumer) -> None:
        if len(calls) == 2:
            raise LookupError("no database")

    consumer = subscribed(consumers, topic, calls, fail_once)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    attempt = consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    with pytest.raises(LookupError):
        consumer.poll(PATIENCE_S)
    assert consumer.member.steps[-1] == StepFinished(attempt=attempt, step=Step.REVOKE, failed=True)
    assert (held(consumer), drain(consumer)) == ([0], [])
    consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    assert drain(consumer) == []
    assert calls[1:] == [("revoke", [0]), ("revoke", [0])]
    assert held(consumer) == []


def test_partition_whose_revocation_is_cancelled_continues(consumers: ConsumerFactory, topic: str) -> None:
    """After a failed on_revoke the coordinator may assign the partition again, and no step reports this."""

    def fail(name: str, _: Consumer) -> None:
        if name == "revoke":
            raise LookupError

    consumer = subscribed(consumers, topic, [], fail)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 40))
    record(consumer)
    consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    with pytest.raises(LookupError):
        consumer.poll(PATIENCE_S)
    assert drain(consumer) == []
    consumer.member.in_state(MemberState.STABLE)
    assert drain(consumer, RECORDS - 41) == [(0, value) for value in range(41, RECORDS)]
    consumer.member.lose()
    consumer.poll(0)


def test_steps_of_an_earlier_attempt_are_dropped(consumers: ConsumerFactory, topic: str) -> None:
    """M70: a member that was fenced and rejoined performs no remaining step of the earlier reconciliation."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.order(PausePartitions(attempt=1, partitions=None), RevokePartitions(attempt=1, partitions=None))
    consumer.member.attempt = 1
    attempt = consumer.member.assign(dict.fromkeys(at(topic, 0), 49))
    assert drain(consumer, 1) == [(0, 49)]
    assert calls == [("assign", [0])]
    assert consumer.member.steps == [StepFinished(attempt=attempt, step=Step.ASSIGN)]


def test_revocation_of_no_partitions_calls_no_callback(consumers: ConsumerFactory, topic: str) -> None:
    """M85: on_revoke and on_lost are never called with an empty list."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.pause(None)
    consumer.member.revoke(None)
    consumer.poll(0)
    consumer.member.lose()
    consumer.poll(0)
    assert calls == []
    assert [step.step for step in consumer.member.steps] == [Step.PAUSE, Step.REVOKE, Step.LOSE]


def test_pause_of_the_application_ends_with_the_assignment(consumers: ConsumerFactory, topic: str) -> None:
    """C09: a revoked partition returns unpaused, unlike in librdkafka; a retained partition stays paused."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 48))
    consumer.poll(0)
    consumer.pause([PartitionOffset(topic, 0), PartitionOffset(topic, 1)])
    assert drain(consumer) == []
    consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    consumer.poll(0)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 48))
    assert drain(consumer, 2) == [(0, 48), (0, 49)]
    consumer.resume([PartitionOffset(topic, 1)])
    assert drain(consumer, 2) == [(1, 48), (1, 49)]


# ---- losing ----


def test_lost_partitions_are_frozen_before_on_lost(consumers: ConsumerFactory, topic: str) -> None:
    """M86, M88, M96, M127: another member may own the partitions; no record is delivered once the loss is known."""
    calls: Called = []
    seen: list[object] = []

    def look(name: str, given: Consumer) -> None:
        if name == "lost":
            seen.extend([held(given), given.poll(0)])

    consumer = subscribed(consumers, topic, calls, look)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    attempt = consumer.member.lose()
    assert drain(consumer) == []
    assert (calls[-1], seen) == (("lost", [0]), [[0], None])
    assert consumer.member.steps[-1] == StepFinished(attempt=attempt, step=Step.LOSE)
    assert held(consumer) == []


def test_on_revoke_is_called_for_lost_partitions_without_on_lost(consumers: ConsumerFactory, topic: str) -> None:
    """on_revoke receives the lost partitions if the subscription has no on_lost, as in confluent-kafka."""
    calls: list[list[int]] = []
    consumer = consumers()
    consumer.subscribe([topic], on_revoke=lambda _, partitions: calls.append([p.partition for p in partitions]))
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    consumer.member.lose()
    consumer.poll(0)
    assert calls == [[0]]


def test_on_lost_that_raises_still_loses_the_partitions(consumers: ConsumerFactory, topic: str) -> None:
    """M87: the partitions are lost in any case, and `poll` raises the exception."""

    def fail(name: str, _: Consumer) -> None:
        if name == "lost":
            raise LookupError

    consumer = subscribed(consumers, topic, [], fail)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    attempt = consumer.member.lose()
    with pytest.raises(LookupError):
        consumer.poll(PATIENCE_S)
    assert consumer.member.steps[-1] == StepFinished(attempt=attempt, step=Step.LOSE, failed=True)
    assert held(consumer) == []


def test_commit_inside_on_lost_raises_assignment_lost(consumers: ConsumerFactory, topic: str) -> None:
    """Another member may have committed later positions already, so the commit raises `_ASSIGNMENT_LOST`."""
    codes: list[int] = []

    def commit(name: str, given: Consumer) -> None:
        if name == "lost":
            with pytest.raises(Exception, match="lost") as caught:
                given.commit(asynchronous=False)
            codes.append(caught.value.args[0].code())

    consumer = subscribed(consumers, topic, [], commit)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    consumer.member.lose()
    consumer.poll(0)
    assert codes == [-142]


# ---- long calls, unsubscribe and close ----


def test_poll_performs_a_step_while_it_waits(consumers: ConsumerFactory, topic: str) -> None:
    """A poll of any length performs steps within a slice; here the record comes from the newly assigned partition."""
    consumer = subscribed(consumers, topic, [])
    polling = Thread(lambda: consumer.poll(PATIENCE_S))
    consumer.member.wait_for(Polled)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 49))
    message = polling.outcome()
    assert isinstance(message, Message)
    assert message.offset() == 49


def test_consume_continues_over_a_rebalance(consumers: ConsumerFactory, topic: str) -> None:
    """One `consume` call performs steps between its slices and continues to collect records."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(topic, 0), 48))
    consuming = Thread(lambda: consumer.consume(4, PATIENCE_S))
    consumer.member.wait_for(StepFinished)
    consumer.member.assign(dict.fromkeys(at(topic, 1), 48))
    messages = consuming.outcome()
    assert isinstance(messages, list)
    assert sorted((m.partition(), m.offset()) for m in messages) == [(0, 48), (0, 49), (1, 48), (1, 49)]


def test_consume_keeps_its_records_if_a_callback_raises(consumers: ConsumerFactory, topic: str) -> None:
    """No record is lost, because the next call returns the collected records."""

    def fail(name: str, _: Consumer) -> None:
        if name == "revoke":
            raise LookupError

    consumer = subscribed(consumers, topic, [], fail)
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 48))
    consuming = Thread(lambda: consumer.consume(100, PATIENCE_S))
    consumer.member.wait_for(StepFinished)
    consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    with pytest.raises(LookupError):
        consuming.outcome()
    assert [(m.partition(), m.offset()) for m in consumer.consume(2, PATIENCE_S)] == [(1, 48), (1, 49)]
    consumer.member.lose()
    consumer.poll(0)


def test_unsubscribe_returns_at_once_and_a_later_poll_revokes(consumers: ConsumerFactory, topic: str) -> None:
    """C11, C12: a later poll calls on_revoke; then the application may call `assign`."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    consumer.member.farewell = [
        PausePartitions(attempt=9, partitions=None),
        RevokePartitions(attempt=9, partitions=None),
    ]
    consumer.unsubscribe()
    assert consumer.member.of(LeaveRequested) == [LeaveRequested()]
    assert calls == [("assign", [0])]
    consumer.poll(0)
    assert calls[1:] == [("revoke", [0])]
    consumer.assign([PartitionOffset(topic, 2, 49)])
    assert drain(consumer, 1) == [(2, 49)]


def test_missing_committed_offset_with_reset_error_reaches_the_application(
    consumers: ConsumerFactory, topic: str
) -> None:
    """With auto.offset.reset=error, librdkafka reports `_AUTO_OFFSET_RESET` to the application."""
    consumer = subscribed(consumers, topic, [], auto_offset_reset="error", group_id="never-committed")
    consumer.member.assign(dict.fromkeys(at(topic, 0), OFFSET_INVALID))
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == -140


def test_serve_performs_no_order_after_the_session_is_closed(consumers: ConsumerFactory, topic: str) -> None:
    """A poll in another thread may find a late order after the close, when the handle is closed already."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    record(consumer)
    rebalance = consumer._use()._rebalance
    consumer.close()
    leaves = rebalance.leaves
    consumer.member.order(LeaveCompleted())
    rebalance.serve()
    assert rebalance.leaves == leaves
