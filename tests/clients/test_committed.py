"""`committed()` requests the group's committed offsets from the member and returns them in confluent-kafka's form."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer, GroupError, TransportError
from consumer_membership.runtime.line import CommittedOffsetsQuestion, RefusedError, UnansweredError
from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition
from tests.clients.application import subscribed
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.waiting import wait_until

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def committed_offsets(consumer: Consumer, *partitions: TopicPartition) -> list[tuple[int, str | None, int | None]]:
    """The offset, metadata and leader epoch of each partition."""
    found = consumer.committed([PartitionOffset(*partition) for partition in partitions], 10)
    return [(one.offset, one.metadata, one.leader_epoch) for one in found]


def question(consumer: ScriptedConsumer) -> CommittedOffsetsQuestion:
    """Return the only request so far, as soon as it is made."""
    return wait_until(lambda: consumer.member.questions, "a question")[0]


def test_committed_returns_each_partition_in_the_order_of_the_request(consumers: ConsumerFactory) -> None:
    """A repeated partition is returned twice.

    Without a committed offset the offset is -1001, whatever the request had.
    """
    consumer = consumers()
    consumer.member.committed = {P1: OffsetAndMetadata(offset=7, leader_epoch=3, metadata="note")}
    found = consumer.committed(
        [PartitionOffset("t", 1, 99, "asked"), PartitionOffset("t", 0, 99, "asked"), PartitionOffset("t", 1)]
    )
    assert [(one.partition, one.offset, one.metadata, one.leader_epoch, one.error) for one in found] == [
        (1, 7, "note", 3, None),
        (0, -1001, None, None, None),
        (1, 7, "note", 3, None),
    ]
    assert consumer.member.questions[0].timeout_s == float("inf")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", None),
        ("\0", ""),
        ("note\0", "note"),
        ("note\0more", "note"),
        ("größer ✓", "größer ✓"),
        ("x" * 24, "x" * 24),
    ],
)
@pytest.mark.parametrize("epoch", [None, 0, 4])
def test_committed_returns_the_committed_metadata(
    consumers: ConsumerFactory, text: str, shown: str | None, epoch: int | None
) -> None:
    """The text ends before C's terminating zero, which confluent-kafka also commits; missing metadata is None."""
    consumer = consumers()
    consumer.member.committed = {P0: OffsetAndMetadata(offset=7, leader_epoch=epoch, metadata=text)}
    assert committed_offsets(consumer, P0) == [(7, shown, epoch)]


def test_committed_returns_a_partition_s_error_at_the_partition(consumers: ConsumerFactory) -> None:
    """The error of one partition does not affect the offsets of other partitions."""
    consumer = consumers()
    consumer.member.committed = {
        P0: BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed."),
        P1: OffsetAndMetadata(offset=7),
    }
    refused, good = consumer.committed([PartitionOffset(*P0), PartitionOffset(*P1)])
    assert refused.error is not None
    assert (refused.offset, refused.error.code(), good.offset, good.error) == (-1001, 29, 7, None)


def test_committed_raises_exceptions_of_both_packages(consumers: ConsumerFactory) -> None:
    """The exception is a KafkaException for confluent-kafka programs. This package's class names the party at fault."""
    consumer = consumers()
    consumer.member.answers_questions = False
    asking = Thread(lambda: consumer.committed([PartitionOffset(*P0)], 10))
    question(consumer).answer.set_exception(RefusedError("Failed to get committed offsets: no right", 30))
    with pytest.raises(GroupError) as refused:
        asking.outcome()
    assert isinstance(refused.value, KafkaException)
    assert (refused.value.code, refused.value.args[0].code()) == (30, KafkaError.GROUP_AUTHORIZATION_FAILED)

    consumer.member.questions.clear()
    asking = Thread(lambda: consumer.committed([PartitionOffset(*P0)], 10))
    question(consumer).answer.set_exception(UnansweredError("Failed to get committed offsets: Local: Timed out (...)"))
    with pytest.raises(TransportError) as unanswered:
        asking.outcome()
    assert isinstance(unanswered.value, KafkaException)
    assert unanswered.value.args[0].code() == KafkaError._TIMED_OUT
    assert "Failed to get committed offsets: Local: Timed out" in unanswered.value.args[0].str()


@pytest.mark.parametrize("called", ["assign", "revoke", "lost"])
def test_committed_works_inside_callbacks(consumers: ConsumerFactory, topic: str, called: str) -> None:
    """The response arrives without another poll."""
    answers: list[object] = []

    def ask(name: str, given: Consumer) -> None:
        if name == called:
            answers.append(committed_offsets(given, P2))

    consumer = subscribed(consumers, topic, [], ask)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    consumer.poll(0)
    if called == "lost":
        consumer.member.lose()
    if called == "revoke":
        consumer.member.pause(None)
        consumer.member.revoke(None)
    consumer.poll(0)
    assert answers == [[(-1001, None, None)]]


def cancelled(asked: CommittedOffsetsQuestion) -> None:
    """Cancel the request, as the membership thread does when it ends."""
    asked.answer.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("then", [cancelled, lambda _: None], ids=["committed_offsets", "not committed_offsets"])
def test_close_ends_a_pending_committed_call(
    consumers: ConsumerFactory, then: Callable[[CommittedOffsetsQuestion], None]
) -> None:
    """The call raises as any call of a closed consumer does, even if the response never comes."""
    consumer = consumers()
    consumer.member.answers_questions = False
    asking = Thread(lambda: consumer.committed([PartitionOffset(*P0)]))
    asked = question(consumer)
    consumer.close()
    then(asked)
    with pytest.raises(RuntimeError, match="Consumer closed"):
        asking.outcome()
    with pytest.raises(CancelledError):
        asked.answer.result(0)
