"""Where records go that could not be processed: a dead-letter topic, or a function.

A record counts as finished only after its dead letter is stored, so `send` returns when the brokers have acknowledged
it, and raises if they did not. A dead letter may be written twice, if the process ends between the acknowledgement and
the commit; with transactions it is an output of the record's transaction (`TopicDeadLetters.to_output`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from threading import Condition
from typing import TYPE_CHECKING, Protocol, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from consumer_membership.errors import ConfigurationError, DeadLetterError
from consumer_membership.processing.dead_letter_headers import headers_of
from consumer_membership.processing.outputs import ClientConfig, OutputRecord, enqueue
from consumer_membership.processing.settings import DeadLetterFunction

if TYPE_CHECKING:  # imported for types only: the import of confluent_kafka.admin takes time
    from confluent_kafka.admin import AclOperation, AdminClient

_log = partial(logging.getLogger, "consumer_membership.processing")

_KEY = "dead_letter"
#: How long the check waits for the brokers.
_CHECK_S = 10.0
#: How long a broker may not know a topic that was just created; a missing topic is reported after this time.
_NEW_TOPIC_S = 3.0
_NEW_TOPIC_CHECK_S = 0.1
#: The interval at which a waiting thread checks the delivery reports.
_REPORTS_S = 0.1
#: The assumed max.message.bytes of a topic whose configuration was not read: Kafka's default.
_MOST_BYTES = 1_048_588
#: librdkafka's greatest message.max.bytes. It counts the bytes before compression, so only the brokers can decide.
NO_CLIENT_LIMIT = 1_000_000_000
_PRODUCER: ClientConfig = {
    "enable.idempotence": True,
    # Java's default; librdkafka's is 5 minutes.
    "delivery.timeout.ms": 120_000,
    "message.max.bytes": NO_CLIENT_LIMIT,
    # Stack traces compress well, and the record may have been accepted only in compressed form.
    "compression.type": "lz4",
    # Java's default.
    "partitioner": "murmur2_random",
    # A caller waits for each record.
    "linger.ms": 0,
    # The check has found the topic, so it is not a new one. The default is 30 s.
    "topic.metadata.propagation.max.ms": 5_000,
}
#: The size limit that leaves out every text of the exception but its class.
_LEAST_BYTES = 0
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
_NOT_PERMITTED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE})


class DeadLetters(Protocol):
    """Where a `Processor` puts the records that it gives up."""

    def check(self) -> None:
        """Raise ConfigurationError if it is known that records cannot be put there."""

    def send(self, record: Message, error: BaseException, attempts: int, group: str) -> None:
        """Store a record, and return when it is stored; raise if it cannot be."""

    def close(self) -> None:
        """Release all resources."""


# ---- a topic ---------------------------------------------------------------------------------------------------------


class TopicDeadLetters:
    """Writes dead letters to a topic with an idempotent producer.

    Key and value are unchanged, and the headers describe the failure, with the original timestamp
    (`dead_letter_headers`). The partition is that of Java's default partitioner, so the dead letters of a key stay in
    order. A record that would exceed the topic's `max.message.bytes` gets a shorter stack. Any number of threads may
    call `send` at the same time.

    The producer starts with the first dead letter.

    Args:
        topic: The topic.
        client_config: librdkafka's keys for the connection to the cluster (`ConsumerConfig.cluster_config`).
    """

    def __init__(self, topic: str, client_config: ClientConfig) -> None:
        self.topic = topic
        self._config = dict(client_config)
        self._most_bytes = _MOST_BYTES
        self._producer: Producer | None = None
        #: Guards the attributes below and `_producer`; notified after each poll.
        self._condition = Condition()
        self._is_polling = False
        self._is_closed = False

    def check(self) -> None:
        """Check that the topic exists and may be written, and read its greatest record size.

        A topic that was just created is unknown to some brokers for a moment, so a missing one is reported after 3 s.
        If no broker responds, a warning is logged and nothing is raised: the consumer waits for the brokers as well.

        Raises:
            ConfigurationError: the topic does not exist, may not be written, or does not keep every record.
        """
        # Imported here, because it is slow to import and needed once.
        from confluent_kafka.admin import AclOperation, AdminClient  # noqa: PLC0415

        config = cast("dict[str, str | int | float | bool]", self._config)
        admin = AdminClient(config, logger=_log())
        attempts = Retrying(
            retry=retry_if_exception(_is_unknown_topic),
            wait=wait_fixed(_NEW_TOPIC_CHECK_S),
            stop=stop_after_delay(_NEW_TOPIC_S),
            before_sleep=lambda _: _log().debug("Dead-letter topic %s is unknown to a broker", self.topic),
            reraise=True,
        )
        try:
            permitted = attempts(self._permitted, admin)
        except KafkaException as failed:
            self._refuse(failed.args[0])
            return
        if permitted is not None and AclOperation.WRITE not in permitted:
            raise ConfigurationError(_KEY, self.topic, "this client may not write to the topic; grant WRITE on it")
        self._read_settings(admin)

    def _permitted(self, admin: AdminClient) -> Sequence[AclOperation] | None:
        """Return what this client may do with the topic (None: not known); raise KafkaException if no broker tells."""
        topics = TopicCollection([self.topic])
        futures = admin.describe_topics(topics, include_authorized_operations=True, request_timeout=_CHECK_S)
        permitted: Sequence[AclOperation] | None = futures[self.topic].result().authorized_operations
        return permitted

    def _refuse(self, error: KafkaError) -> None:
        if error.code() in _NO_TOPIC:
            raise ConfigurationError(
                _KEY, self.topic, f"the brokers responded: {error.str()}; create the topic, or correct the name"
            )
        if error.code() in _NOT_PERMITTED:
            raise ConfigurationError(
                _KEY, self.topic, f"the brokers responded: {error.str()}; grant DESCRIBE and WRITE on the topic"
            )
        _log().warning("Dead-letter topic %s could not be checked: %s", self.topic, error.str())

    def _read_settings(self, admin: AdminClient) -> None:
        """Read the topic's configuration, if this client may."""
        from confluent_kafka.admin import ConfigResource, ResourceType  # noqa: PLC0415 - as above

        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        try:
            entries = admin.describe_configs([resource], request_timeout=_CHECK_S)[resource].result()
        except KafkaException as failed:
            _log().debug("The configuration of topic %s could not be read: %s", self.topic, failed.args[0].str())
            return
        if "cleanup.policy" in entries and "compact" in (policy := str(entries["cleanup.policy"].value)):
            remedy = (
                f"the topic has cleanup.policy={policy}, which keeps only the last dead letter of a key and refuses "
                "records without a key; set cleanup.policy=delete"
            )
            raise ConfigurationError(_KEY, self.topic, remedy)
        if "max.message.bytes" in entries:
            self._most_bytes = int(str(entries["max.message.bytes"].value))

    def to_output(self, record: Message, error: BaseException, attempts: int, group: str) -> OutputRecord:
        """Return the dead letter as a record to write; `record` must have its original key and value."""
        return self._output(record, error, attempts, group, self._most_bytes)

    def _output(
        self, record: Message, error: BaseException, attempts: int, group: str, most_bytes: int
    ) -> OutputRecord:
        # The timestamp is the present time, as in Spring. Retention counts from the timestamp, so the dead letter of an
        # old record might otherwise be deleted too early.
        return OutputRecord(
            topic=self.topic,
            value=record.value(),
            key=record.key(),
            headers=headers_of(record, error, attempts, group, most_bytes=most_bytes),
        )

    def send(self, record: Message, error: BaseException, attempts: int, group: str) -> None:
        """Write a dead letter and return when the brokers have acknowledged it.

        The call waits up to 2 minutes while the brokers do not respond.

        Raises:
            DeadLetterError: the dead letter was not stored.
        """
        output = self.to_output(record, error, attempts, group)
        has_new_producer = False
        while (refusal := self._deliver(output)) is not None:
            smaller = self._output(record, error, attempts, group, _LEAST_BYTES)
            if refusal.code() in _TOO_LARGE and smaller != output:
                output = smaller  # the topic's limit was lowered after the check, or could not be read
            elif _is_fatal(refusal) and not has_new_producer:
                has_new_producer = True
            else:
                raise self._failure(record, refusal)

    def _failure(self, record: Message, error: KafkaError) -> DeadLetterError:
        remedy = ""
        if error.code() in _TOO_LARGE:
            remedy = (
                "; set max.message.bytes of the dead-letter topic a few kB above that of the topic, for the headers"
            )
        return DeadLetterError(
            f"{record.topic()}[{record.partition()}] offset {record.offset()} was not written to dead-letter topic "
            f"{self.topic!r}: {error.str()}{remedy}"
        )

    # ---- the producer ----

    def _deliver(self, output: OutputRecord) -> KafkaError | None:
        """Write a record, and return None when the brokers have acknowledged it, or the error."""
        producer, delivery = self._started(), _Delivery()
        try:
            enqueue(producer, output, delivery.report)
        except KafkaException as refused:
            delivery.report(refused.args[0], None)
        while not delivery.is_done:
            self._serve_reports(producer)
        if delivery.error is not None and _is_fatal(delivery.error):
            self._abandon(producer)
        return delivery.error

    def _started(self) -> Producer:
        with self._condition:
            if self._is_closed:
                raise DeadLetterError(f"dead-letter topic {self.topic!r} is closed; the record was not written")
            if self._producer is None:
                self._producer = Producer({**self._config, **_PRODUCER}, logger=_log())
            return self._producer

    def _serve_reports(self, producer: Producer) -> None:
        """Poll, or wait until another thread has polled: reports of all threads arrive at the thread that polls."""
        with self._condition:
            if self._is_polling:
                self._condition.wait(_REPORTS_S)
                return
            self._is_polling = True
        try:
            producer.poll(_REPORTS_S)
        finally:
            with self._condition:
                self._is_polling = False
                self._condition.notify_all()

    def _abandon(self, failed: Producer) -> None:
        """Forget a producer that cannot write any longer; the next dead letter starts another one."""
        with self._condition:
            if self._producer is failed:
                self._producer = None

    def close(self) -> None:
        """Stop the producer; a `send` of another thread that still waits raises DeadLetterError. Idempotent."""
        with self._condition:
            self._is_closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(_REPORTS_S)


class _Delivery:
    """The delivery of one record."""

    __slots__ = ("error", "is_done")

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self.is_done = False

    def report(self, error: KafkaError | None, _: Message | None) -> None:
        """Receive librdkafka's delivery report."""
        self.error = error
        self.is_done = True


def _is_unknown_topic(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and bool(error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART)


def _is_fatal(error: KafkaError) -> bool:
    return error.fatal() or error.code() == KafkaError._FATAL


# ---- a function ------------------------------------------------------------------------------------------------------


class FunctionDeadLetters:
    """Calls a function for each dead letter; the record is finished when the function returns.

    The function runs on the worker thread of the handler, and possibly on several threads at the same time. If it
    raises, the dead letter is not stored, and the processor stops as without a target.
    """

    def __init__(self, function: DeadLetterFunction) -> None:
        self._function = function

    def check(self) -> None:
        """Do nothing: the function's parameters are checked with the options of the processor."""

    def send(self, record: Message, error: BaseException, attempts: int, group: str) -> None:  # noqa: ARG002
        """Call the function; its exception propagates."""
        self._function(record, error, attempts)

    def close(self) -> None:
        """Do nothing."""
