"""Commits: what is sent to the member, and how its answer comes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import CommitError, Consumer
from consumer_membership.membership.effects import CollectPositions, CommitCompleted
from consumer_membership.membership.events import AssignedByHand, CommitRequested, PositionsReported
from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition
from tests.clients.application import offset, record, subscribed
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.waiting import PATIENCE_S

REFUSED = BrokerError(code=22, name="ILLEGAL_GENERATION", message="not this epoch")
Reported = list[tuple[KafkaError | None, list[PartitionOffset]]]


def consuming(consumers: ConsumerFactory, topic: str, **config: object) -> ScriptedConsumer:
    """A consumer that got one record of partition 0."""
    consumer = consumers(**config)
    consumer.assign([PartitionOffset(topic, 0, 0)])
    record(consumer)
    return consumer


def plain(partitions: list[PartitionOffset] | None) -> list[tuple[int, int, int | None]]:
    """Partition, offset and error code of each."""
    return [(p.partition, p.offset, None if p.error is None else p.error.code()) for p in partitions or []]


def test_commit_sends_positions_with_their_leader_epoch(consumers: ConsumerFactory, topic: str) -> None:
    """Without arguments: the position after the last delivered record; the member has the socket's timeout for it."""
    consumer = consuming(consumers, topic, socket_timeout_ms=7000)
    assert plain(consumer.commit(asynchronous=False)) == [(0, 1, None)]
    assert consumer.member.of(CommitRequested) == [
        CommitRequested(commit_id=1, offsets={TopicPartition(topic, 0): offset(1)}, timeout_s=7.0)
    ]


def test_second_commit_of_the_same_position_has_nothing_to_commit(consumers: ConsumerFactory, topic: str) -> None:
    """Only what lies above the known committed offset is sent: `_NO_OFFSET`."""
    consumer = consuming(consumers, topic)
    consumer.commit(asynchronous=False)
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == -168
    assert isinstance(caught.value, CommitError)


def test_commit_keeps_metadata_and_leader_epoch_of_what_it_is_given(consumers: ConsumerFactory, topic: str) -> None:
    """KIP-320, and the application's own text; unassigned partitions may be committed."""
    consumer = consumers()
    given = [PartitionOffset(topic, 3, 9, "note", 4), PartitionOffset(topic, 2, 8), PartitionOffset(topic, 1)]
    answer = consumer.commit(offsets=given, asynchronous=False) or []
    assert consumer.member.of(CommitRequested)[0].offsets == {
        TopicPartition(topic, 3): OffsetAndMetadata(offset=9, leader_epoch=4, metadata="note\0"),
        TopicPartition(topic, 2): OffsetAndMetadata(offset=8),
    }
    assert plain(answer) == [(3, 9, None), (2, 8, None), (1, -1001, None)]
    assert (answer[0].metadata, answer[0].leader_epoch) == ("note", 4)
    assert consumer.member.is_started


def test_commit_of_a_message_is_the_offset_after_it(consumers: ConsumerFactory, topic: str) -> None:
    """With the record's leader epoch."""
    consumer = consumers()
    consumer.commit(Message(topic=topic, partition=1, offset=6, leader_epoch=3), asynchronous=False)
    assert consumer.member.of(CommitRequested)[0].offsets == {
        TopicPartition(topic, 1): OffsetAndMetadata(offset=7, leader_epoch=3)
    }


def test_commit_that_fails_for_every_partition_raises(consumers: ConsumerFactory, topic: str) -> None:
    """With the broker's own code, and both families of exceptions catch it."""
    consumer = consuming(consumers, topic)
    consumer.member.commit_error = REFUSED
    with pytest.raises(CommitError, match="not this epoch") as caught:
        consumer.commit(asynchronous=False)
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0].code() == KafkaError.ILLEGAL_GENERATION


def test_commit_that_fails_for_some_partitions_returns_their_errors(consumers: ConsumerFactory, topic: str) -> None:
    """The others are committed, and what failed is still to be committed."""
    consumer = consumers()
    consumer.member.answers_commits = False
    committing = Thread(
        lambda: plain(
            consumer.commit(offsets=[PartitionOffset(topic, 0, 1), PartitionOffset(topic, 1, 2)], asynchronous=False)
        )
    )
    (request,) = consumer.member.wait_for(CommitRequested)
    consumer.member.order(
        CommitCompleted(
            commit_id=request.commit_id,
            offsets=request.offsets,
            errors={TopicPartition(topic, 0): None, TopicPartition(topic, 1): REFUSED},
        )
    )
    assert committing.outcome() == [(0, 1, None), (1, 2, KafkaError.ILLEGAL_GENERATION)]


def test_failed_partition_behaves_as_a_topic_partition(consumers: ConsumerFactory, topic: str) -> None:
    """It equals the plain one, hashes alike, and shows its error."""
    reported: Reported = []
    consumer = consumers(on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.member.commit_error = REFUSED
    consumer.commit(offsets=[PartitionOffset(topic, 1, 2)])
    consumer.poll(0)
    ((_, (failed,)),) = reported
    assert failed == PartitionOffset(topic, 1)
    assert PartitionOffset(topic, 1) == failed
    assert len({failed, failed}) == 1
    assert failed != PartitionOffset(topic, 2)
    assert failed < PartitionOffset(topic, 2)
    assert "ILLEGAL_GENERATION" in str(failed)


def test_asynchronous_commit_reports_through_on_commit(consumers: ConsumerFactory, topic: str) -> None:
    """It returns None at once; the outcome comes out of a later poll."""
    reported: Reported = []
    consumer = consuming(consumers, topic, on_commit=lambda error, partitions: reported.append((error, partitions)))
    assert consumer.commit() is None
    assert reported == []
    consumer.poll(0)
    ((error, partitions),) = reported
    assert (error, plain(partitions)) == (None, [(0, 1, None)])


def test_asynchronous_commit_of_nothing_reports_no_offset(consumers: ConsumerFactory) -> None:
    """As in confluent-kafka: no exception, `_NO_OFFSET` to on_commit."""
    reported: Reported = []
    consumer = consumers(on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.commit()
    consumer.poll(0)
    ((error, partitions),) = reported
    assert (error.code() if error else None, partitions) == (-168, [])


def test_synchronous_commit_does_not_call_on_commit(consumers: ConsumerFactory, topic: str) -> None:
    """Its outcome is its result."""
    reported: Reported = []
    consumer = consuming(consumers, topic, on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.commit(asynchronous=False)
    consumer.poll(0)
    assert reported == []


def test_on_commit_that_raises_comes_out_of_poll(consumers: ConsumerFactory, topic: str) -> None:
    """And loses no record."""

    def fail(_: object, partitions: list[PartitionOffset]) -> None:
        if partitions[0].offset == 1:
            raise LookupError

    consumer = consuming(consumers, topic, on_commit=fail)
    consumer.commit()
    with pytest.raises(LookupError):
        consumer.poll(PATIENCE_S)
    assert record(consumer).offset() == 1


def test_automatic_commit_collects_positions_and_reports_through_on_commit(
    consumers: ConsumerFactory, topic: str
) -> None:
    """The member asks when the interval is over; what is committed already is not reported again."""
    reported: Reported = []
    consumer = subscribed(consumers, topic, [], on_commit=lambda error, ps: reported.append((error, ps)))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    consumer.member.order(CollectPositions(commit_id=-1))
    record(consumer)
    (answer,) = consumer.member.of(PositionsReported)
    assert (answer.commit_id, [at.offset for at in answer.offsets.values()]) == (-1, [1])
    consumer.member.order(CommitCompleted(commit_id=-1, offsets=answer.offsets, errors=dict.fromkeys(answer.offsets)))
    consumer.member.order(CollectPositions(commit_id=-2))
    consumer.consume(0, 0)
    assert plain(reported[0][1]) == [(0, 1, None)]
    assert [at.offset for at in consumer.member.of(PositionsReported)[1].offsets.values()] == [2]


def test_stored_offsets_are_what_is_committed(consumers: ConsumerFactory, topic: str) -> None:
    """enable.auto.offset.store=false: delivered is not consumed, stored is."""
    consumer = consumers(enable_auto_offset_store=False)
    consumer.assign([PartitionOffset(topic, 0, 0), PartitionOffset(topic, 1, 0)])
    message = record(consumer)
    with pytest.raises(KafkaException, match="No offset stored"):
        consumer.commit(asynchronous=False)
    consumer.store_offsets(message)
    other = 1 - (message.partition() or 0)
    assert sorted(plain(consumer.commit(asynchronous=False))) == sorted(
        [(message.partition(), 1, None), (other, -1001, None)]
    )
    consumer.store_offsets(offsets=[PartitionOffset(topic, 0, 5, "note"), PartitionOffset(topic, 3, 1)])
    consumer.commit(asynchronous=False)
    assert consumer.member.of(CommitRequested)[-1].offsets == {
        TopicPartition(topic, 0): OffsetAndMetadata(offset=5, metadata="note\0")
    }


@pytest.mark.parametrize(
    ("offsets", "code"),
    [([("records", 3)], -172), ([("nowhere", 3)], -190), ([("records", 3), ("nowhere", 3)], -172)],
)
def test_store_offsets_raises_when_all_fail(
    consumers: ConsumerFactory, topic: str, offsets: list[tuple[str, int]], code: int
) -> None:
    """`_STATE` for what is not assigned, `_UNKNOWN_PARTITION` for topics that are not known here."""
    consumer = consumers(enable_auto_offset_store=False)
    consumer.assign([PartitionOffset(topic, 0, 0)])
    with pytest.raises(KafkaException) as caught:
        consumer.store_offsets(offsets=[PartitionOffset(name, partition, 1) for name, partition in offsets])
    assert caught.value.args[0].code() == code


def test_stored_offset_is_forgotten_with_the_assignment(consumers: ConsumerFactory, topic: str) -> None:
    """An assignment made anew starts from other facts."""
    consumer = consumers(enable_auto_offset_store=False, enable_auto_commit=False)
    consumer.assign([PartitionOffset(topic, 0, 0)])
    consumer.store_offsets(offsets=[PartitionOffset(topic, 0, 5)])
    consumer.assign([PartitionOffset(topic, 0, 0)])
    with pytest.raises(KafkaException, match="No offset stored"):
        consumer.commit(asynchronous=False)


def test_partitions_assigned_by_hand_are_committed_automatically(consumers: ConsumerFactory, topic: str) -> None:
    """The member keeps the schedule for them too, and what they are given up at is committed."""
    consumer = consuming(consumers, topic)
    assert consumer.member.of(AssignedByHand) == [AssignedByHand(holds=True)]
    consumer.unassign()
    assert [request.offsets for request in consumer.member.of(CommitRequested)] == [
        {TopicPartition(topic, 0): offset(1)}
    ]
    assert consumer.member.of(AssignedByHand)[1:] == [AssignedByHand(holds=False)]


def test_without_auto_commit_a_consumer_by_hand_needs_no_member(consumers: ConsumerFactory, topic: str) -> None:
    """Nothing connects that is not needed."""
    consumer = consuming(consumers, topic, enable_auto_commit=False)
    consumer.unassign()
    assert (consumer.member.is_started, consumer.member.events) == (False, [])


@pytest.mark.parametrize("name", ["assign", "revoke"])
def test_synchronous_commit_works_inside_callbacks(consumers: ConsumerFactory, topic: str, name: str) -> None:
    """C06, C07: it waits for its own answer, not for a poll."""
    answers: list[list[tuple[int, int, int | None]]] = []

    def commit(called: str, given: Consumer) -> None:
        if called == name:
            answers.append(plain(given.commit(offsets=[PartitionOffset(topic, 0, 3)], asynchronous=False)))

    consumer = subscribed(consumers, topic, [], commit)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    consumer.member.pause(None)
    consumer.member.revoke(None)
    consumer.poll(0)
    assert answers == [[(0, 3, None)]]


def test_synchronous_commit_is_answered_while_nobody_and_while_somebody_polls(
    consumers: ConsumerFactory, topic: str
) -> None:
    """Whoever takes the mail hands the answer to the thread that waits for it."""
    consumer = consumers()
    consumer.member.answers_commits = False

    def commit() -> object:
        return plain(consumer.commit(offsets=[PartitionOffset(topic, 0, 3)], asynchronous=False))

    alone = Thread(commit)
    consumer.member.answer_commit(consumer.member.wait_for(CommitRequested)[0])
    assert alone.outcome() == [(0, 3, None)]
    polling = Thread(lambda: consumer.poll(1.0))
    beside = Thread(commit)
    consumer.member.answer_commit(consumer.member.wait_for(CommitRequested, 2)[1])
    assert beside.outcome() == [(0, 3, None)]
    assert polling.outcome() is None


def test_unanswered_commit_ends_with_a_timeout(
    consumers: ConsumerFactory, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that says nothing must not keep the application for ever."""
    monkeypatch.setattr("consumer_membership.runtime.application.commits.ANSWER_GRACE_S", 0.05)
    consumer = consumers(socket_timeout_ms=10, fetch_wait_max_ms=1)
    consumer.member.answers_commits = False
    with pytest.raises(CommitError, match="not answered in time") as caught:
        consumer.commit(offsets=[PartitionOffset(topic, 0, 3)], asynchronous=False)
    assert caught.value.code == -185


def test_begun_commit_is_answered_while_records_go_on(consumers: ConsumerFactory, topic: str) -> None:
    """`begin_commit` returns at once; neither a poll nor on_commit is needed for its result, which may be had twice."""
    reported: Reported = []
    consumer = consuming(consumers, topic, on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.member.answers_commits = False
    pending = consumer.begin_commit([PartitionOffset(topic, 0, 1), PartitionOffset(topic, 1)])
    assert record(consumer).offset() == 1
    consumer.member.answer_commit(consumer.member.of(CommitRequested)[0])
    assert plain(pending.result()) == plain(pending.result()) == [(0, 1, None), (1, -1001, None)]
    assert record(consumer).offset() == 2
    assert reported == []


def test_begun_commit_of_positions_is_of_what_was_consumed_then(consumers: ConsumerFactory, topic: str) -> None:
    """Without arguments, as `commit`; and there has to be something."""
    consumer = consuming(consumers, topic)
    assert plain(consumer.begin_commit().result()) == [(0, 1, None)]
    with pytest.raises(CommitError, match="No offset stored"):
        consumer.begin_commit()


def test_begun_commit_that_is_refused_says_so_each_time(consumers: ConsumerFactory, topic: str) -> None:
    """In its result, with the broker's own code."""
    consumer = consuming(consumers, topic)
    consumer.member.commit_error = REFUSED
    pending = consumer.begin_commit()
    for _ in range(2):
        with pytest.raises(KafkaException, match="not this epoch") as caught:
            pending.result()
        assert caught.value.args[0].code() == KafkaError.ILLEGAL_GENERATION


def test_begun_commit_outlives_its_consumer(consumers: ConsumerFactory, topic: str) -> None:
    """`close` waits for what is on its way, and the answer is kept."""
    consumer = consuming(consumers, topic)
    pending = consumer.begin_commit()
    consumer.close()
    assert plain(pending.result()) == [(0, 1, None)]


def test_unknown_keyword_is_refused(consumers: ConsumerFactory) -> None:
    """As any function would."""
    call: Callable[..., object] = consumers().commit
    with pytest.raises(TypeError, match="'later'"):
        call(later=True)
