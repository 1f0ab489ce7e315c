"""Commits: the requests to the member, and how its responses return."""

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
    """Return a consumer that received one record of partition 0."""
    consumer = consumers(**config)
    consumer.assign([PartitionOffset(topic, 0, 0)])
    record(consumer)
    return consumer


def plain(partitions: list[PartitionOffset] | None) -> list[tuple[int, int, int | None]]:
    """Return partition, offset and error code of each result."""
    return [(p.partition, p.offset, None if p.error is None else p.error.code()) for p in partitions or []]


def test_commit_sends_positions_with_their_leader_epoch(consumers: ConsumerFactory, topic: str) -> None:
    """Without arguments, `commit` sends the position after the last delivered record.

    The request's timeout is `socket.timeout.ms`. The member is informed that the application assigned the partition
    manually.
    """
    consumer = consuming(consumers, topic, socket_timeout_ms=7000)
    partition = TopicPartition(topic, 0)
    assert plain(consumer.commit(asynchronous=False)) == [(0, 1, None)]
    assert consumer.member.of(CommitRequested) == [
        CommitRequested(commit_id=1, offsets={partition: offset(1)}, timeout_s=7.0, by_hand=frozenset({partition}))
    ]


def test_second_commit_of_the_same_position_raises_no_offset(consumers: ConsumerFactory, topic: str) -> None:
    """`commit` sends only offsets above the known committed offset, and raises `_NO_OFFSET` if there are none."""
    consumer = consuming(consumers, topic)
    consumer.commit(asynchronous=False)
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0].code() == -168
    assert isinstance(caught.value, CommitError)


def test_commit_keeps_metadata_and_leader_epoch_of_given_offsets(consumers: ConsumerFactory, topic: str) -> None:
    """`commit` keeps the leader epoch (KIP-320) and the metadata, and accepts unassigned partitions."""
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


def test_commit_of_a_message_commits_the_offset_after_it(consumers: ConsumerFactory, topic: str) -> None:
    """The commit also carries the record's leader epoch."""
    consumer = consumers()
    consumer.commit(Message(topic=topic, partition=1, offset=6, leader_epoch=3), asynchronous=False)
    assert consumer.member.of(CommitRequested)[0].offsets == {
        TopicPartition(topic, 1): OffsetAndMetadata(offset=7, leader_epoch=3)
    }


def test_commit_that_fails_for_every_partition_raises(consumers: ConsumerFactory, topic: str) -> None:
    """The exception has the broker's error code, and is a `CommitError` and a `KafkaException`."""
    consumer = consuming(consumers, topic)
    consumer.member.commit_error = REFUSED
    with pytest.raises(CommitError, match="not this epoch") as caught:
        consumer.commit(asynchronous=False)
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0].code() == KafkaError.ILLEGAL_GENERATION


def test_commit_that_fails_for_some_partitions_returns_their_errors(consumers: ConsumerFactory, topic: str) -> None:
    """The other partitions are committed; each failed partition carries its error."""
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
    """A failed partition equals the plain `TopicPartition`, has the same hash, and shows its error in `str`."""
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
    """An asynchronous commit returns None immediately; a later poll calls on_commit with the outcome."""
    reported: Reported = []
    consumer = consuming(consumers, topic, on_commit=lambda error, partitions: reported.append((error, partitions)))
    assert consumer.commit() is None
    assert reported == []
    consumer.poll(0)
    ((error, partitions),) = reported
    assert (error, plain(partitions)) == (None, [(0, 1, None)])


def test_asynchronous_commit_without_offsets_reports_no_offset(consumers: ConsumerFactory) -> None:
    """As in confluent-kafka, on_commit receives `_NO_OFFSET` and `commit` raises nothing."""
    reported: Reported = []
    consumer = consumers(on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.commit()
    consumer.poll(0)
    ((error, partitions),) = reported
    assert (error.code() if error else None, partitions) == (-168, [])


def test_on_commit_receives_assigned_partitions_without_an_offset(consumers: ConsumerFactory, topic: str) -> None:
    """As in confluent-kafka: a commit of the positions reports -1001 for partitions with nothing to commit."""
    reported: Reported = []
    consumer = consuming(consumers, topic, on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.incremental_assign([PartitionOffset(topic, 1, 0)])
    consumer.commit()
    consumer.poll(0)
    ((error, partitions),) = reported
    assert (error, plain(partitions)) == (None, [(0, 1, None), (1, -1001, None)])


def test_on_commit_receives_each_partition_of_the_call(consumers: ConsumerFactory, topic: str) -> None:
    """As in confluent-kafka, on_commit receives the partitions of the call in order, also those without an offset."""
    reported: Reported = []
    consumer = consuming(consumers, topic, on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.commit(offsets=[PartitionOffset(topic, 2, 7), PartitionOffset(topic, 1)])
    consumer.poll(0)
    consumer.commit(offsets=[PartitionOffset(topic, 1)])
    consumer.poll(0)
    (error, partitions), (refused, without) = reported
    assert (error, plain(partitions)) == (None, [(1, -1001, None), (2, 7, None)])
    assert (refused.code() if refused else None, plain(without)) == (KafkaError._NO_OFFSET, [(1, -1001, None)])


def test_synchronous_commit_does_not_call_on_commit(consumers: ConsumerFactory, topic: str) -> None:
    """A synchronous commit returns its outcome and does not call on_commit."""
    reported: Reported = []
    consumer = consuming(consumers, topic, on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.commit(asynchronous=False)
    consumer.poll(0)
    assert reported == []


def test_poll_raises_what_on_commit_raised_and_loses_no_record(consumers: ConsumerFactory, topic: str) -> None:
    """`poll` raises the exception of on_commit, and the next poll returns the next record."""

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
    """The member requests the positions after each interval.

    Positions that are committed already are not reported again.
    """
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


@pytest.mark.parametrize("count", [None, 1])
def test_automatic_commit_excludes_records_that_the_same_call_returns(
    consumers: ConsumerFactory, topic: str, count: int | None
) -> None:
    """An automatic commit covers only records that earlier calls of `poll` or `consume` returned.

    So a loop that handles each record before the next call never commits a record that it has not handled.
    """
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    consumer.member.order(CollectPositions(commit_id=-1))
    returned = [consumer.poll(PATIENCE_S)] if count is None else consumer.consume(count, PATIENCE_S)
    assert [message.offset() for message in returned if message is not None] == [1]
    (answer,) = consumer.member.of(PositionsReported)
    assert {partition: at.offset for partition, at in answer.offsets.items()} == {TopicPartition(topic, 0): 1}


def test_commit_without_auto_offset_store_commits_stored_offsets(consumers: ConsumerFactory, topic: str) -> None:
    """With enable.auto.offset.store=false, `commit` uses stored offsets and ignores delivered ones."""
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
    """The code is `_STATE` for an unassigned partition and `_UNKNOWN_PARTITION` for an unknown topic."""
    consumer = consumers(enable_auto_offset_store=False)
    consumer.assign([PartitionOffset(topic, 0, 0)])
    with pytest.raises(KafkaException) as caught:
        consumer.store_offsets(offsets=[PartitionOffset(name, partition, 1) for name, partition in offsets])
    assert caught.value.args[0].code() == code


def test_stored_offset_is_dropped_with_the_assignment(consumers: ConsumerFactory, topic: str) -> None:
    """A new assignment starts without the stored offsets of the previous one."""
    consumer = consumers(enable_auto_offset_store=False, enable_auto_commit=False)
    consumer.assign([PartitionOffset(topic, 0, 0)])
    consumer.store_offsets(offsets=[PartitionOffset(topic, 0, 5)])
    consumer.assign([PartitionOffset(topic, 0, 0)])
    with pytest.raises(KafkaException, match="No offset stored"):
        consumer.commit(asynchronous=False)


def test_manually_assigned_partitions_are_committed_automatically(consumers: ConsumerFactory, topic: str) -> None:
    """The member also schedules commits for manually assigned partitions, and `unassign` commits their positions."""
    consumer = consuming(consumers, topic)
    assert consumer.member.of(AssignedByHand) == [AssignedByHand(holds=True)]
    consumer.unassign()
    assert [request.offsets for request in consumer.member.of(CommitRequested)] == [
        {TopicPartition(topic, 0): offset(1)}
    ]
    assert consumer.member.of(AssignedByHand)[1:] == [AssignedByHand(holds=False)]


def test_manual_assignment_without_auto_commit_starts_no_member(consumers: ConsumerFactory, topic: str) -> None:
    """A manually assigned consumer without auto-commit opens no connection to the coordinator."""
    consumer = consuming(consumers, topic, enable_auto_commit=False)
    consumer.unassign()
    assert (consumer.member.is_started, consumer.member.events) == (False, [])


@pytest.mark.parametrize("name", ["assign", "revoke"])
def test_synchronous_commit_works_inside_callbacks(consumers: ConsumerFactory, topic: str, name: str) -> None:
    """C06, C07: a commit inside a callback waits for its own response and needs no poll."""
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


def test_synchronous_commit_completes_with_and_without_a_polling_thread(consumers: ConsumerFactory, topic: str) -> None:
    """The thread that takes the response from the queue hands it to the thread that waits for it."""
    consumer = consumers()
    consumer.member.answers_commits = False

    def commit() -> object:
        return plain(consumer.commit(offsets=[PartitionOffset(topic, 0, 3)], asynchronous=False))

    first_commit = Thread(commit)
    consumer.member.answer_commit(consumer.member.wait_for(CommitRequested)[0])
    assert first_commit.outcome() == [(0, 3, None)]
    polling = Thread(lambda: consumer.poll(1.0))
    second_commit = Thread(commit)
    consumer.member.answer_commit(consumer.member.wait_for(CommitRequested, 2)[1])
    assert second_commit.outcome() == [(0, 3, None)]
    assert polling.outcome() is None


def test_unanswered_commit_raises_after_its_timeout(
    consumers: ConsumerFactory, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that does not respond does not block the application forever."""
    monkeypatch.setattr("consumer_membership.runtime.application.commits.ANSWER_GRACE_S", 0.05)
    consumer = consumers(socket_timeout_ms=10, fetch_wait_max_ms=1)
    consumer.member.answers_commits = False
    with pytest.raises(CommitError, match="not answered in time") as caught:
        consumer.commit(offsets=[PartitionOffset(topic, 0, 3)], asynchronous=False)
    assert caught.value.code == -185


def test_begin_commit_completes_without_poll_or_on_commit(consumers: ConsumerFactory, topic: str) -> None:
    """`begin_commit` returns immediately; its result needs neither a poll nor on_commit, and may be read twice."""
    reported: Reported = []
    consumer = consuming(consumers, topic, on_commit=lambda error, partitions: reported.append((error, partitions)))
    consumer.member.answers_commits = False
    pending = consumer.begin_commit([PartitionOffset(topic, 0, 1), PartitionOffset(topic, 1)])
    assert record(consumer).offset() == 1
    consumer.member.answer_commit(consumer.member.of(CommitRequested)[0])
    assert plain(pending.result()) == plain(pending.result()) == [(0, 1, None), (1, -1001, None)]
    assert record(consumer).offset() == 2
    assert reported == []


def test_begin_commit_without_arguments_commits_positions(consumers: ConsumerFactory, topic: str) -> None:
    """Without arguments, `begin_commit` commits the positions as `commit` does, and raises if there are none."""
    consumer = consuming(consumers, topic)
    assert plain(consumer.begin_commit().result()) == [(0, 1, None)]
    with pytest.raises(CommitError, match="No offset stored"):
        consumer.begin_commit()


def test_begin_commit_result_raises_the_brokers_error_each_time(consumers: ConsumerFactory, topic: str) -> None:
    """Each `result` call raises the broker's error code."""
    consumer = consuming(consumers, topic)
    consumer.member.commit_error = REFUSED
    pending = consumer.begin_commit()
    for _ in range(2):
        with pytest.raises(KafkaException, match="not this epoch") as caught:
            pending.result()
        assert caught.value.args[0].code() == KafkaError.ILLEGAL_GENERATION


def test_begin_commit_result_is_available_after_close(consumers: ConsumerFactory, topic: str) -> None:
    """`close` waits for commits in flight, and their results stay readable."""
    consumer = consuming(consumers, topic)
    pending = consumer.begin_commit()
    consumer.close()
    assert plain(pending.result()) == [(0, 1, None)]


def test_commit_rejects_an_unknown_keyword(consumers: ConsumerFactory) -> None:
    """`commit` raises TypeError for an unknown keyword argument, as any Python function does."""
    call: Callable[..., object] = consumers().commit
    with pytest.raises(TypeError, match="'later'"):
        call(later=True)
