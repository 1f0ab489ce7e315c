"""The headers of dead letters: the formats of Spring Kafka and Kafka Connect, sizes, and reading them back."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from confluent_kafka.error import KeyDeserializationError, ValueDeserializationError
from hypothesis import example, given
from hypothesis import strategies as st

from consumer_membership.processing.dead_letter_headers import (
    RECORD_OVERHEAD,
    DeadLetter,
    RawHeader,
    class_name,
    headers_of,
)

WHEN_MS = 1_700_000_000_123


class PaymentError(Exception):
    pass


def record(
    headers: Sequence[RawHeader] = (),
    *,
    topic: str = "orders",
    offset: int = 1 << 33,
    timestamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, WHEN_MS),
    value: bytes = b"value",
) -> Message:
    """Return a record as a consumer returns it."""
    return Message(
        topic=topic,
        partition=258,
        offset=offset,
        key=b"key",
        value=value,
        headers=list(headers) or None,
        timestamp=timestamp,
    )


def failure(message: str = "no funds") -> PaymentError:
    """Return an exception that has another one as its cause."""
    accounts: dict[str, int] = {}
    try:
        try:
            accounts["account"] -= 1
        except KeyError as cause:
            raise PaymentError(message) from cause
    except PaymentError as error:
        return error
    raise AssertionError


def size_of(headers: Sequence[RawHeader]) -> int:
    """Return the bytes of names and values."""
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


# ---- writing --------------------------------------------------------------------------------------------------------


def test_headers_of_spring_have_its_names_and_binary_formats() -> None:
    """Numbers are big-endian int32 and int64, texts are UTF-8, as DeadLetterPublishingRecoverer writes them."""
    headers = dict(headers_of(record(), failure(), 3, "billing"))
    stack = headers.pop("kafka_dlt-exception-stacktrace")
    assert {name: value for name, value in headers.items() if name.startswith("kafka_")} == {
        "kafka_dlt-original-topic": b"orders",
        "kafka_dlt-original-partition": bytes([0, 0, 1, 2]),
        "kafka_dlt-original-offset": bytes([0, 0, 0, 2, 0, 0, 0, 0]),
        "kafka_dlt-original-timestamp": struct.pack(">q", WHEN_MS),
        "kafka_dlt-original-timestamp-type": b"CreateTime",
        "kafka_dlt-original-consumer-group": b"billing",
        "kafka_dlt-exception-fqcn": b"tests.processing.test_dead_letter_headers.PaymentError",
        "kafka_dlt-exception-cause-fqcn": b"KeyError",
        "kafka_dlt-exception-message": b"no funds",
        "kafka_deliveryAttempt": bytes([0, 0, 0, 3]),
    }
    assert stack is not None
    lines = stack.decode().splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "The above exception was the direct cause of the following exception:" in lines
    assert lines[-1].endswith("PaymentError: no funds")


def test_headers_of_connect_are_text() -> None:
    """Connect writes each value as text, including numbers; the consumer group stands for its connector name."""
    headers = dict(headers_of(record(), failure(), 3, "billing"))
    assert headers.pop("__connect.errors.exception.stacktrace") == headers["kafka_dlt-exception-stacktrace"]
    assert {name: value for name, value in headers.items() if name.startswith("__connect")} == {
        "__connect.errors.topic": b"orders",
        "__connect.errors.partition": b"258",
        "__connect.errors.offset": b"8589934592",
        "__connect.errors.connector.name": b"billing",
        "__connect.errors.stage": b"TASK_PUT",
        "__connect.errors.exception.class.name": b"tests.processing.test_dead_letter_headers.PaymentError",
        "__connect.errors.exception.message": b"no funds",
    }


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ((TIMESTAMP_LOG_APPEND_TIME, WHEN_MS), (b"LogAppendTime", WHEN_MS)),
        ((TIMESTAMP_NOT_AVAILABLE, 0), (b"NoTimestampType", -1)),
    ],
)
def test_timestamp_headers_have_java_names(timestamp: tuple[int, int], expected: tuple[bytes, int]) -> None:
    """The type is the name of Java's TimestampType, and a missing timestamp is -1."""
    headers = dict(headers_of(record(timestamp=timestamp), failure(), 1, "g"))
    assert (
        headers["kafka_dlt-original-timestamp-type"],
        struct.unpack(">q", headers["kafka_dlt-original-timestamp"] or b"")[0],
    ) == expected


def test_exception_without_cause_is_its_own_cause() -> None:
    """Tools for Spring read the listener's exception from the cause, so the cause is the exception itself."""
    headers = dict(headers_of(record(), ValueError("bad"), 1, "g"))
    assert headers["kafka_dlt-exception-cause-fqcn"] == b"ValueError"


def test_key_that_cannot_be_deserialized_has_headers_of_key() -> None:
    """Spring has separate names for the exception of a key; Connect names the converter as the stage."""
    cause = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    headers = dict(headers_of(record(), KeyDeserializationError(exception=cause), 1, "g"))
    assert headers["kafka_dlt-key-exception-fqcn"] == b"confluent_kafka.error.KeyDeserializationError"
    assert b"invalid start byte" in (headers["kafka_dlt-key-exception-message"] or b"")
    assert "kafka_dlt-exception-fqcn" not in headers
    assert headers["__connect.errors.stage"] == b"KEY_CONVERTER"
    headers = dict(headers_of(record(), ValueDeserializationError(exception=cause), 1, "g"))
    assert "kafka_dlt-exception-fqcn" in headers
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"


def test_record_headers_come_first_unchanged() -> None:
    """Names may repeat, and values may be null or not be text; the order is kept."""
    own: list[RawHeader] = [("trace", b"\xff"), ("trace", None), ("", b"")]
    assert headers_of(record(own), failure(), 1, "g")[:3] == tuple(own)


def test_second_failure_appends_origin_and_replaces_exception() -> None:
    """As in Spring, the dead letter of a dead letter keeps its first origin, but only the last exception."""
    first = headers_of(record([("trace", b"1")]), failure("first"), 2, "billing")
    second = headers_of(record(first, topic="orders.dlq", offset=5), failure("second"), 1, "repair")
    names = [name for name, _ in second]
    assert [value for name, value in second if name == "kafka_dlt-original-topic"] == [b"orders", b"orders.dlq"]
    assert [value for name, value in second if name == "__connect.errors.offset"] == [b"8589934592", b"5"]
    assert [value for name, value in second if name == "kafka_dlt-exception-message"] == [b"second"]
    assert (names.count("kafka_deliveryAttempt"), names.count("__connect.errors.exception.stacktrace")) == (1, 1)
    letter = DeadLetter.of(record(second))
    assert (letter.original_topic, letter.original_offset, letter.message) == ("orders.dlq", 5, "second")


def test_class_name_has_module_except_for_builtins() -> None:
    """The class name is the same as in a traceback."""
    assert class_name(ValueError()) == "ValueError"
    assert class_name(failure()) == "tests.processing.test_dead_letter_headers.PaymentError"


def test_text_that_is_not_unicode_is_escaped() -> None:
    """An exception's text may contain lone surrogates, which UTF-8 does not have."""
    headers = dict(headers_of(record(), ValueError("\udcff"), 1, "g"))
    assert headers["kafka_dlt-exception-message"] == rb"\udcff"


# ---- sizes ----------------------------------------------------------------------------------------------------------


def deep_failure(depth: int) -> Exception:
    """Return an exception with a deep stack."""

    def fall(left: int) -> None:
        if left == 0:
            raise PaymentError("at the bottom")
        # Use two lines in turn, because a traceback shows a repeated line only three times.
        if left % 2:
            fall(left - 1)
        else:
            fall(left - 1)

    try:
        fall(depth)
    except PaymentError as error:
        return error
    raise AssertionError


def test_long_stack_is_shortened_from_its_beginning() -> None:
    """The end of a stack has the error, so it is kept; the copy for Connect is dropped first."""
    error = deep_failure(200)
    whole = dict(headers_of(record(), error, 1, "g"))["kafka_dlt-exception-stacktrace"]
    assert whole is not None
    most = 4_000
    found = headers_of(record(), error, 1, "g", most_bytes=most)
    assert size_of(found) + len(b"keyvalue") + RECORD_OVERHEAD <= most
    headers = dict(found)
    assert "__connect.errors.exception.stacktrace" not in headers
    stack = (headers["kafka_dlt-exception-stacktrace"] or b"").decode()
    mark, _, kept = stack.partition("\n")
    assert mark.startswith("[... ")
    assert len(kept) > 1_000
    assert whole.decode().endswith(kept)
    assert headers["kafka_dlt-exception-message"] == b"at the bottom"


def test_long_message_is_shortened_to_its_beginning() -> None:
    """A message may contain a whole document; its beginning has the reason."""
    headers = dict(headers_of(record(), ValueError("wrong: " + "x" * 10_000), 1, "g", most_bytes=2_500))
    assert "kafka_dlt-exception-stacktrace" not in headers
    message = headers["kafka_dlt-exception-message"] or b""
    assert message.startswith(b"wrong: xxx")
    assert message.endswith(b"bytes omitted ...]")


def test_record_without_space_keeps_origin_and_exception() -> None:
    """If necessary, all texts and the headers of Connect are omitted; the origin and the exception's class remain."""
    headers = dict(headers_of(record([("trace", b"1")]), failure(), 1, "g", most_bytes=0))
    assert "trace" in headers
    assert {name for name in headers if name.startswith(("kafka_dlt-exception", "__connect"))} == {
        "kafka_dlt-exception-fqcn",
        "kafka_dlt-exception-cause-fqcn",
    }
    assert headers["kafka_dlt-original-topic"] == b"orders"


@given(
    message=st.text(max_size=3_000),
    value=st.binary(max_size=500),
    most=st.integers(2_000, 12_000),
)
def test_record_fits_whenever_possible(message: str, value: bytes, most: int) -> None:
    """With texts of any length and characters, the record has at most the given size, and its texts are UTF-8."""
    found = headers_of(record(value=value), ValueError(message), 1, "g", most_bytes=most)
    assert size_of(found) + len(value) + len(b"key") + RECORD_OVERHEAD <= most
    for name, text in found:
        if "original-" not in name and name != "kafka_deliveryAttempt":
            (text or b"").decode()


# ---- reading --------------------------------------------------------------------------------------------------------


def test_dead_letter_of_own_headers_has_every_field() -> None:
    """Reading returns the fields that were written."""
    letter = DeadLetter.of(record(headers_of(record(), failure(), 3, "billing"), topic="orders.dlq", offset=7))
    assert (letter.topic, letter.partition, letter.offset, letter.timestamp_ms) == ("orders.dlq", 258, 7, WHEN_MS)
    assert (letter.key, letter.value) == (b"key", b"value")
    assert (letter.original_topic, letter.original_partition, letter.original_offset) == ("orders", 258, 1 << 33)
    assert (letter.original_timestamp_ms, letter.group, letter.attempts) == (WHEN_MS, "billing", 3)
    assert (letter.exception, letter.cause) == (class_name(failure()), "KeyError")
    assert (letter.message, letter.stage, letter.replays) == ("no funds", "TASK_PUT", 0)
    assert letter.stack is not None
    assert letter.stack.startswith("Traceback")


def test_dead_letter_of_spring_is_read() -> None:
    """A dead letter of Spring Kafka has no headers of Connect."""
    headers: list[RawHeader] = [
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
        ("kafka_dlt-exception-message", b"Listener failed; broken"),
        ("kafka_dlt-exception-stacktrace", b"org.springframework...\n\tat com.example.Listener"),
        ("kafka_dlt-original-topic", b"payments"),
        ("kafka_dlt-original-partition", struct.pack(">i", 2)),
        ("kafka_dlt-original-offset", struct.pack(">q", 41)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", WHEN_MS)),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", b"pay"),
        ("kafka_deliveryAttempt", struct.pack(">i", 10)),
    ]
    letter = DeadLetter.of(record(headers))
    assert (letter.original_topic, letter.original_partition, letter.original_offset) == ("payments", 2, 41)
    assert (letter.cause, letter.group, letter.attempts) == ("java.lang.IllegalStateException", "pay", 10)
    assert letter.original_headers() == ()


def test_dead_letter_of_connect_is_read() -> None:
    """A dead letter of Kafka Connect has text values; a missing message is null."""
    headers: list[RawHeader] = [
        ("own", b"1"),
        ("__connect.errors.topic", b"payments"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.offset", b"41"),
        ("__connect.errors.connector.name", b"to-lake"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
        ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
        ("__connect.errors.exception.message", None),
        ("__connect.errors.exception.stacktrace", b"org.apache..."),
    ]
    letter = DeadLetter.of(record(headers))
    assert (letter.original_topic, letter.original_partition, letter.original_offset) == ("payments", 2, 41)
    assert (letter.group, letter.stage, letter.message) == ("to-lake", "VALUE_CONVERTER", None)
    assert letter.exception == "org.apache.kafka.connect.errors.DataException"
    assert letter.original_headers() == (("own", b"1"),)


names = st.sampled_from([name for name, _ in headers_of(record(), failure(), 1, "g")] + ["consumer-membership-replays"])


@given(st.lists(st.tuples(names | st.text(), st.none() | st.binary())))
@example([("kafka_dlt-original-partition", b"\xff" * 4), ("consumer-membership-replays", b"\xb2")])
@example([("__connect.errors.partition", b"9" * 5_000)])
def test_any_headers_are_read(headers: list[RawHeader]) -> None:
    """A dead-letter topic may contain anything; a damaged header counts as absent and never raises."""
    letter = DeadLetter.of(record(headers))
    assert letter.headers == tuple(headers)
    assert letter.replays >= 0
    assert (letter.original_partition or 0) >= 0


def test_replayed_headers_drop_failure_and_count_replays() -> None:
    """Only the number of replays is added; it grows if the record fails and is replayed again."""
    own: list[RawHeader] = [("trace", b"1")]
    letter = DeadLetter.of(record(headers_of(record(own), failure(), 3, "billing")))
    replayed = letter.replayed_headers()
    assert replayed == (("trace", b"1"), ("consumer-membership-replays", b"1"))
    again = DeadLetter.of(record(headers_of(record(replayed), failure(), 3, "billing")))
    assert again.replays == 1
    assert again.replayed_headers() == (("trace", b"1"), ("consumer-membership-replays", b"2"))


def test_identity_is_that_of_the_record() -> None:
    """Dead letters of one record are equal for any attempt and group; other records differ, even at the same offset."""

    def identity(error: Exception, attempts: int, group: str, value: bytes = b"value") -> bytes | None:
        original = record(value=value)
        return DeadLetter.of(
            record(headers_of(original, error, attempts, group), value=value, offset=attempts)
        ).identity

    first = identity(ValueError("a"), 1, "billing")
    assert first is not None
    assert identity(KeyError("b"), 2, "shipping") == first
    assert identity(ValueError("a"), 1, "billing", b"other") != first
    assert DeadLetter.of(record()).identity is None
