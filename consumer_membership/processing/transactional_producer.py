"""A transactional producer that detects when it must be replaced before its next transaction.

A request that its client has given up, or repeated over another connection, may still reach the broker, much later. It
belongs to one transaction (its end, its offsets), but before KIP-890 the protocol does not distinguish this transaction
from the next one, which has the same producer id and epoch. So a late EndTxn(commit) permanently commits the next
transaction in the middle. librdkafka uses that protocol with all brokers, and repeats such requests automatically:
`commit_transaction` returns without an error.

The start of another producer with the same transactional id raises the epoch, and brokers then refuse the late request.
So a producer is replaced if any of its requests may be late. librdkafka reports this only in its log: for each failed
connection and each request without a response in time, before it repeats a request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from consumer_membership.processing.outputs import ClientConfig, DeliveryFailures, OutputRecord, enqueue, topic_error

#: The default timeout of one call of a transaction, and of all its repetitions while the error is retriable.
CALL_S, CALLS_S = 30.0, 90.0
FIRST_RETRY_PAUSE_S, LONGEST_RETRY_PAUSE_S = 0.1, 2.0

#: The errors of the records of an aborted transaction.
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})

#: librdkafka's log facilities (rdkafka_broker.c): a connection failed; requests had no response in time.
_CONNECTION_FAILED, _REQUESTS_TIMED_OUT = "FAIL", "REQTMOUT"
#: The end of the line for a connection that was never established, and so carried no request.
_NEVER_THERE = ("in state TRY_CONNECT)", "in state CONNECT)")
#: syslog's LOG_INFO, the level at which librdkafka reports closed connections.
_INFO = 6
#: The lowest level of Python's logging that is shown, by librdkafka's `log_level`, as confluent-kafka maps it.
_SHOWN_FROM = {2: logging.CRITICAL, 3: logging.ERROR, 4: logging.WARNING, 5: logging.INFO, 6: logging.INFO}


class ConnectionFailures:
    """librdkafka's logger of one producer: notes whether a request may be late, and forwards the lines.

    Lines arrive when the producer is polled. `shown_from` is the lowest level of Python's logging that is forwarded.
    """

    def __init__(self, log: logging.Logger, shown_from: int = logging.INFO) -> None:
        self._log = log
        self._shown_from = shown_from
        self.has_failures = False

    def log(self, level: int, text: str, *args: str) -> None:
        """Receive a line, like `logging.Logger.log`; confluent-kafka's arguments are facility, client name and line."""
        facility, _, line = args
        if facility == _REQUESTS_TIMED_OUT or (facility == _CONNECTION_FAILED and not line.endswith(_NEVER_THERE)):
            self.has_failures = True
        if level >= self._shown_from:
            self._log.log(level, text, *args)


class TransactionalProducer:
    """A producer from its start to its replacement; its calls are repeated while the error is retriable.

    Args:
        config: The configuration of a `confluent_kafka.Producer`, with a `transactional.id`. `log_level` limits only
            the lines that are forwarded; `log.connection.close` is always on.
        log: The logger that receives librdkafka's lines.
        patience_s: The timeout of a call with its repetitions; None: `CALL_S` for a call, `CALLS_S` with repetitions.
    """

    def __init__(self, config: ClientConfig, log: logging.Logger, patience_s: float | None = None) -> None:
        self._log = log
        self._call_s = CALL_S if patience_s is None else patience_s
        self._calls_s = CALLS_S if patience_s is None else patience_s
        level = int(str(config.get("log_level", _INFO)))
        self._failures = ConnectionFailures(log, _SHOWN_FROM.get(max(level, 2), logging.DEBUG))
        logs = {"log_level": max(level, _INFO), "log.connection.close": True}
        # A separate object: with a reference to itself, the producer would not be freed with its last reference.
        self._deliveries = DeliveryFailures(_PURGED)
        reports = {"on_delivery": self._deliveries.note, "delivery.report.only.error": True}
        self._producer = Producer({**config, **logs, **reports}, logger=self._failures)
        self._has_repeated = False

    @property
    def may_have_late_requests(self) -> bool:
        """Whether a late request may still reach a broker; then this producer must not begin another transaction."""
        # librdkafka queues the line about a failure before it repeats the request, and so before the call returns.
        self._producer.poll(0)
        return self._has_repeated or self._failures.has_failures

    @property
    def failures(self) -> DeliveryFailures:
        """The delivery reports of the transaction: its first record that was not delivered."""
        with suppress(KafkaException):  # a producer that has failed permanently raises at each call
            self._producer.poll(0)
        return self._deliveries

    def topic_error(self, topic: str, patience_s: float) -> KafkaError | None:
        """Return the error of a topic that cannot be written (`outputs.topic_error`)."""
        return topic_error(self._producer, topic, patience_s, self._log)

    # ---- the calls; each raises KafkaException ----

    def start(self) -> None:
        """Fence earlier producers with this transactional id, and end their transaction."""
        self._insist(lambda: self._producer.init_transactions(self._call_s))

    def begin(self) -> None:
        """Begin a transaction."""
        self._deliveries.clear()
        self._producer.begin_transaction()

    def produce(self, output: OutputRecord) -> None:
        """Add a record; waits while the queue is full."""
        enqueue(self._producer, output)

    def send_offsets(self, offsets: list[TopicPartition], membership: bytes) -> None:
        """Add offsets of a group; `membership` is the result of `consumer_group_metadata()`."""
        self._insist(lambda: self._producer.send_offsets_to_transaction(offsets, membership, self._call_s))

    def commit(self) -> None:
        """Commit the transaction; after an exception, it is unknown whether it was committed."""
        self._insist(lambda: self._producer.commit_transaction(self._call_s))

    def abort(self) -> None:
        """Abort the transaction."""
        self._insist(lambda: self._producer.abort_transaction(self._call_s))

    def close(self) -> None:
        """Close the producer; only outside a transaction, where it does not wait for the brokers forever."""
        with suppress(KafkaException):  # the error of a fenced producer
            self._producer.close()

    def _insist(self, call: Callable[[], None]) -> None:
        """Call a function, and repeat the call while the error is retriable."""
        Retrying(
            retry=retry_if_exception(_can_be_repeated),
            stop=stop_after_delay(self._calls_s),
            wait=wait_random_exponential(multiplier=FIRST_RETRY_PAUSE_S, max=LONGEST_RETRY_PAUSE_S),
            before_sleep=self._repeated,
            reraise=True,
        )(call)

    def _repeated(self, _: RetryCallState) -> None:
        self._has_repeated = True


def _can_be_repeated(raised: BaseException) -> bool:
    return isinstance(raised, KafkaException) and bool(raised.args[0].retriable())
