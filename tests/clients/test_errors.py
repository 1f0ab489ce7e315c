"""The errors of the member and librdkafka that the application gets: messages, callbacks, exceptions."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, ThrottleEvent
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import ConfigurationError, Consumer, FatalGroupError
from consumer_membership.clients.exceptions import exception_of
from consumer_membership.config.token_endpoint import EndpointUnavailableError
from consumer_membership.errors import AuthenticationError
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
    """Return the error of the next message."""
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None
    return error


def fatal(consumer: ScriptedConsumer, error: BrokerError) -> None:
    """Make the member FATAL with this error."""
    consumer.member.in_state(MemberState.FATAL)
    is_pattern = error is PATTERN
    consumer.member.order(RaiseToApplication(problem=Problem.FATAL, error=error, ends_with_subscription=is_pattern))


def test_fatal_error_message_has_the_broker_s_code_and_the_remedy(consumers: ConsumerFactory, topic: str) -> None:
    """C19, S01: The message's error is fatal and has the broker's own code instead of `_FATAL`."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, GROUP_FULL)
    error = error_of(consumer)
    assert (error.code(), error.fatal()) == (KafkaError.GROUP_MAX_SIZE_REACHED, True)
    assert error.str() == "GROUP_MAX_SIZE_REACHED: The group is full; raise group.consumer.max.size on the brokers"


@pytest.mark.parametrize("problem", Problem)
def test_error_message_is_true_and_has_librdkafka_s_fields(
    consumers: ConsumerFactory, topic: str, problem: Problem
) -> None:
    """A common loop, `if not message: continue`, would drop an error message that is false."""
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


def test_error_message_of_a_refused_topic_has_its_name(consumers: ConsumerFactory, topic: str) -> None:
    """The message's topic is the refused topic, as with librdkafka."""
    consumer = subscribed(consumers, topic, [])
    error = BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED")
    consumer.member.order(RaiseToApplication(problem=Problem.REFUSED, error=error, topic="closed"))
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.topic() == "closed"


@pytest.mark.parametrize("can_be_made", [True, False])
def test_commit_and_store_offsets_refuse_an_error_message(
    consumers: ConsumerFactory,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    can_be_made: bool,  # noqa: FBT001
) -> None:
    """Both raise a KafkaException that names the error, as librdkafka does.

    An error message of this package's own class causes the same exception.
    """
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
    """A clock that the test advances."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that decides when an error is repeated."""
    clock = Clock()
    monkeypatch.setattr(notices, "monotonic", clock)
    return clock


def codes(messages: list[Message]) -> list[int | None]:
    """The error code of each message, or None for a record."""
    return [None if (error := message.error()) is None else error.code() for message in messages]


def test_fatal_error_is_repeated_once_a_second(consumers: ConsumerFactory, topic: str, clock: Clock) -> None:
    """A program that missed the error would wait forever; a program that logs it must not fill its disk."""
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


def test_waiting_poll_and_consume_return_a_fatal_error_again(consumers: ConsumerFactory, topic: str) -> None:
    """A call without a timeout waits for one second at most."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, GROUP_FULL)
    error_of(consumer)
    message = consumer.poll(-1)
    assert message is not None
    assert codes([message, *consumer.consume(10, -1)]) == [81, 81]


def test_fatal_member_calls_on_lost_before_it_repeats_the_error(
    consumers: ConsumerFactory, topic: str, clock: Clock
) -> None:
    """The second poll calls on_lost, and no poll returns a record of a lost partition."""
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


def test_manually_assigned_records_come_between_repeated_errors(
    consumers: ConsumerFactory, topic: str, clock: Clock
) -> None:
    """Manually assigned partitions do not belong to the group, so they continue without a lost record."""
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


def test_fatal_error_ends_a_loop_that_checks_the_message_first(consumers: ConsumerFactory, topic: str) -> None:
    """The loop uses common idioms: it checks `if not message`, then the error, and ends when `fatal()` is true."""
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


def test_commit_and_subscribe_after_a_fatal_error_name_the_cause(consumers: ConsumerFactory, topic: str) -> None:
    """Both raise a FatalGroupError with `_FATAL`, as in confluent-kafka; `close` still works."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, GROUP_FULL)
    error_of(consumer)
    for call in (lambda: consumer.commit(asynchronous=False), lambda: consumer.subscribe([topic])):
        with pytest.raises(FatalGroupError, match="The group is full") as caught:
            call()
        assert isinstance(caught.value, KafkaException)
        assert (caught.value.args[0].code(), caught.value.args[0].fatal()) == (-150, True)
    consumer.close()


def test_new_subscription_replaces_a_refused_pattern(consumers: ConsumerFactory, topic: str) -> None:
    """An invalid regular expression is fatal for that subscription only."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, PATTERN)
    assert error_of(consumer).code() == PATTERN.code
    consumer.subscribe([topic])
    assert len(consumer.member.of(Subscribed)) == 2
    with pytest.raises(KafkaException, match="No offset stored"):
        consumer.commit(asynchronous=False)


def test_error_of_a_replaced_subscription_is_not_repeated(consumers: ConsumerFactory, topic: str, clock: Clock) -> None:
    """The error concerns the former subscription, not the new one."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, PATTERN)
    assert error_of(consumer).code() == PATTERN.code
    consumer.subscribe([topic])
    clock.now += 1
    assert consumer.poll(0) is None


def test_error_returned_after_the_next_subscription_does_not_block_commits(
    consumers: ConsumerFactory, topic: str
) -> None:
    """A program may subscribe again before it gets the error. Then the member has partitions and commits."""
    consumer = subscribed(consumers, topic, [])
    fatal(consumer, PATTERN)
    consumer.subscribe([topic])
    assert error_of(consumer).code() == PATTERN.code
    consumer.member.assign({TopicPartition(topic, 0): 49})
    record(consumer)
    assert consumer.commit(asynchronous=False)


def test_error_that_is_not_fatal_is_a_message_and_the_consumer_continues(
    consumers: ConsumerFactory, topic: str
) -> None:
    """TOPIC_AUTHORIZATION_FAILED is returned as a message, and the consumer continues."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.order(
        RaiseToApplication(problem=Problem.REFUSED, error=BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED"))
    )
    error = error_of(consumer)
    assert (error.code(), error.fatal()) == (KafkaError.TOPIC_AUTHORIZATION_FAILED, False)
    consumer.member.assign({TopicPartition(topic, 0): 49})
    assert drain(consumer, 1) == [(0, 49)]


def test_poll_timeout_error_comes_first_and_on_lost_with_the_next_poll(consumers: ConsumerFactory, topic: str) -> None:
    """M124, M126, C01: `_MAX_POLL_EXCEEDED` comes first, and no record of a lost partition is returned."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    error = BrokerError(code=POLL_TIMEOUT_CODE, name="_MAX_POLL_EXCEEDED", message="poll more often")
    consumer.member.order(RaiseToApplication(problem=Problem.POLL_TIMEOUT, error=error))
    consumer.member.lose()
    reported = error_of(consumer)
    assert (reported.code(), reported.str(), calls[1:]) == (POLL_TIMEOUT_CODE, "poll more often", [])
    assert drain(consumer) == []
    assert calls[1:] == [("lost", [0])]


def test_consume_returns_an_error_at_once_and_alone(consumers: ConsumerFactory, topic: str) -> None:
    """Buffered records may belong to another member by now, so records of a lost partition are never returned."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    error = BrokerError(code=POLL_TIMEOUT_CODE, name="_MAX_POLL_EXCEEDED", message="poll more often")
    consumer.member.order(RaiseToApplication(problem=Problem.POLL_TIMEOUT, error=error))
    consumer.member.lose()
    (message,) = consumer.consume(10, PATIENCE_S)
    reported = message.error()
    assert reported is not None
    assert reported.code() == POLL_TIMEOUT_CODE
    assert consumer.consume(10, 0.1) == []


def test_error_cb_is_called_by_poll_without_a_broker() -> None:
    """Unreachable brokers cause informational errors on the polling thread, no exception and no blocked call."""
    reported: list[KafkaError] = []
    consumer = ScriptedConsumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "error_cb": reported.append}
    )

    def poll() -> None:
        assert consumer.poll(0.1) is None

    wait_until(lambda: reported, "an error", between=poll)
    assert reported[0].code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    consumer.close()


def test_poll_and_consume_raise_the_exception_of_error_cb() -> None:
    """The exception propagates, as in confluent-kafka."""

    def fail(error: KafkaError) -> None:
        raise KafkaException(error)

    consumer = ScriptedConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "error_cb": fail})
    with pytest.raises(KafkaException):
        consumer.poll(PATIENCE_S)
    with pytest.raises(KafkaException):
        consumer.consume(1, PATIENCE_S)
    consumer.close()


def test_callback_that_raises_loses_no_record(consumers: ConsumerFactory, topic: str) -> None:
    """An exception inside librdkafka's fetch would discard its records, so callbacks run after it."""
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


def test_statistics_cgrp_describes_the_member(consumers: ConsumerFactory, topic: str) -> None:
    """The `cgrp` object describes the member, not the handle, which never joined."""
    import json  # noqa: PLC0415

    reported: list[str] = []
    consumer = consumers(stats_cb=reported.append, statistics_interval_ms=50)
    consumer.subscribe([topic])
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    reported.clear()  # reported before the assignment
    wait_until(lambda: reported, "statistics", between=lambda: consumer.consume(RECORDS, 0.05))
    group = json.loads(reported[-1])["cgrp"]
    assert (group["join_state"], group["assignment_size"], group["rebalance_cnt"]) == ("steady", 1, 1)
    assert json.loads(reported[-1])["type"] == "consumer"


def test_logger_gets_librdkafka_s_lines(consumers: ConsumerFactory, caplog: pytest.LogCaptureFixture) -> None:
    """`logger=` works as in confluent-kafka."""
    with caplog.at_level(logging.DEBUG, "librdkafka"):
        consumer = consumers(logger=logging.getLogger("librdkafka"), log_level=7, debug="conf")
        consumer.poll(0.2)
    assert any(line.name == "librdkafka" for line in caplog.records)


def test_throttle_cb_gets_librdkafka_s_event_after_the_fetch(consumers: ConsumerFactory) -> None:
    """The event of librdkafka, which handles quotas, reaches the user's callback after the fetch."""
    reported: list[ThrottleEvent] = []
    consumer = consumers(throttle_cb=reported.append)
    event = ThrottleEvent("broker", 1, 0.5)
    consumer._use()._handles.reports.note(lambda: reported.append(event))
    consumer.poll(0)
    assert reported == [event]


def test_set_sasl_credentials_applies_to_fetch_and_group_connections(consumers: ConsumerFactory) -> None:
    """`set_sasl_credentials` applies to librdkafka, to later handles and to the member."""
    consumer = consumers()
    consumer.set_sasl_credentials("alice", "secret")
    assert consumer.member.credentials == ("alice", "secret")
    with pytest.raises(TypeError):
        consumer.set_sasl_credentials("bob", None)  # type: ignore[arg-type]
    assert consumer.member.credentials == ("alice", "secret")


def test_constructor_names_a_tls_file_that_cannot_be_read() -> None:
    """The error has _INVALID_ARG, as in confluent-kafka, and the file and the reason instead of OpenSSL's numbers."""
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
    assert "ssl.ca.location='/no/such/file.pem': No such file or directory; set it to a PEM file" in str(caught.value)


def test_unavailable_token_endpoint_raises_the_exception_for_missing_credentials() -> None:
    """The internal error is a subclass of AuthenticationError and is raised as that class's public exception."""
    raised = exception_of(EndpointUnavailableError("cannot be reached"))
    assert isinstance(raised, AuthenticationError)
    assert isinstance(raised, KafkaException)
    assert raised.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED
