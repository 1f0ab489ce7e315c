"""Outputs of a `Processor` on a real broker: with offsets in transactions, or at least once."""

from __future__ import annotations

import asyncio
import threading

import pytest
import tenacity
from confluent_kafka import Message

from consumer_membership.devbroker import Broker
from consumer_membership.errors import ArgumentTypeError, HandlerError, OutputError
from consumer_membership.processing import OutputRecord, transactions
from consumer_membership.translation.offset_metadata import decode
from tests.integration.processors import Run, committed, running, value_of
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, produce, read_committed, unique, wait_for_end_of_transactions
from tests.support.kinds import TRANSACTIONS
from tests.support.proxy import END_TXN, Proxy
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ONE_ATTEMPT = tenacity.Retrying(stop=tenacity.stop_after_attempt(1))
HUGE = 2_000_000


@pytest.fixture
def broker(broker_pool: RunBrokers) -> Broker:
    """A broker that soon aborts abandoned transactions and soon ends sessions."""
    return broker_pool.shared(properties=TRANSACTIONS)


class Place:
    """An input topic with one partition, an output topic, a dead-letter topic and a group."""

    def __init__(self, broker: Broker, values: list[str]) -> None:
        self.servers = broker.bootstrap_servers
        self.group = unique("g")
        self.topic = create_topic(self.servers, unique("in"))
        self.out = create_topic(self.servers, unique("out"))
        self.letters = create_topic(self.servers, unique("dlq"))
        produce(self.servers, self.topic, [(value, value) for value in values])

    def written(self, topic: str) -> list[str]:
        """The values that readers of committed records get, sorted."""
        return sorted(value_of(message) for message in read_committed(self.servers, topic))

    def finally_written(self, topic: str) -> list[str]:
        """Wait until no transaction is open, and return the written values."""
        wait_for_end_of_transactions(self.servers, topic)
        return self.written(topic)

    def committed(self) -> tuple[int, str]:
        """The committed offset and its metadata."""
        return committed(self.servers, self.group, self.topic, 1)[0]

    def described(self) -> list[str]:
        """The values of the finished records in the metadata of the commit; the value of a record is its offset."""
        offset, metadata = self.committed()
        finished = decode(metadata, offset)
        if finished is None:
            return []
        return [f"{number:03}" for number in range(finished.base, finished.high) if number not in finished.unfinished]


@pytest.mark.parametrize("transactional", [True, False])
def test_next_owner_writes_only_the_outputs_of_unfinished_records(broker: Broker, *, transactional: bool) -> None:
    """The metadata of a commit lists the finished records whose outputs are written, so each output is written once."""
    values = [str(number) for number in range(10)]
    place = Place(broker, values)
    is_held = threading.Event()
    lock = threading.Lock()
    handled: list[str] = []

    def handle(record: Message) -> list[OutputRecord]:
        value = value_of(record)
        with lock:
            handled.append(value)
        if value == "0" and not is_held.is_set():
            is_held.wait(60)
        return [OutputRecord(place.out, value)]

    config: dict[str, object] = {"auto.commit.interval.ms": 50}
    first = Run(place.servers, place.topic, place.group, handle, config, transactional=transactional, grace_period=0.0)
    wait_until(lambda: place.written(place.out) == values[1:], "the outputs", seen=lambda: place.written(place.out))
    wait_until(lambda: place.committed()[1] != "", "the commit", seen=place.committed)
    offset, metadata = place.committed()
    finished = decode(metadata, offset)
    assert (offset, None if finished is None else finished.count) == (0, 9)
    first.stop()
    is_held.set()
    handled.clear()
    with running(Run(place.servers, place.topic, place.group, handle, config, transactional=transactional)):
        wait_until(lambda: place.committed() == (10, ""), "the rest", seen=place.committed)
    assert (handled, place.finally_written(place.out)) == (["0"], values)


def test_dead_letter_is_part_of_the_transaction(broker: Broker) -> None:
    """Dead letters, outputs and offsets are visible together; an output that is too large fails its record only."""
    place = Place(broker, ["bad", "good", "huge"])

    def handle(record: Message) -> OutputRecord:
        value = value_of(record)
        if value == "bad":
            raise ValueError(value)
        return OutputRecord(place.out, bytes(HUGE) if value == "huge" else value)

    run = Run(
        place.servers,
        place.topic,
        place.group,
        handle,
        transactional=True,
        dead_letter=place.letters,
        retry=ONE_ATTEMPT,
    )
    with running(run):
        wait_until(lambda: place.committed() == (3, ""), "the commit", seen=place.committed)
        written = (place.finally_written(place.out), place.finally_written(place.letters))
        assert written == (["good"], ["bad", "huge"])
    errors = [
        dict(letter.headers() or [])["kafka_dlt-exception-fqcn"]
        for letter in read_committed(place.servers, place.letters)
    ]
    assert sorted(map(str, errors)) == ["b'ValueError'", "b'consumer_membership.errors.OutputError'"]


def test_transaction_waits_until_its_metadata_fits(broker_pool: RunBrokers, caplog: pytest.LogCaptureFixture) -> None:
    """If the broker permits less metadata, outputs of records that it cannot describe are not written before them."""
    broker = broker_pool.shared(properties=TRANSACTIONS | {"offset.metadata.max.bytes": "24"})
    values = [f"{number:03}" for number in range(200)]
    place = Place(broker, values)
    loops: list[asyncio.AbstractEventLoop] = []
    released: list[asyncio.Event] = []

    async def handle(record: Message) -> OutputRecord:
        value = value_of(record)
        if not loops:
            loops.append(asyncio.get_running_loop())
            released.append(asyncio.Event())
        if int(value) % 2 == 0:
            await released[0].wait()
        return OutputRecord(place.out, value)

    with running(Run(place.servers, place.topic, place.group, handle, transactional=True, concurrency=300)):
        wait_until(lambda: "The broker rejects commits whose metadata" in caplog.text, "a smaller limit")
        # On a slow machine, a first transaction may contain so few records that their description fits.
        wait_until(
            lambda: place.written(place.out) == place.described(),
            "no output without a description",
            seen=lambda: (place.written(place.out), place.described()),
        )
        loops[0].call_soon_threadsafe(released[0].set)
        wait_until(lambda: place.committed() == (200, ""), "the commit", seen=place.committed)
    assert place.finally_written(place.out) == values


@pytest.mark.parametrize("is_committed", [True, False])
def test_lost_response_to_a_commit_neither_repeats_nor_loses_outputs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    """The processor determines the result of the transaction, and continues."""
    # Sooner than by default, and later than a busy broker responds. librdkafka repeats its requests shortly before the
    # transaction's timeout.
    monkeypatch.setattr(transactions, "PATIENCE_S", 8.0)
    monkeypatch.setattr(transactions, "DEFAULT_TIMEOUT_MS", 60_000)
    values = [f"{number:02}" for number in range(20)]
    place = Place(broker, values)

    def handle(record: Message) -> OutputRecord:
        return OutputRecord(place.out, record.value())

    with Proxy(place.servers) as proxy:
        proxy.delay(END_TXN, resets=False)
        with running(Run(proxy.address, place.topic, place.group, handle, transactional=True)):
            proxy.wait(lambda: proxy.is_late, "the end of a transaction")
            if is_committed:
                proxy.arrive()
            wait_until(lambda: place.committed() == (20, ""), "the commit", seen=place.committed)
    assert place.finally_written(place.out) == values


@pytest.mark.parametrize("transactional", [True, False])
def test_handler_with_a_wrong_return_value_stops_the_processor(broker: Broker, *, transactional: bool) -> None:
    """Each record would fail, so none goes to the dead-letter topic, and nothing is committed."""
    place = Place(broker, ["one"])

    def handle(_: Message) -> int:
        return 42

    run = Run(place.servers, place.topic, place.group, handle, transactional=transactional, dead_letter=place.letters)
    error = run.join()
    assert isinstance(error, HandlerError)
    assert isinstance(error.__cause__, ArgumentTypeError)
    assert "the handler returned a value of type int" in str(error)
    assert (place.written(place.letters), place.committed()) == ([], (0, ""))


@pytest.mark.parametrize("transactional", [True, False])
def test_output_for_a_missing_topic_stops_the_processor(broker: Broker, *, transactional: bool) -> None:
    """The run raises an error with the topic, and the record is not committed."""
    place = Place(broker, ["one"])
    missing = unique("missing")

    def handle(record: Message) -> OutputRecord:
        return OutputRecord(missing, record.value())

    error = Run(place.servers, place.topic, place.group, handle, transactional=transactional).join()
    assert isinstance(error, OutputError)
    assert f"'{missing}'" in str(error)
    assert place.committed()[0] <= 0
