"""A request that arrives late, during a later transaction, and its effect on that transaction."""

from __future__ import annotations

import logging
import struct

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from consumer_membership.clients.group_metadata import pack_group_metadata
from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.request import CLASSIC_VERSIONS
from consumer_membership.processing import transactional_producer as producers
from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.processing.transactional_producer import ConnectionFailures, TransactionalProducer
from tests.support.brokers import RunBrokers
from tests.support.features import lower_transactions
from tests.support.kafka import create_topic, read_committed, unique, wait_for_end_of_transactions
from tests.support.kinds import TRANSACTIONS
from tests.support.proxy import END_TXN, TXN_OFFSET_COMMIT, Proxy
from tests.support.waiting import PATIENCE_S, wait_until

#: Receives librdkafka's log lines.
LOG = logging.getLogger("consumer_membership.processing")
#: The response to EndTxn 1: throttle time and error code.
ANSWER = struct.Struct(">ih")
#: Shorter than librdkafka's default, so that a request is resent within the test; a busy broker responds sooner.
SOCKET_TIMEOUT_MS = 5000


# ---- librdkafka's log lines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facility", "line", "is_failure"),
    [
        ("FAIL", "[thrd:b]: TxnCoordinator: b:9092: Disconnected (after 673ms in state UP)", True),
        ("FAIL", "[thrd:b]: b:9092/1: Receive failed: Connection reset by peer (after 5ms in state REAUTH)", True),
        ("REQTMOUT", "[thrd:b]: TxnCoordinator/1: Timed out EndTxnRequest in flight (after 2000ms, timeout #0)", True),
        ("FAIL", "[thrd:b]: b:9092/1: Connect to b:9092 failed: refused (after 0ms in state CONNECT)", False),
        ("FAIL", "[thrd:b]: b:9092/1: Failed to resolve 'b:9092' (after 0ms in state TRY_CONNECT)", False),
        ("GETPID", "[thrd:main]: Failed to acquire transactional PID: retrying", False),
    ],
)
def test_connection_failures_count_only_if_a_request_may_be_in_flight(
    facility: str, line: str, *, is_failure: bool
) -> None:
    """A broken connection and a missing response count as failures; a connection that never opened does not."""
    failures = ConnectionFailures(LOG)
    failures.log(logging.INFO, "%s [%s] %s", facility, "rdkafka#producer-1", line)
    assert failures.has_failures is is_failure


def test_log_lines_below_the_log_level_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Lines that the producer reads only to detect failures are not logged."""
    caplog.set_level(logging.DEBUG, LOG.name)
    failures = ConnectionFailures(LOG, logging.WARNING)
    failures.log(logging.INFO, "%s [%s] %s", "FAIL", "p", "closed")
    failures.log(logging.WARNING, "%s [%s] %s", "REQTMOUT", "p", "late")
    assert caplog.messages == ["REQTMOUT [p] late"]


# ---- on a broker -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["newest transactions", "transactions version 1", "Kafka 3.9"])
def broker(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Broker:
    """Each kind of broker. Librdkafka treats all of them equally, as if EndTxn version 2 (KIP-890) did not exist."""
    if request.param == "newest transactions":
        return broker_pool.shared()
    if request.param == "Kafka 3.9":
        return broker_pool.shared(*CLASSIC_VERSIONS)
    broker = broker_pool.shared(properties=TRANSACTIONS)
    lower_transactions(broker.bootstrap_servers)
    return broker


@pytest.fixture
def config() -> dict[str, str | int | float | bool]:
    """Return the configuration of a producer, without the brokers."""
    return {"transactional.id": unique("t"), "socket.timeout.ms": SOCKET_TIMEOUT_MS, "linger.ms": 0, "log_level": 0}


def committed(servers: str, topic: str) -> list[bytes | None]:
    """Return the values that read-committed consumers receive when no transaction is open."""
    wait_for_end_of_transactions(servers, topic)
    return [message.value() for message in read_committed(servers, topic)]


def error_of(answer: bytes) -> int:
    """Return the broker's error code for EndTxn."""
    _, code = ANSWER.unpack(answer)
    return int(code)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("resets", [True, False])
def test_late_commit_ends_the_next_transaction_of_a_producer(
    broker: Broker, config: dict[str, str | int | float | bool], *, resets: bool
) -> None:
    """A resent commit that arrives late commits the producer's next transaction, although that one is aborted.

    `TransactionalProducer` avoids this defect. If the connection is not reset, `commit_transaction` only requests
    another call, which the test makes.
    """
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("out"))
    with Proxy(servers) as proxy:
        producer = Producer({**config, "bootstrap.servers": proxy.address})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"committed")
        proxy.delay(END_TXN, resets=resets)
        errors: list[tuple[int, bool]] = []

        def is_committed() -> bool:
            try:
                producer.commit_transaction(PATIENCE_S if resets else 0.5)
            except KafkaException as refused:
                errors.append((refused.args[0].code(), refused.args[0].retriable()))
                return False
            return True

        wait_until(is_committed, "the commit")
        assert set(errors) == (set() if resets else {(KafkaError._TIMED_OUT, True)})
        assert proxy.is_late
        producer.begin_transaction()
        producer.produce(topic, b"to be aborted")
        producer.flush(PATIENCE_S)
        assert error_of(proxy.arrive()) == KafkaError.NO_ERROR
        with pytest.raises(KafkaException) as refused:
            producer.abort_transaction(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.INVALID_TXN_STATE
    assert committed(servers, topic) == [b"committed", b"to be aborted"]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("resets", [True, False])
def test_new_producer_after_late_requests_is_safe_from_a_late_commit(
    broker: Broker,
    config: dict[str, str | int | float | bool],
    monkeypatch: pytest.MonkeyPatch,
    *,
    resets: bool,
) -> None:
    """`may_have_late_requests` becomes true, and with a new producer the broker rejects the late commit."""
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("out"))
    with Proxy(servers) as proxy:
        config["bootstrap.servers"] = proxy.address
        first = TransactionalProducer(config, LOG)
        first.start()
        first.begin()
        first.produce(OutputRecord(topic, b"committed"))
        assert not first.may_have_late_requests
        proxy.delay(END_TXN, resets=resets)
        if not resets:
            monkeypatch.setattr(producers, "CALL_S", 0.5)
        first.commit()
        assert proxy.is_late
        assert first.may_have_late_requests
        first.close()
        monkeypatch.undo()
        second = TransactionalProducer(config, LOG)
        second.start()
        second.begin()
        second.produce(OutputRecord(topic, b"to be aborted"))
        assert error_of(proxy.arrive()) in (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
        second.abort()
        assert not second.may_have_late_requests
        second.begin()
        second.produce(OutputRecord(topic, b"the end"))
        second.commit()
        second.close()
    assert committed(servers, topic) == [b"committed", b"the end"]


def group_offset(servers: str, group: str, topic: str) -> int:
    """Return the group's committed offset of partition 0, when no transaction is open on it."""
    admin = AdminClient({"bootstrap.servers": servers})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([asked], require_stable=True)[group].result().topic_partitions
    return int(found.offset)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("is_replaced", [False, True])
def test_late_offsets_override_a_later_transaction_except_for_a_new_producer(
    broker: Broker, config: dict[str, str | int | float | bool], *, is_replaced: bool
) -> None:
    """With the same producer, late offsets reset the group, and records that were already read are read again.

    A coordinator before 4.0 rejects the late offsets of the former producer, but it also drops those of the open
    transaction: it returns 1 until the next commit or its restart.
    """
    servers, group = broker.bootstrap_servers, unique("g")
    topic = create_topic(servers, unique("t"))
    membership = pack_group_metadata(group, -1, "", None)
    with Proxy(servers) as proxy:
        config["bootstrap.servers"] = proxy.address
        producer = TransactionalProducer(config, LOG)
        producer.start()
        producer.begin()
        proxy.delay(TXN_OFFSET_COMMIT, resets=True)
        producer.send_offsets([TopicPartition(topic, 0, 1)], membership)
        producer.commit()
        assert proxy.is_late
        assert producer.may_have_late_requests
        if is_replaced:
            producer.close()
            producer = TransactionalProducer(config, LOG)
            producer.start()
        producer.begin()
        producer.send_offsets([TopicPartition(topic, 0, 2)], membership)
        proxy.arrive()
        producer.commit()
        producer.close()
    is_safe = is_replaced and broker.version not in CLASSIC_VERSIONS
    assert group_offset(servers, group, topic) == (2 if is_safe else 1)
