"""A transactional producer, and when it has to be replaced before its next transaction.

A request that its client has given up, or sent again over another connection, may still get to the broker, much later.
What it says of a transaction (its end, offsets in it) is true of the one that it was sent for. Kafka's protocol, before
KIP-890, does not tell that one from the next: both have the producer's id and epoch, so a late EndTxn(commit) ends
whatever transaction it finds, in the middle and for good. librdkafka speaks that protocol with all brokers, and sends
such requests again by itself: `commit_transaction` returns as if nothing had happened.

The start of another producer with the same transactional id raises the epoch, and brokers refuse the late request. So a
producer is replaced when any request of it may be late. librdkafka tells that in its log alone: of each connection that
has failed, and of each request that was not answered in time, before it sends anything again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_result,
    stop_after_delay,
    wait_fixed,
    wait_random_exponential,
)

_log = logging.getLogger("consumer_membership.spark")

#: A value of librdkafka's configuration.
Setting: TypeAlias = str | int | float | bool
Header: TypeAlias = tuple[str, bytes | str | None]

#: Each call of a transaction, and each repetition of it while librdkafka says that it can be repeated.
CALL_S, CALLS_S = 30.0, 90.0
FIRST_RETRY_PAUSE_S, LONGEST_RETRY_PAUSE_S = 0.1, 2.0
#: While librdkafka's queue is full.
_QUEUE_S = 0.1

#: How long a topic that no broker knows is looked for: brokers with auto.create.topics.enable create it meanwhile.
TOPIC_S, _TOPIC_PAUSE_S = 5.0, 0.2
_MAY_COME = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
#: What becomes of the records of a transaction that is aborted, for whatever reason.
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})

#: librdkafka's words: RD_KAFKA_PARTITION_UA, and no time.
_ANY_PARTITION, _NOW = -1, 0

#: librdkafka's facilities (rdkafka_broker.c): a connection failed; requests were not answered in time.
_CONNECTION_FAILED, _REQUESTS_TIMED_OUT = "FAIL", "REQTMOUT"
#: A connection that was never there has carried no request.
_NEVER_THERE = ("in state TRY_CONNECT)", "in state CONNECT)")
#: syslog's level for what is no failure (LOG_INFO), at which librdkafka tells of closed connections.
_INFO = 6
#: The level of Python's logging from which on lines are shown, by librdkafka's `log_level`, as confluent-kafka maps it.
_SHOWN_FROM = {2: logging.CRITICAL, 3: logging.ERROR, 4: logging.WARNING, 5: logging.INFO, 6: logging.INFO}


class ConnectionFailures:
    """librdkafka's logger of one producer: notes whether a request may be late, and passes the lines on.

    They come when the producer is polled. `shown_from` is a level of Python's logging.
    """

    def __init__(self, shown_from: int = logging.INFO) -> None:
        self._shown_from = shown_from
        self.has_failures = False

    def log(self, level: int, text: str, *words: str) -> None:
        """As `logging.Logger.log`; confluent-kafka's words are the facility, the client's name, and the line."""
        facility, _, line = words
        if facility == _REQUESTS_TIMED_OUT or (facility == _CONNECTION_FAILED and not line.endswith(_NEVER_THERE)):
            self.has_failures = True
        if level >= self._shown_from:
            _log.log(level, text, *words)


class DeliveryFailures:
    """librdkafka's delivery reports of one producer; `first` says which record of a transaction failed, and why."""

    def __init__(self) -> None:
        self.first: str | None = None

    def note(self, error: KafkaError | None, message: Message) -> None:
        """Take in a report."""
        if self.first is None and error is not None and error.code() not in _PURGED:
            self.first = f"a record for topic {message.topic()!r} was not delivered: {error.str()}"


class TransactionalProducer:
    """A producer from its start to its replacement; its calls insist as long as librdkafka says that they may.

    Args:
        config: as `confluent_kafka.Producer` takes it, with a `transactional.id`. Its `log_level` goes for what is
            shown; `log.connection.close` is always on, and shown.
    """

    def __init__(self, config: Mapping[str, Setting]) -> None:
        level = int(config.get("log_level", _INFO))
        self._failures = ConnectionFailures(_SHOWN_FROM.get(max(level, 2), logging.DEBUG))
        told = {"log_level": max(level, _INFO), "log.connection.close": True}
        # An object of its own: a producer that refers to itself would outlive its last reference.
        self._deliveries = DeliveryFailures()
        reports = {"on_delivery": self._deliveries.note, "delivery.report.only.error": True}
        self._producer = Producer({**config, **told, **reports}, logger=self._failures)
        self._has_repeated = False

    @property
    def may_have_late_requests(self) -> bool:
        """Whether a request may still be on its way that nobody waits for: let this producer begin nothing any more."""
        # The lines that librdkafka wrote before it sent something again stand before whatever it has answered since.
        self._producer.poll(0)
        return self._has_repeated or self._failures.has_failures

    @property
    def undelivered(self) -> str | None:
        """Which record of the transaction was not delivered first, and why; None: no report of one has come."""
        with suppress(KafkaException):  # of a producer that has failed permanently; each call raises that
            self._producer.poll(0)
        return self._deliveries.first

    def topic_error(self, topic: str, patience_s: float) -> KafkaError | None:
        """Why no record can be written to a topic; None: the brokers know it, or none answers.

        `patience_s`: how long it is waited for while no broker knows it.
        """

        def ask() -> KafkaError | None:
            try:
                error: KafkaError | None = self._producer.list_topics(topic, TOPIC_S).topics[topic].error
            except KafkaException as unanswered:
                _log.debug("Topic %s is not looked up: %s", topic, unanswered)
                return None
            return error

        attempts = Retrying(
            retry=retry_if_result(lambda error: error is not None and error.code() in _MAY_COME),
            stop=stop_after_delay(patience_s),
            wait=wait_fixed(_TOPIC_PAUSE_S),
            retry_error_callback=lambda state: None if state.outcome is None else state.outcome.result(),
        )
        found: KafkaError | None = attempts(ask)
        return found

    # ---- the calls; each raises KafkaException ----

    def start(self) -> None:
        """End what an earlier producer of the transactional id has left, and fence it."""
        self._insist(lambda: self._producer.init_transactions(CALL_S))

    def begin(self) -> None:
        """Begin a transaction."""
        self._deliveries.first = None
        self._producer.begin_transaction()

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        *,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record; waits while the queue is full."""
        where = _ANY_PARTITION if partition is None else partition
        when = _NOW if timestamp_ms is None else timestamp_ms
        while True:
            try:
                self._producer.produce(topic, value, key, where, headers=list(headers), timestamp=when)
            except BufferError:
                # The acknowledgements that are waiting make room.
                self._producer.poll(_QUEUE_S)
            else:
                return

    def send_offsets(self, offsets: list[TopicPartition], membership: bytes) -> None:
        """Add offsets of the group that `membership` (`consumer_group_metadata()`) is of."""
        self._insist(lambda: self._producer.send_offsets_to_transaction(offsets, membership, CALL_S))

    def commit(self) -> None:
        """Commit; whether it was is not known where this raises."""
        self._insist(lambda: self._producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        """Abort."""
        self._insist(lambda: self._producer.abort_transaction(CALL_S))

    def close(self) -> None:
        """Release it; outside a transaction only, for in the middle of one that would wait without end."""
        with suppress(KafkaException):  # of one that was fenced
            self._producer.close()

    def _insist(self, call: Callable[[], None]) -> None:
        """Call, again as long as librdkafka says that it can be repeated."""
        Retrying(
            retry=retry_if_exception(_can_be_repeated),
            stop=stop_after_delay(CALLS_S),
            wait=wait_random_exponential(multiplier=FIRST_RETRY_PAUSE_S, max=LONGEST_RETRY_PAUSE_S),
            before_sleep=self._repeated,
            reraise=True,
        )(call)

    def _repeated(self, _: RetryCallState) -> None:
        self._has_repeated = True


def _can_be_repeated(raised: BaseException) -> bool:
    return isinstance(raised, KafkaException) and bool(raised.args[0].retriable())
