"""What the member and librdkafka tell the application: messages with errors, callbacks, exceptions."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, ThrottleEvent
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import ConfigurationError, Consumer, FatalGroupError
from consumer_membership.membership.effects import LosePartitions, Problem, RaiseToApplication
from consumer_membership.membership.events import Subscribed
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.application import error_message, notices
from consumer_membership.types import POLL_TIMEOUT_CODE, BrokerError, TopicPartition
from tests.clients.application import Called, drain, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer
from tests.support.waiting import PATIENCE_S, wait_until

GROUP_FULL = BrokerError(
    code=81,
    name="GROUP_MAX_SIZE_REACHED",
    message="The group is full.",
    remedy="raise group.consumer.max.size on the brokers",
)
PATTERN = BrokerError(code=128, name="INVALID_REGULAR_EXPRESSION", message="missing )")


def error_of(consumer: Consumer) -> KafkaError:
    """The error of the next message."""
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None
    return error


def fatal(consumer: ScriptedConsumer, error: BrokerError) -> None:
    """Have the member refused for good."""
    consumer.member.in_state(MemberState.FATAL)
    is_pattern = error is PATTERN
    consumer.member.order(RaiseToApplication(problem=Problem.FATAL, error=error, ends_with_subscription=is_pattern))


def test_fatal_error_has_the_brokers_code_and_the_remedy(consumers: ConsumerFactory, topic: str) -> None:
    """C19, S01: a message, fatal, with the broker's own code instead of `_FATAL`."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, GROUP_FULL)
    error = error_of(consumer)
    assert (error.code(), error.fatal()) == (KafkaError.GROUP_MAX_SIZE_REACHED, True)
    assert error.str() == "GROUP_MAX_SIZE_REACHED: The group is full; raise group.consumer.max.size on the brokers"


@pytest.mark.parametrize("problem", Problem)
def test_message_with_an_error_is_true_and_has_librdkafkas_fields(
    consumers: ConsumerFactory, topic: str, problem: Problem
) -> None:
    """`if not message: continue` is the commonest loop there is: an error that is false would be dropped by it."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.order(RaiseToApplication(problem=problem, error=GROUP_FULL))
    message = consumer.poll(PATIENCE_S)
    assert message
    error = message.error()
    assert error is not None
    assert message.value() == error.str().encode()
    assert len(message) == len(error.str())
    assert (message.topic(), message.partition(), message.offset(), message.key()) == (None, 0, None, None)
    assert (message.timestamp(), message.headers(), message.leader_epoch()) == ((0, -1), None, None)


def test_refused_topic_is_the_messages_topic(consumers: ConsumerFactory, topic: str) -> None:
    """As librdkafka's."""
    consumer = subscribed(consumers, topic, [])
    error = BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED")
    consumer.member.order(RaiseToApplication(problem=Problem.REFUSED, error=error, topic="closed"))
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.topic() == "closed"


@pytest.mark.parametrize("can_be_made", [True, False])
def test_message_with_an_error_is_not_committed(
    consumers: ConsumerFactory,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    can_be_made: bool,  # noqa: FBT001
) -> None:
    """As librdkafka's: a KafkaException that says which error; also where a message of ours is in its place."""
    monkeypatch.setattr(error_message, "CAN_BE_MADE", can_be_made and error_message.CAN_BE_MADE)
    consumer = subscribed(consumers, topic, [])
    consumer.member.order(RaiseToApplication(problem=Problem.REFUSED, error=GROUP_FULL))
    message = consumer.poll(PATIENCE_S)
    for what, call in (("commit", consumer.commit), ("store", consumer.store_offsets)):
        with pytest.raises(KafkaException, match=f"Cannot {what} offsets for message with error: 'The group") as caught:
            call(message)
        assert caught.value.args[0].code() == KafkaError._INVALID_ARG


@dataclass
class Clock:
    """A clock that the test moves."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which an error is told again."""
    clock = Clock()
    monkeypatch.setattr(notices, "monotonic", clock)
    return clock


def codes(messages: list[Message]) -> list[int | None]:
    """What each of them is: an error's code, None for a record."""
    return [None if (error := message.error()) is None else error.code() for message in messages]


def test_fatal_error_is_told_again_once_a_second(consumers: ConsumerFactory, topic: str, clock: Clock) -> None:
    """A program that overlooked it would wait for ever; one that logs what it is told must not fill its disk."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, GROUP_FULL)
    assert error_of(consumer).code() == 81
    assert (consumer.poll(0), consumer.consume(10, 0)) == (None, [])
    clock.now += 1
    assert error_of(consumer).code() == 81
    assert (consumer.poll(0), consumer.consume(10, 0)) == (None, [])
    clock.now += 1
    assert codes(consumer.consume(10, PATIENCE_S)) == [81]
    assert (consumer.poll(0), consumer.consume(10, 0)) == (None, [])


def test_poll_and_consume_that_wait_are_told_again(consumers: ConsumerFactory, topic: str) -> None:
    """Whoever waits without end waits for a second at most."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, GROUP_FULL)
    error_of(consumer)
    message = consumer.poll(-1)
    assert message is not None
    assert codes([message, *consumer.consume(10, -1)]) == [81, 81]


def test_losses_of_a_fatal_member_come_before_the_error_again(
    consumers: ConsumerFactory, topic: str, clock: Clock
) -> None:
    """The second poll calls on_lost; no record of what was lost is given out by any of them."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    fatal(consumer, GROUP_FULL)
    consumer.member.order(LosePartitions(attempt=2))
    assert error_of(consumer).code() == 81
    assert calls[1:] == []
    clock.now += 1
    assert codes(consumer.consume(10, PATIENCE_S)) == [81]
    assert calls[1:] == [("lost", [0])]
    assert consumer.consume(10, 0) == []


def test_records_assigned_by_hand_come_between_the_errors(consumers: ConsumerFactory, topic: str, clock: Clock) -> None:
    """What the application assigned itself is not the group's: it goes on, and nothing of it is lost."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, GROUP_FULL)
    assert error_of(consumer).code() == 81
    consumer.incremental_assign([PartitionOffset(topic, 0, 0)])
    got = [record(consumer)]
    clock.now += 1
    while None in codes(batch := consumer.consume(1, PATIENCE_S)):
        got += batch
    assert codes(batch) == [81]
    assert consumer.consume(RECORDS - len(got), PATIENCE_S)[-1].offset() == RECORDS - 1


def test_program_that_looks_at_the_message_first_sees_the_end(consumers: ConsumerFactory, topic: str) -> None:
    """The idioms that programs use: `if not message`, then the error; `fatal()` ends the loop."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign({TopicPartition(topic, 0): 48})
    fatal(consumer, GROUP_FULL)
    while True:
        message = consumer.poll(1.0)
        if not message:
            continue
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            continue
        assert error.fatal()
        assert error.code() != KafkaError._FATAL
        break


def test_after_a_fatal_error_commit_and_subscribe_name_the_cause(consumers: ConsumerFactory, topic: str) -> None:
    """`_FATAL` as in confluent-kafka, and a FatalGroupError; assigning and closing go on."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, GROUP_FULL)
    error_of(consumer)
    for call in (lambda: consumer.commit(asynchronous=False), lambda: consumer.subscribe([topic])):
        with pytest.raises(FatalGroupError, match="The group is full") as caught:
            call()
        assert isinstance(caught.value, KafkaException)
        assert (caught.value.args[0].code(), caught.value.args[0].fatal()) == (-150, True)
    consumer.close()


def test_new_subscription_takes_the_place_of_a_refused_pattern(consumers: ConsumerFactory, topic: str) -> None:
    """An invalid regular expression is final for that subscription only."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, PATTERN)
    assert error_of(consumer).code() == PATTERN.code
    consumer.subscribe([topic])
    assert len(consumer.member.of(Subscribed)) == 2
    with pytest.raises(KafkaException, match="No offset stored"):
        consumer.commit(asynchronous=False)


def test_subscription_that_is_forgiven_is_not_told_again(consumers: ConsumerFactory, topic: str, clock: Clock) -> None:
    """The next subscription is not the one that was refused."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, PATTERN)
    assert error_of(consumer).code() == PATTERN.code
    consumer.subscribe([topic])
    clock.now += 1
    assert consumer.poll(0) is None


def test_refusal_that_is_heard_after_the_next_subscription_does_not_stay(
    consumers: ConsumerFactory, topic: str
) -> None:
    """A program may subscribe anew before it is told: the member that has its partitions commits."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, PATTERN)
    consumer.subscribe([topic])
    assert error_of(consumer).code() == PATTERN.code
    consumer.member.assign({TopicPartition(topic, 0): 49})
    record(consumer)
    assert consumer.commit(asynchronous=False)


def test_refusal_that_is_not_final_is_a_message(consumers: ConsumerFactory, topic: str) -> None:
    """TOPIC_AUTHORIZATION_FAILED: told, and the consumer goes on."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.order(
        RaiseToApplication(problem=Problem.REFUSED, error=BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED"))
    )
    error = error_of(consumer)
    assert (error.code(), error.fatal()) == (KafkaError.TOPIC_AUTHORIZATION_FAILED, False)
    consumer.member.assign({TopicPartition(topic, 0): 49})
    assert drain(consumer, 1) == [(0, 49)]


def test_poll_timeout_is_told_first_and_the_loss_by_the_next_poll(consumers: ConsumerFactory, topic: str) -> None:
    """M124, M126, C01: `_MAX_POLL_EXCEEDED` before anything else, records of the lost partitions never."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    error = BrokerError(code=POLL_TIMEOUT_CODE, name="_MAX_POLL_EXCEEDED", message="poll more often")
    consumer.member.order(RaiseToApplication(problem=Problem.POLL_TIMEOUT, error=error))
    consumer.member.lose()
    told = error_of(consumer)
    assert (told.code(), told.str(), calls[1:]) == (POLL_TIMEOUT_CODE, "poll more often", [])
    assert drain(consumer) == []
    assert calls[1:] == [("lost", [0])]


def test_consume_returns_an_error_at_once_and_alone(consumers: ConsumerFactory, topic: str) -> None:
    """Records that wait beside it may be another member's by now: those of a lost partition are never returned."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    error = BrokerError(code=POLL_TIMEOUT_CODE, name="_MAX_POLL_EXCEEDED", message="poll more often")
    consumer.member.order(RaiseToApplication(problem=Problem.POLL_TIMEOUT, error=error))
    consumer.member.lose()
    (message,) = consumer.consume(10, PATIENCE_S)
    told = message.error()
    assert told is not None
    assert told.code() == POLL_TIMEOUT_CODE
    assert consumer.consume(10, 0.1) == []


def test_error_cb_is_called_by_polls_without_a_broker() -> None:
    """No broker reachable: informational errors, on the thread that polls; no exception, no hang."""
    told: list[KafkaError] = []
    consumer = ScriptedConsumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "error_cb": told.append}
    )

    def poll() -> None:
        assert consumer.poll(0.1) is None

    wait_until(lambda: told, "an error", between=poll)
    assert told[0].code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    consumer.close()


def test_error_cb_that_raises_comes_out_of_poll() -> None:
    """As in confluent-kafka."""

    def fail(error: KafkaError) -> None:
        raise KafkaException(error)

    consumer = ScriptedConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "error_cb": fail})
    with pytest.raises(KafkaException):
        consumer.poll(PATIENCE_S)
    with pytest.raises(KafkaException):
        consumer.consume(1, PATIENCE_S)
    consumer.close()


def test_callback_that_raises_loses_no_record(consumers: ConsumerFactory, topic: str) -> None:
    """Inside librdkafka's fetch an exception would throw its records away; here callbacks run after it."""
    calls = 0

    def fail_thrice(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls <= 3:
            raise LookupError

    consumer = consumers(stats_cb=fail_thrice, statistics_interval_ms=20)
    consumer.assign([PartitionOffset(topic, 0, 40)])
    found: list[int | None] = []
    raised = 0
    while len(found) < 10 or raised < 3:
        try:
            found += [message.offset() for message in consumer.consume(3, 0.1)]
        except LookupError:
            raised += 1
    assert found == list(range(40, 50))
    assert raised == 3


def test_statistics_tell_of_the_member(consumers: ConsumerFactory, topic: str) -> None:
    """The `cgrp` object is the member's, not that of the handle which never joined."""
    import json  # noqa: PLC0415

    told: list[str] = []
    consumer = consumers(stats_cb=told.append, statistics_interval_ms=50)
    consumer.subscribe([topic])
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    told.clear()  # what was told before the assignment
    wait_until(lambda: told, "statistics", between=lambda: consumer.consume(RECORDS, 0.05))
    group = json.loads(told[-1])["cgrp"]
    assert (group["join_state"], group["assignment_size"], group["rebalance_cnt"]) == ("steady", 1, 1)
    assert json.loads(told[-1])["type"] == "consumer"


def test_logger_gets_librdkafkas_lines(consumers: ConsumerFactory, caplog: pytest.LogCaptureFixture) -> None:
    """`logger=` as in confluent-kafka."""
    with caplog.at_level(logging.DEBUG, "librdkafka"):
        consumer = consumers(logger=logging.getLogger("librdkafka"), log_level=7, debug="conf")
        consumer.poll(0.2)
    assert any(line.name == "librdkafka" for line in caplog.records)


def test_throttle_cb_is_passed_on(consumers: ConsumerFactory) -> None:
    """Quotas are librdkafka's business; its event reaches the user's callback after the fetch."""
    told: list[ThrottleEvent] = []
    consumer = consumers(throttle_cb=told.append)
    event = ThrottleEvent("broker", 1, 0.5)
    consumer._use()._handles.reports.note(lambda: told.append(event))
    consumer.poll(0)
    assert told == [event]


def test_credentials_reach_both_kinds_of_connections(consumers: ConsumerFactory) -> None:
    """What `set_sasl_credentials` says is librdkafka's, a later handle's, and the member's."""
    consumer = consumers()
    consumer.set_sasl_credentials("alice", "secret")
    assert consumer.member.credentials == ("alice", "secret")
    with pytest.raises(TypeError):
        consumer.set_sasl_credentials("bob", None)  # type: ignore[arg-type]
    assert consumer.member.credentials == ("alice", "secret")


def test_file_that_tls_cannot_read_is_named_by_the_constructor() -> None:
    """As in confluent-kafka with _INVALID_ARG, and with the file and the reason instead of OpenSSL's numbers."""
    with pytest.raises(ConfigurationError) as caught:
        Consumer(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "group.id": "any",
                "security.protocol": "ssl",
                "ssl.ca.location": "/no/such/file.pem",
            }
        )
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert "ssl.ca.location='/no/such/file.pem': No such file or directory; give a PEM file" in str(caught.value)
