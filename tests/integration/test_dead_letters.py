"""The dead-letter topic of a processor on a real broker: what is written, what is refused, and the check before."""

from __future__ import annotations

import logging
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, Producer
from confluent_kafka.admin import AclOperation, ResourceType

from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.tcp_ports import draw_ports
from consumer_membership.errors import ConfigurationError, DeadLetterError
from consumer_membership.processing.dead_letter_headers import DeadLetter
from consumer_membership.processing.dead_letters import TopicDeadLetters
from tests.support.acls import AUTHORIZER, allow, forbid
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, read_committed, unique
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LONG_AGO_MS = 1_000_000_000_000
#: Kafka's default of max.message.bytes.
MOST_BYTES = 1_048_588


def record(value: bytes | None = b"value", *, key: bytes | None = b"key", offset: int = 17) -> Message:
    """Return a failed record."""
    return Message(
        topic="orders",
        partition=3,
        offset=offset,
        key=key,
        value=value,
        headers=[("trace", b"\xff"), ("none", None)],
        timestamp=(TIMESTAMP_CREATE_TIME, LONG_AGO_MS),
    )


def failure(text: str = "no funds") -> ValueError:
    """Return an exception that was raised."""

    def fail() -> None:
        raise ValueError(text)

    try:
        fail()
    except ValueError as error:
        return error
    raise AssertionError


def target(kafka: Broker, topic: str) -> TopicDeadLetters:
    """Return a checked target."""
    made = TopicDeadLetters(topic, {"bootstrap.servers": kafka.bootstrap_servers})
    made.check()
    return made


def letters(kafka: Broker, topic: str) -> list[DeadLetter]:
    """Return the dead letters in a topic."""
    return [DeadLetter.of(message) for message in read_committed(kafka.bootstrap_servers, topic)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the check of a topic wait for a busy broker; by default it only logs a warning after ten seconds."""
    monkeypatch.setattr("consumer_membership.processing.dead_letters._CHECK_S", PATIENCE_S)


@pytest.fixture
def dlq(kafka: Broker) -> str:
    """A dead-letter topic."""
    return create_topic(kafka.bootstrap_servers, unique("dlq"), 3)


# ---- writing --------------------------------------------------------------------------------------------------------


def test_dead_letter_has_the_records_bytes_and_headers(kafka: Broker, dlq: str) -> None:
    """Key, value and headers are unchanged, also null and bytes that are not text; the time is that of the failure."""
    dead_letters = target(kafka, dlq)
    dead_letters.send(record(), failure(), 3, "billing")
    dead_letters.send(record(None, key=None), failure(), 1, "billing")
    dead_letters.close()
    first, second = sorted(letters(kafka, dlq), key=lambda letter: letter.key is None)
    assert (first.key, first.value, first.original_timestamp_ms) == (b"key", b"value", LONG_AGO_MS)
    assert (first.timestamp_ms or 0) > LONG_AGO_MS
    assert first.original_headers() == (("trace", b"\xff"), ("none", None))
    assert (first.original_topic, first.original_partition, first.original_offset) == ("orders", 3, 17)
    assert (first.group, first.attempts, first.exception) == ("billing", 3, "ValueError")
    assert (second.key, second.value) == (None, None)


def test_dead_letters_of_a_key_are_in_the_partition_of_java_producers(kafka: Broker, dlq: str) -> None:
    """The letters of a key stay in order, and tools in Java find them where they expect them."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    other = create_topic(kafka.bootstrap_servers, unique("other"), 3)
    keys = [b"%d" % number for number in range(20)]
    dead_letters = target(kafka, dlq)
    for key in keys:
        producer.produce(other, key=key)
        dead_letters.send(record(key=key), failure(), 1, "billing")
    producer.flush()
    dead_letters.close()
    expected = {message.key(): message.partition() for message in read_committed(kafka.bootstrap_servers, other)}
    assert {letter.key: letter.partition for letter in letters(kafka, dlq)} == expected


def test_many_threads_write_dead_letters_at_once(kafka: Broker, dlq: str) -> None:
    """Each call returns when its own letter is stored; the letters are stored once each."""
    dead_letters = target(kafka, dlq)

    def send(offset: int) -> None:
        dead_letters.send(record(offset=offset), failure(), 1, "billing")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(send, range(500)))
    dead_letters.close()
    assert sorted(letter.original_offset or 0 for letter in letters(kafka, dlq)) == list(range(500))


# ---- refused records ------------------------------------------------------------------------------------------------


def incompressible(size: int) -> bytes:
    """Return bytes that no compression makes shorter."""
    return random.Random(5).randbytes(size)  # noqa: S311 - not for security


def test_stack_is_shortened_if_the_record_would_be_too_large(kafka: Broker, dlq: str) -> None:
    """A record near the topic's max.message.bytes keeps the end of its stack, as far as it fits."""
    dead_letters = target(kafka, dlq)
    value = incompressible(MOST_BYTES - 2_500)
    dead_letters.send(record(value), failure("x" * 20_000), 1, "billing")
    dead_letters.close()
    (letter,) = letters(kafka, dlq)
    assert letter.value == value
    assert letter.exception == "ValueError"
    assert len(letter.message or "") + len(letter.stack or "") < 2_500


def test_record_is_written_without_stack_after_the_limit_was_not_known(kafka: Broker) -> None:
    """If the topic's limit could not be read, a refused record is written again without the exception's texts."""
    dlq = create_topic(kafka.bootstrap_servers, unique("dlq"), config={"max.message.bytes": "2000"})
    unchecked = TopicDeadLetters(dlq, {"bootstrap.servers": kafka.bootstrap_servers})
    unchecked.send(record(), failure(incompressible(3_000).hex()), 1, "billing")
    unchecked.close()
    (letter,) = letters(kafka, dlq)
    assert (letter.exception, letter.message, letter.stack) == ("ValueError", None, None)


def test_record_that_cannot_fit_raises_with_the_setting(kafka: Broker) -> None:
    """The error names the record, the topic and max.message.bytes."""
    dlq = create_topic(kafka.bootstrap_servers, unique("dlq"), config={"max.message.bytes": "2000"})
    dead_letters = target(kafka, dlq)
    with pytest.raises(DeadLetterError, match=rf"orders\[3\] offset 17 .*{dlq}.*size too large; set max.message.bytes"):
        dead_letters.send(record(incompressible(2_000)), failure(), 1, "billing")
    dead_letters.close()


def test_close_ends_a_send_that_waits() -> None:
    """Without a broker, a waiting call raises when another thread closes the target; later calls raise at once."""
    dead_letters = TopicDeadLetters("dlq", {"bootstrap.servers": f"127.0.0.1:{draw_ports(1)[0]}"})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(dead_letters.send, record(), failure(), 1, "billing")
        wait_until(lambda: dead_letters._is_polling, "a call that waits for the brokers")
        dead_letters.close()
        with pytest.raises(DeadLetterError, match=r"orders\[3\] offset 17 was not written"):
            waiting.result()
    with pytest.raises(DeadLetterError, match="is closed"):
        dead_letters.send(record(), failure(), 1, "billing")
    dead_letters.close()


# ---- the check ------------------------------------------------------------------------------------------------------


def test_check_refuses_topics_that_do_not_exist(kafka: Broker) -> None:
    """The error names the option, the topic and the fix; the topic is not created."""
    for name in (missing := unique("missing"), "no topic"):
        with pytest.raises(ConfigurationError, match=f"dead_letter='{name}': .*create the topic") as refused:
            target(kafka, name)
        assert refused.value.key == "dead_letter"
    with pytest.raises(ConfigurationError):
        target(kafka, missing)


def test_check_waits_for_a_topic_that_is_just_being_created(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program may create the topic right before, and a broker may not know it for a moment."""
    monkeypatch.setattr("consumer_membership.processing.dead_letters._NEW_TOPIC_S", PATIENCE_S)
    new = unique("new")
    with caplog.at_level(logging.DEBUG, "consumer_membership.processing"), ThreadPoolExecutor() as pool:
        checked = pool.submit(target, kafka, new)
        wait_until(lambda: f"{new} is unknown" in caplog.text, "the first response")
        create_topic(kafka.bootstrap_servers, new)
        checked.result(PATIENCE_S).close()


def test_check_refuses_compacted_topics(kafka: Broker) -> None:
    """Compaction removes all but the last dead letter of a key."""
    dlq = create_topic(kafka.bootstrap_servers, unique("dlq"), config={"cleanup.policy": "compact,delete"})
    with pytest.raises(ConfigurationError, match=r"cleanup\.policy=compact,delete, .* set cleanup\.policy=delete"):
        target(kafka, dlq)


def test_check_of_dead_letter_topic_names_missing_operations(broker_pool: RunBrokers) -> None:
    """Without DESCRIBE or WRITE the check raises; without DESCRIBE_CONFIGS only the topic's limit stays unknown."""
    broker = broker_pool.shared(NEWEST, properties=AUTHORIZER)
    servers = broker.bootstrap_servers
    read_only, hidden = (create_topic(servers, unique(name)) for name in ("read", "hidden"))
    writable = create_topic(servers, unique("writable"), config={"max.message.bytes": "2000"})
    allow(servers, ResourceType.TOPIC, read_only, AclOperation.READ)
    with pytest.raises(ConfigurationError, match="grant WRITE on it"):
        target(broker, read_only)
    forbid(servers, ResourceType.TOPIC, hidden, AclOperation.DESCRIBE)
    with pytest.raises(ConfigurationError, match="grant DESCRIBE and WRITE on the topic"):
        target(broker, hidden)
    allow(servers, ResourceType.TOPIC, writable, AclOperation.WRITE)
    dead_letters = target(broker, writable)
    assert dead_letters._most_bytes == MOST_BYTES
    dead_letters.send(record(), failure(), 1, "billing")
    dead_letters.close()


def test_check_without_broker_logs_a_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The consumer waits for the brokers, so the check does not end the program."""
    monkeypatch.setattr("consumer_membership.processing.dead_letters._CHECK_S", 1.0)
    unreachable = TopicDeadLetters("dlq", {"bootstrap.servers": f"127.0.0.1:{draw_ports(1)[0]}"})
    with caplog.at_level(logging.WARNING, "consumer_membership.processing"):
        unreachable.check()
    assert "Dead-letter topic dlq could not be checked: " in caplog.text
