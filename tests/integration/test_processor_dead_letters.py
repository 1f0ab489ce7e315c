"""A processor on a real broker whose records fail: dead letters in a topic, from a function, and in transactions."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from threading import Lock

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.serialization import SerializationContext
from tenacity import Retrying, stop_after_attempt, wait_none

from consumer_membership.devbroker import Broker
from consumer_membership.errors import HandlerError
from consumer_membership.processing.dead_letter_headers import DeadLetter
from tests.integration.processors import Handled, Run, committed, running, value_of
from tests.support.kafka import (
    create_topic,
    delete_topic,
    produce,
    read_committed,
    unique,
    wait_for_end_of_transactions,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TWICE = Retrying(stop=stop_after_attempt(2), wait=wait_none())
CONFIG: dict[str, object] = {"auto.commit.interval.ms": 50}


class Place:
    """A topic with records, a dead-letter topic, and a group that has its name."""

    def __init__(self, broker: Broker, values: list[bytes], letters: dict[str, str] | None = None) -> None:
        self.servers = broker.bootstrap_servers
        self.topic = create_topic(self.servers, unique("orders"), config={"max.message.bytes": "2000000"})
        self.group = self.topic
        self.letters_topic = create_topic(self.servers, unique("dlq"), config=letters)
        producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 2_000_000})
        for number, value in enumerate(values):
            producer.produce(self.topic, value, b"%d" % (number % 3), headers=[("trace", b"%d" % number)])
        producer.flush()

    def letters(self) -> list[DeadLetter]:
        """Return the dead letters in the topic, when no transaction is open in it."""
        wait_for_end_of_transactions(self.servers, self.letters_topic)
        return [DeadLetter.of(message) for message in read_committed(self.servers, self.letters_topic)]

    def wait_for_commit(self, offset: int) -> None:
        """Wait until this offset is committed, and no offset is finished beyond it."""
        wait_until(lambda: self.committed() == (offset, ""), f"the commit of {offset}", seen=self.committed)

    def committed(self) -> tuple[int, str]:
        """Return the committed offset and its metadata."""
        return committed(self.servers, self.group, self.topic, 1)[0]


@pytest.fixture
def place(kafka: Broker) -> Place:
    """Nine records: the fifth one is bad."""
    return Place(kafka, [b"bad" if number == 4 else b"%d" % number for number in range(9)])


def failing(handled: Handled) -> Handled:
    """Make the handler fail for the bad record."""
    handled.fail("bad", lambda: LookupError("no account"))
    return handled


def test_failed_record_is_a_dead_letter_and_the_others_continue(place: Place) -> None:
    """The letter has the record, the attempts and the exception; offsets are committed past it."""
    handled = failing(Handled())
    run = Run(place.servers, place.topic, place.group, handled, CONFIG, retry=TWICE, dead_letter=place.letters_topic)
    with running(run):
        place.wait_for_commit(9)
        counts = run.processor.metrics().handlers
        assert counts is not None
        assert counts.dead_letters == 1
    (letter,) = place.letters()
    assert (letter.key, letter.value, letter.original_headers()) == (b"1", b"bad", (("trace", b"4"),))
    assert (letter.original_topic, letter.original_offset, letter.group) == (place.topic, 4, place.group)
    assert (letter.attempts, letter.exception, letter.message) == (2, "LookupError", "no account")
    assert (letter.stack or "").endswith("LookupError: no account\n")
    assert Counter(handled.began) == Counter({**{str(n): 1 for n in range(9) if n != 4}, "bad": 2})


def test_record_that_cannot_be_deserialized_is_a_dead_letter_with_its_bytes(place: Place) -> None:
    """The handler receives objects, and a record without one goes to the topic at its first attempt, unchanged."""

    def of_json(value: bytes | None, _: SerializationContext) -> object:
        return json.loads(value or b"null")

    values: list[object] = []
    lock = Lock()

    def handle(record: Message) -> None:
        with lock:
            values.append(record.value())
        if record.value() == 7:
            raise LookupError("seven")

    config = CONFIG | {"value.deserializer": of_json}
    run = Run(place.servers, place.topic, place.group, handle, config, retry=TWICE, dead_letter=place.letters_topic)
    with running(run):
        place.wait_for_commit(9)
    assert Counter(values) == Counter([0, 1, 2, 3, 5, 6, 7, 7, 8])
    letters = {letter.original_offset: letter for letter in place.letters()}
    assert {offset: letter.value for offset, letter in letters.items()} == {4: b"bad", 7: b"7"}
    assert (letters[4].attempts, letters[4].stage) == (1, "VALUE_CONVERTER")
    assert letters[4].exception == "confluent_kafka.error.ValueDeserializationError"
    assert letters[4].cause == "json.decoder.JSONDecodeError"
    assert (letters[7].attempts, letters[7].stage) == (2, "TASK_PUT")


@pytest.mark.parametrize("transactional", [False, True])
def test_function_receives_failed_records(place: Place, *, transactional: bool) -> None:
    """The function gets the record, the last exception and the attempts, before the record is committed."""
    calls: list[tuple[str, str, int, int]] = []

    def store(record: Message, error: BaseException, attempts: int) -> None:
        calls.append((value_of(record), str(error), attempts, place.committed()[0]))

    run = Run(
        place.servers,
        place.topic,
        place.group,
        failing(Handled()),
        CONFIG,
        retry=TWICE,
        dead_letter=store,
        transactional=transactional,
    )
    with running(run):
        place.wait_for_commit(9)
    ((value, error, attempts, offset),) = calls
    assert (value, error, attempts) == ("bad", "no account", 2)
    assert offset <= 4


def test_function_that_raises_stops_the_processor_before_the_record(place: Place) -> None:
    """The error has the function's exception as its cause, and the record stays uncommitted."""

    def refuse(*_: object) -> None:
        raise OSError("the disk is full")

    run = Run(place.servers, place.topic, place.group, failing(Handled()), CONFIG, retry=TWICE, dead_letter=refuse)
    error = run.join()
    assert isinstance(error, HandlerError)
    assert isinstance(error.__cause__, OSError)
    assert "the disk is full" in str(error)
    assert place.committed()[0] <= 4


def test_dead_letter_topic_that_disappears_stops_the_processor_before_the_record(place: Place) -> None:
    """A dead letter that the brokers refuse ends the run with an error that names the topic."""
    handled = failing(Handled())
    handled.hold("bad")
    run = Run(place.servers, place.topic, place.group, handled, CONFIG, retry=TWICE, dead_letter=place.letters_topic)
    handled.wait_for_begin("bad")
    delete_topic(place.servers, place.letters_topic)
    handled.release()
    error = run.join()
    assert isinstance(error, HandlerError)
    assert place.letters_topic in str(error)
    assert place.committed()[0] <= 4


@pytest.mark.parametrize("transactional", [False, True])
def test_largest_records_are_dead_letters_also_in_a_transaction(kafka: Broker, *, transactional: bool) -> None:
    """The producer has no size limit of its own: the topic's max.message.bytes decides."""
    large = random.Random(5).randbytes(1_200_000)  # noqa: S311 - not for security
    place = Place(kafka, [large], {"max.message.bytes": "1300000"})

    def handle(_: Message) -> None:
        raise LookupError("no account")

    run = Run(
        place.servers,
        place.topic,
        place.group,
        handle,
        CONFIG,
        retry=TWICE,
        dead_letter=place.letters_topic,
        transactional=transactional,
    )
    with running(run):
        place.wait_for_commit(1)
    (letter,) = place.letters()
    assert letter.value == large


def test_batch_that_fails_writes_only_the_bad_record(place: Place) -> None:
    """The records of a failed batch run one by one, and only the one that fails again is a dead letter."""

    def handle(records: list[Message]) -> None:
        for record in records:
            if record.value() == b"bad":
                raise LookupError("no account")

    run = Run(
        place.servers,
        place.topic,
        place.group,
        handle,
        CONFIG,
        retry=TWICE,
        dead_letter=place.letters_topic,
        max_batch=10,
    )
    with running(run):
        place.wait_for_commit(9)
    assert [letter.value for letter in place.letters()] == [b"bad"]


def test_coroutine_that_fails_is_a_dead_letter(place: Place) -> None:
    """Coroutines are handled like functions; the loop does not wait for the brokers."""

    async def handle(record: Message) -> None:
        if record.value() == b"bad":
            raise LookupError("no account")

    run = Run(place.servers, place.topic, place.group, handle, CONFIG, retry=TWICE, dead_letter=place.letters_topic)
    with running(run):
        place.wait_for_commit(9)
    assert [letter.value for letter in place.letters()] == [b"bad"]


def test_null_key_value_and_headers_stay_null(kafka: Broker) -> None:
    """A tombstone without a key is a dead letter without a key and a value."""
    place = Place(kafka, [])
    produce(place.servers, place.topic, [(None, None)])

    def handle(_: Message) -> None:
        raise LookupError("no account")

    run = Run(place.servers, place.topic, place.group, handle, CONFIG, retry=TWICE, dead_letter=place.letters_topic)
    with running(run):
        place.wait_for_commit(1)
    (letter,) = place.letters()
    assert (letter.key, letter.value, letter.original_headers()) == (None, None, ())
    assert dict(letter.headers)["kafka_dlt-original-partition"] == struct.pack(">i", 0)
