"""The records that handlers return, and the producer that writes them without transactions.

A handler returns None, one `OutputRecord` or an iterable of them. `outputs_of` checks the returned value where the
handler was called, so that a wrong value is an error of that call. With `transactional_id`, `Transactions` writes the
outputs together with the offsets; otherwise `OutputProducer` writes them at least once: an offset is committed only
after the brokers have acknowledged the outputs of its record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from consumer_membership.errors import ArgumentTypeError, OutputError

#: The key or the value of a record; `str` is sent as UTF-8.
Data: TypeAlias = bytes | str | None
Header: TypeAlias = tuple[str, Data]

#: The configuration of a librdkafka client.
ClientConfig: TypeAlias = Mapping[str, object]

#: What `Data` permits.
_DATA = (bytes, str, type(None))
#: A callback of a producer, called with the error of a record, or None.
DeliveryReport: TypeAlias = Callable[[KafkaError | None, Message], None]

#: librdkafka's default of `message.max.bytes`.
DEFAULT_MAX_BYTES = 1_000_000
#: How long to wait for an unknown topic: brokers with auto.create.topics.enable create it in the meantime.
TOPIC_S, _TOPIC_PAUSE_S = 5.0, 0.2
_MAY_COME = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
#: librdkafka's RD_KAFKA_PARTITION_UA, and its value for the present time.
_ANY_PARTITION, _NOW = -1, 0
#: The interval of retries while librdkafka's queue is full.
_QUEUE_S = 0.1

_log = partial(logging.getLogger, "consumer_membership.processing")


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """A record for Kafka, returned by a handler.

    Attributes:
        topic: The topic.
        value: The value; `str` is sent as UTF-8, None is a tombstone.
        key: The key.
        headers: Pairs of name and value.
        partition: The partition; None: the producer's partitioner chooses it.
        timestamp_ms: The timestamp in milliseconds since 1970; None: the present time.

    Raises:
        ArgumentTypeError: an attribute has the wrong type; the message has its name and value.
    """

    topic: str
    value: Data
    key: Data = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        """Check the types here: librdkafka would reject the record later, outside the handler."""
        topic: object = self.topic
        if not isinstance(topic, str) or not topic:
            raise ArgumentTypeError("OutputRecord.topic", topic, "must be the name of a topic")
        data: object
        for name, data in (("value", self.value), ("key", self.key)):
            if not isinstance(data, _DATA):
                raise ArgumentTypeError(f"OutputRecord.{name}", data, "must be bytes, str or None; serialize it first")
        for name, number in (("partition", self.partition), ("timestamp_ms", self.timestamp_ms)):
            if number is not None and (type(number) is not int or number < 0):
                raise ArgumentTypeError(f"OutputRecord.{name}", number, "must be an int of at least 0, or None")
        if self.headers != ():
            _check_headers(self.headers)

    @property
    def size(self) -> int:
        """The bytes of key and value, which librdkafka compares with `message.max.bytes`."""
        return _bytes(self.key) + _bytes(self.value)


def outputs_of(returned: object, handler: str, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[OutputRecord, ...]:
    """Return the outputs in a handler's return value; `handler` is its name for messages.

    Raises:
        ArgumentTypeError: the value is not None, an `OutputRecord` or an iterable of them. Each record of this handler
            would fail, so the error ends the processor.
        OutputError: a record is larger than `max_bytes` (`message.max.bytes`). Only this record fails.
    """
    if returned is None:
        return ()
    if isinstance(returned, OutputRecord):
        outputs: tuple[object, ...] = (returned,)
    elif isinstance(returned, Iterable) and not isinstance(returned, str | bytes | bytearray | Mapping):
        outputs = tuple(returned)
    else:
        raise _wrong(handler, returned, "a value")
    checked: list[OutputRecord] = []
    for output in outputs:
        if not isinstance(output, OutputRecord):
            raise _wrong(handler, output, f"a {type(returned).__qualname__} with a value")
        if output.size > max_bytes:
            raise OutputError(
                f"handler {handler} returned a record for topic {output.topic!r} with {output.size} bytes, more than"
                f" message.max.bytes={max_bytes}; return smaller records, or raise the limit of producer and topic"
            )
        checked.append(output)
    return tuple(checked)


class DeliveryFailures:
    """Delivery reports of a producer: keeps the first record that was not delivered, until `clear`."""

    def __init__(self, ignored: frozenset[int] = frozenset()) -> None:
        self._ignored = ignored
        #: The error of the first record that was not delivered, and its topic.
        self.error: KafkaError | None = None
        self.topic: str | None = None

    @property
    def first(self) -> str | None:
        """The first failed record with its error as text; None if every reported record was delivered."""
        if self.error is None:
            return None
        return f"a record for topic {self.topic!r} was not delivered: {self.error.str()}"

    def note(self, error: KafkaError | None, message: Message) -> None:
        """Receive a delivery report."""
        if self.error is None and error is not None and error.code() not in self._ignored:
            self.error, self.topic = error, message.topic()

    def fail(self, error: KafkaError, topic: str) -> None:
        """Note a record that was rejected before it was sent."""
        if self.error is None:
            self.error, self.topic = error, topic

    def clear(self) -> None:
        """Forget the failed record."""
        self.error = self.topic = None


class OutputProducer:
    """Writes outputs without transactions, with an idempotent producer: at least once, in order for each partition.

    `send` does not wait for the brokers; `flush` does. The caller commits the offset of a record only after a `flush`
    that returned True and followed the record's `send`. The producer starts with the first record.

    Args:
        client_config: The keys of the connection to the brokers, and any producer key.
    """

    def __init__(self, client_config: ClientConfig) -> None:
        self._failures = DeliveryFailures()
        reports = {"on_delivery": self._failures.note, "delivery.report.only.error": True}
        # `acks=all` and the order of retries come with idempotence.
        self._config: ClientConfig = {**client_config, "enable.idempotence": True, **reports}
        self._producer: Producer | None = None
        self._known_topics: set[str] = set()

    @property
    def has_started(self) -> bool:
        """Whether there were records to send."""
        return self._producer is not None

    def send(self, outputs: Iterable[OutputRecord]) -> None:
        """Queue records. It waits for the first look-up of each topic, and while librdkafka's queue is full.

        Raises:
            OutputError: a topic does not exist, or librdkafka rejected a record; earlier records may be written.
        """
        for output in outputs:
            error = self._error_of(output)
            if error is not None:
                self._failures.fail(error, output.topic)
                raise refused_output(output.topic, error)

    def _error_of(self, output: OutputRecord) -> KafkaError | None:
        """Queue a record, and return why it was rejected; None if it was not."""
        if self._producer is None:
            self._producer = Producer(dict(self._config), logger=_log())
        if output.topic not in self._known_topics:
            error = topic_error(self._producer, output.topic, TOPIC_S, _log())
            if error is not None:
                return error
            self._known_topics.add(output.topic)
        try:
            enqueue(self._producer, output)
        except KafkaException as refused:
            rejected: KafkaError = refused.args[0]
            return rejected
        return None

    def flush(self, timeout_s: float) -> bool:
        """Return whether the brokers have acknowledged all records within `timeout_s`; call it again if they have not.

        Raises:
            OutputError: a record was rejected or not delivered, now or earlier. The offset of its source must not be
                committed.
        """
        if self._producer is None:
            return True
        unacknowledged = self._producer.flush(timeout_s)
        if self._failures.error is not None:
            raise refused_output(self._failures.topic, self._failures.error)
        return unacknowledged == 0

    def close(self) -> None:
        """Drop unacknowledged records and release the producer. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(_QUEUE_S)


def enqueue(producer: Producer, output: OutputRecord, on_delivery: DeliveryReport | None = None) -> None:
    """Queue a record; wait while librdkafka's queue is full. `on_delivery` replaces the callback of the producer.

    Raises:
        KafkaException: librdkafka rejected the record.
    """
    where = _ANY_PARTITION if output.partition is None else output.partition
    when = _NOW if output.timestamp_ms is None else output.timestamp_ms
    while True:
        try:
            producer.produce(
                output.topic,
                output.value,
                output.key,
                where,
                on_delivery,
                headers=list(output.headers),
                timestamp=when,
            )
        except BufferError:
            # Serving the waiting acknowledgements frees space in the queue.
            producer.poll(_QUEUE_S)
        else:
            return


def topic_error(producer: Producer, topic: str, patience_s: float, log: logging.Logger) -> KafkaError | None:
    """Return the error of a topic that cannot be written; None if it exists, or if no broker responds.

    librdkafka itself would wait half a minute for an unknown topic, and then report records that were not delivered.
    `patience_s`: how long to wait for a topic that does not exist yet.
    """

    def request() -> KafkaError | None:
        try:
            error: KafkaError | None = producer.list_topics(topic, TOPIC_S).topics[topic].error
        except KafkaException as unanswered:
            log.debug("Topic %s could not be looked up: %s", topic, unanswered)
            return None
        return error

    attempts = Retrying(
        retry=retry_if_result(lambda error: error is not None and error.code() in _MAY_COME),
        stop=stop_after_delay(patience_s),
        wait=wait_fixed(_TOPIC_PAUSE_S),
        retry_error_callback=lambda state: None if state.outcome is None else state.outcome.result(),
    )
    found: KafkaError | None = attempts(request)
    return found


def refused_output(topic: str | None, error: KafkaError) -> OutputError:
    """Return the exception for a record that librdkafka or the brokers rejected."""
    return OutputError(f"a record for topic {topic!r} cannot be written: {error.str()}")


def _check_headers(headers: Iterable[object]) -> None:
    for header in headers:
        match header:
            case (str(), bytes() | str() | None):
                pass
            case _:
                raise ArgumentTypeError(
                    "OutputRecord.headers", header, "must be a pair of a name and a value of bytes, str or None"
                )


def _bytes(data: Data) -> int:
    if data is None:
        return 0
    return len(data) if isinstance(data, bytes) else len(data.encode())


def _wrong(handler: str, value: object, what: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        handler,
        value,
        f"the handler returned {what} of type {type(value).__qualname__}; return None, an OutputRecord, or an iterable"
        " of OutputRecords",
    )
