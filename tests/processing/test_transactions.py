"""Transactions of outputs and offsets on a real broker: both are written or neither, even if a response is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, TopicPartition

from consumer_membership import Consumer
from consumer_membership.clients.group_metadata import epoch_in, pack_group_metadata
from consumer_membership.devbroker import Broker
from consumer_membership.errors import FencedError, OutputError, TransactionAbortedError
from consumer_membership.processing import transactions as transactions_module
from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.processing.transactions import (
    TransactionInDoubtError,
    Transactions,
    default_transactional_id,
)
from tests.support.brokers import RunBrokers
from tests.support.kafka import (
    appended,
    create_topic,
    produce,
    read_committed,
    unique,
    wait_for_end_of_transactions,
)
from tests.support.kinds import TRANSACTIONS
from tests.support.proxy import END_TXN, INIT_PRODUCER_ID, Proxy
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.integration

#: Metadata with finished offsets beyond the committed offset, as a later owner decodes it.
METADATA = "cm1:finished-beyond"
#: The patience of a producer whose first calls succeed, even on a busy machine, and whose last calls get no response.
LATER_THAN_A_BROKER_S = 8.0
#: The patience of a producer that gets no response to any call.
WITHOUT_A_RESPONSE_S = 1.0
#: The error codes for a producer whose transaction the broker has aborted.
FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class Stage:
    """A group with one member, its input topic with two partitions, an output topic, and the member's transactions."""

    def __init__(self, broker: Broker, held: ExitStack, *, protocol: str = "consumer") -> None:
        self.servers, self.held = broker.bootstrap_servers, held
        self.group = unique("g")
        self.topic = create_topic(self.servers, unique("in"), 2)
        self.out = create_topic(self.servers, unique("out"))
        produce(self.servers, self.topic, 10)
        self.consumer = held.enter_context(
            Consumer(
                {
                    "bootstrap.servers": self.servers,
                    "group.id": self.group,
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
        )
        self.consumer.subscribe([self.topic])
        wait_until(lambda: len(self.consumer.consume(10, 0.1)) > 0, "records", PATIENCE_S)

    def transactions(self, transactional_id: str | None = None, **config: object) -> Transactions:
        """Return transactions that are closed at the end of the test; keys in `config` have `_` instead of `.`."""
        keys = {"bootstrap.servers": self.servers, "log_level": 0}
        keys |= {key.replace("_", "."): value for key, value in config.items()}
        made = Transactions(keys, transactional_id or unique("t"), self.consumer.committed)
        self.held.callback(made.close)
        return made

    def commit(self, transactions: Transactions, value: str, offset: int, metadata: str = METADATA) -> None:
        """Commit an output with this value, together with this offset of partition 0."""
        offsets = [TopicPartition(self.topic, 0, offset, metadata)]
        transactions.commit([OutputRecord(self.out, value)], offsets, self.consumer.consumer_group_metadata())

    def written(self) -> list[str]:
        """Return the outputs that read-committed consumers receive when no transaction is open."""
        wait_for_end_of_transactions(self.servers, self.out)
        return [(message.value() or b"").decode() for message in read_committed(self.servers, self.out)]

    def wait_for(self, transactions: int) -> None:
        """Wait until this many transactions of one output have ended; each appends a record and a marker."""
        wait_until(lambda: appended(self.servers, self.out) == 2 * transactions, "the transactions", PATIENCE_S)

    def committed(self) -> tuple[int, str | None]:
        """Return the committed offset of partition 0 and its metadata."""
        (found,) = self.consumer.committed([TopicPartition(self.topic, 0)], PATIENCE_S)
        return found.offset, found.metadata


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """Close resources at the end of the test."""
    with ExitStack() as held:
        yield held


@pytest.fixture
def broker(broker_pool: RunBrokers) -> Broker:
    """A broker that aborts abandoned transactions and ends sessions after a short time."""
    return broker_pool.shared(properties=TRANSACTIONS)


def test_default_transactional_id_is_stable_for_static_members_only() -> None:
    """The id begins with the group id; without an instance id, each consumer has its own."""
    assert default_transactional_id("orders", "worker-1") == "orders-worker-1"
    first, second = (default_transactional_id("orders", None) for _ in range(2))
    assert first.startswith("orders-")
    assert first != second


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_commit_writes_outputs_offsets_and_metadata_together(broker: Broker, held: ExitStack, protocol: str) -> None:
    """`committed` returns the metadata of a transaction, so a later owner skips the finished records."""
    stage = Stage(broker, held, protocol=protocol)
    transactions = stage.transactions()
    transactions.start()
    stage.commit(transactions, "one", 1)
    assert (stage.written(), stage.committed()) == (["one"], (1, METADATA))
    stage.commit(transactions, "two", 2, "")
    assert (stage.written(), stage.committed()) == (["one", "two"], (2, ""))


def test_commit_with_an_old_epoch_is_aborted_and_can_be_repeated(broker: Broker, held: ExitStack) -> None:
    """The member's epoch changes at each rebalance; with the current epoch, the same content can be written."""
    stage = Stage(broker, held)
    transactions = stage.transactions()
    current = stage.consumer.consumer_group_metadata()
    old = pack_group_metadata(stage.group, epoch_in(current) - 1, stage.consumer.memberid() or "", None)
    with pytest.raises(TransactionAbortedError) as aborted:
        transactions.commit([OutputRecord(stage.out, "one")], [TopicPartition(stage.topic, 0, 1)], old)
    assert aborted.value.code == KafkaError.ILLEGAL_GENERATION
    assert (stage.written(), stage.committed()[0]) == ([], -1001)
    stage.commit(transactions, "one", 1)
    assert (stage.written(), stage.committed()) == (["one"], (1, METADATA))


def test_commit_of_a_consumer_outside_its_group_is_fenced(broker: Broker, held: ExitStack) -> None:
    """The coordinator of a group without members would otherwise accept offsets from any process."""
    stage = Stage(broker, held)
    transactions = stage.transactions()
    stage.consumer.unsubscribe()
    wait_until(lambda: stage.consumer.poll(0) is None and stage.consumer.generation() < 0, "the leave", PATIENCE_S)
    with pytest.raises(FencedError):
        stage.commit(transactions, "one", 1)
    assert stage.written() == []


def test_commit_with_too_much_metadata_is_aborted_with_the_code_of_the_broker(broker: Broker, held: ExitStack) -> None:
    """Then the caller encodes fewer finished offsets and tries again."""
    stage = Stage(broker, held)
    transactions = stage.transactions()
    with pytest.raises(TransactionAbortedError) as aborted:
        stage.commit(transactions, "one", 1, "m" * 5000)
    assert aborted.value.code == KafkaError.OFFSET_METADATA_TOO_LARGE
    stage.commit(transactions, "one", 1)
    assert (stage.written(), stage.committed()) == (["one"], (1, METADATA))


def test_output_that_cannot_be_written_aborts_its_transaction(broker: Broker, held: ExitStack) -> None:
    """The message has the topic and the reason; the next transaction is written."""
    stage = Stage(broker, held)
    transactions = stage.transactions()
    missing = unique("missing")
    small = create_topic(stage.servers, unique("small"), config={"max.message.bytes": "1000"})
    metadata, offsets = stage.consumer.consumer_group_metadata(), [TopicPartition(stage.topic, 0, 1)]
    for topic, value, reason in [
        (missing, b"one", "Unknown topic or partition"),
        (small, bytes(2000), "too large"),
        (stage.out, bytes(2_000_000), "too large"),
    ]:
        with pytest.raises(OutputError) as refused:
            transactions.commit([OutputRecord(stage.out, b"aborted"), OutputRecord(topic, value)], offsets, metadata)
        assert f"'{topic}'" in str(refused.value)
        assert reason in str(refused.value)
    stage.commit(transactions, "one", 1)
    assert (stage.written(), stage.committed()) == (["one"], (1, METADATA))


def test_two_processes_with_one_transactional_id_fence_the_first(broker: Broker, held: ExitStack) -> None:
    """The first process gets a final error, and the second one continues."""
    stage = Stage(broker, held)
    first, second = stage.transactions("shared"), stage.transactions("shared")
    stage.commit(first, "one", 1)
    stage.commit(second, "two", 2)
    with pytest.raises(FencedError) as fenced:
        stage.commit(first, "three", 3)
    assert fenced.value.is_final
    assert "transactional.id 'shared'" in str(fenced.value)
    stage.commit(second, "three", 3)
    assert (stage.written(), stage.committed()) == (["one", "two", "three"], (3, METADATA))


# ---- lost responses ----


def is_in_doubt(stage: Stage, transactions: Transactions) -> bool:
    """Commit the output "two"; return whether the result is unknown."""
    try:
        stage.commit(transactions, "two", 2)
    except TransactionInDoubtError:
        return True
    return False


def is_written(stage: Stage, transactions: Transactions, value: str, offset: int) -> bool:
    """Commit an output; return whether it was written."""
    try:
        stage.commit(transactions, value, offset)
    except TransactionAbortedError:
        return False
    except TransactionInDoubtError:
        offsets = [TopicPartition(stage.topic, 0, offset, METADATA)]
        return wait_until(lambda: answer(transactions, offsets), "an answer", PATIENCE_S) == [True]
    return True


def answer(transactions: Transactions, offsets: list[TopicPartition]) -> list[bool]:
    """Return whether the transaction was committed, or an empty list while the result is unknown."""
    try:
        return [transactions.was_committed(offsets)]
    except TransactionInDoubtError:
        return []


@pytest.fixture
def set_patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A function that sets how long the calls of later producers wait for the brokers.

    Before the first producer, this is `LATER_THAN_A_BROKER_S`. A transaction needs a longer timeout, because librdkafka
    repeats its requests shortly before the timeout of the transaction.
    """

    def set_to(seconds: float) -> None:
        monkeypatch.setattr(transactions_module, "PATIENCE_S", seconds)

    set_to(LATER_THAN_A_BROKER_S)
    return set_to


@pytest.mark.slow
@pytest.mark.parametrize("is_committed", [True, False])
def test_commit_without_a_response_returns_what_the_broker_did(
    broker: Broker, held: ExitStack, set_patience: Callable[[float], None], *, is_committed: bool
) -> None:
    """The next producer ends the transaction; then the committed offsets show whether it was committed."""
    stage = Stage(broker, held)
    proxy = held.enter_context(Proxy(stage.servers))
    transactions = stage.transactions(bootstrap_servers=proxy.address, transaction_timeout_ms=60_000)
    stage.commit(transactions, "one", 1)
    proxy.delay(END_TXN, resets=False)
    raised: list[TransactionAbortedError] = []

    def commit() -> None:
        try:
            stage.commit(transactions, "two", 2)
        except TransactionAbortedError as aborted:
            raised.append(aborted)

    call = threading.Thread(target=commit)
    call.start()
    proxy.wait(lambda: proxy.is_late, "the end of the transaction")
    set_patience(PATIENCE_S)
    if is_committed:
        proxy.arrive()
    call.join(PATIENCE_S)
    expected = ["one", "two"] if is_committed else ["one"]
    assert (stage.written(), stage.committed()[0], len(raised)) == (expected, len(expected), int(not is_committed))
    if not is_committed:
        proxy.arrive()  # refused, because the epoch is old
        stage.commit(transactions, "two", 2)
    stage.commit(transactions, "three", 3)
    assert (stage.written(), stage.committed()[0]) == (["one", "two", "three"], 3)


@pytest.mark.slow
def test_start_ends_the_open_transaction_of_a_killed_process(
    broker: Broker, held: ExitStack, set_patience: Callable[[float], None]
) -> None:
    """The new process has the same id, so readers do not wait for the transaction's timeout."""
    stage = Stage(broker, held)
    proxy = held.enter_context(Proxy(stage.servers))
    killed = stage.transactions("static", bootstrap_servers=proxy.address, transaction_timeout_ms=900_000)
    proxy.hold_from(END_TXN)
    with ThreadPoolExecutor(1) as thread:
        commit = thread.submit(stage.commit, killed, "lost", 1)
        proxy.wait(lambda: proxy.held[END_TXN] > 0, "the end of the transaction")
        set_patience(WITHOUT_A_RESPONSE_S)
        with pytest.raises(TransactionInDoubtError):
            commit.result(PATIENCE_S)
    set_patience(PATIENCE_S)
    successor = stage.transactions("static")
    successor.start()
    stage.commit(successor, "one", 1)
    assert (stage.written(), stage.committed()) == (["one"], (1, METADATA))


@pytest.mark.slow
@pytest.mark.parametrize("is_committed", [True, False])
def test_result_of_a_transaction_is_known_when_the_brokers_respond_again(
    broker: Broker, held: ExitStack, set_patience: Callable[[float], None], *, is_committed: bool
) -> None:
    """Until then, each query for the result raises, and the next transaction waits."""
    stage = Stage(broker, held)
    proxy = held.enter_context(Proxy(stage.servers))
    transactions = stage.transactions(bootstrap_servers=proxy.address, transaction_timeout_ms=60_000)
    stage.commit(transactions, "one", 1)
    proxy.delay(END_TXN, resets=False)
    proxy.hold_from(INIT_PRODUCER_ID)  # of the next producer
    doubts: list[bool] = []
    call = threading.Thread(target=lambda: doubts.append(is_in_doubt(stage, transactions)))
    call.start()
    proxy.wait(lambda: proxy.is_late, "the end of the transaction")
    set_patience(WITHOUT_A_RESPONSE_S)
    if is_committed:
        proxy.arrive()
    call.join(PATIENCE_S)
    assert doubts == [True]
    offsets = [TopicPartition(stage.topic, 0, 2, METADATA)]
    with pytest.raises(TransactionInDoubtError):
        transactions.was_committed(offsets)
    set_patience(PATIENCE_S)
    proxy.heal()
    assert wait_until(lambda: answer(transactions, offsets), "an answer", PATIENCE_S) == [is_committed]
    # The start requests of the abandoned producers arrive late, and may fence the current producer.
    values = ["three"] if is_committed else ["two", "three"]
    for offset, value in zip(range(4 - len(values), 4), values, strict=True):
        wait_until(lambda value=value, offset=offset: is_written(stage, transactions, value, offset), value, PATIENCE_S)  # type: ignore[misc]
    assert (stage.written(), stage.committed()[0]) == (["one", "two", "three"], 3)


def test_transaction_beyond_its_timeout_is_aborted_and_can_be_repeated(broker: Broker, held: ExitStack) -> None:
    """Brokers fence the producer as if a second process used its id; here a new producer continues."""
    stage = Stage(broker, held)
    proxy = held.enter_context(Proxy(stage.servers))
    # Longer than a busy broker needs for the first transaction.
    transactions = stage.transactions(bootstrap_servers=proxy.address, transaction_timeout_ms=5000)
    stage.commit(transactions, "one", 1)
    stage.wait_for(1)
    proxy.hold_from(END_TXN)
    raised: list[TransactionAbortedError] = []

    def commit() -> None:
        try:
            stage.commit(transactions, "two", 2)
        except TransactionAbortedError as aborted:
            raised.append(aborted)

    call = threading.Thread(target=commit)
    call.start()
    stage.wait_for(2)
    proxy.heal()
    call.join(PATIENCE_S)
    assert [aborted.code in FENCED for aborted in raised] == [True]
    stage.commit(transactions, "two", 2)
    assert (stage.written(), stage.committed()) == (["one", "two"], (2, METADATA))
