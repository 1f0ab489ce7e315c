"""Transactions of outputs and offsets: readers of committed records see both, or neither.

The offsets are sent with the group metadata of the member (KIP-447), so the group coordinator refuses the offsets of a
member that no longer owns its partitions. That fences stale members, whatever their `transactional.id` is. Therefore
the id only has to be unique among the living processes. An id that stays the same over restarts is better: the next
process ends the open transaction of a killed process at once, and readers do not wait until `transaction.timeout.ms`.

Committed metadata travels with the offsets (TxnOffsetCommit), so the offsets that are finished beyond the committed
offset are in the transaction as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TypeAlias
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer_membership.clients.group_metadata import epoch_in
from consumer_membership.errors import FatalTransactionError, FencedError, MembershipError, TransactionAbortedError
from consumer_membership.processing.outputs import TOPIC_S, ClientConfig, OutputRecord, refused_output
from consumer_membership.processing.transactional_producer import TransactionalProducer

#: `Consumer.committed`: the committed offsets of partitions, with metadata.
CommittedLookup: TypeAlias = Callable[[list[TopicPartition], float], list[TopicPartition]]

#: A transaction is written at once, not over the time of the handlers, so it needs no minute as librdkafka's default.
#: Until the brokers abort the transaction of a killed process, readers of its output partitions wait, and so does the
#: next owner of its input partitions.
DEFAULT_TIMEOUT_MS = 10_000
#: How long a call waits for the brokers. The thread that polls makes the calls, and has to see a stop meanwhile.
PATIENCE_S = 10.0

#: Another producer has the transactional id, or the brokers have aborted the transaction after its timeout.
_PRODUCER_FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
#: Errors that last until an operator acts.
_PERMANENT = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
    }
)
#: Errors of a record itself: another attempt would have the same result.
_REJECTED_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_MSG,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)

_log = partial(logging.getLogger, "consumer_membership.processing")


def default_transactional_id(group_id: str, instance_id: str | None) -> str:
    """Return the transactional id of a member; it begins with the group id, for ACLs with a prefix.

    A static member has the same id after a restart. Otherwise the id is unique.
    """
    return f"{group_id}-{instance_id or uuid4()}"


class TransactionInDoubtError(Exception):
    """The brokers did not respond, so it is not known whether a transaction was committed (`was_committed`)."""


class Transactions:
    """Commits outputs and offsets of one consumer in transactions, one after the other, on one thread.

    A transaction contains complete results only: handlers return their records, and no transaction is open while they
    run. The producer is replaced after each connection failure, so that a late request cannot end a later transaction.

    Args:
        client_config: The keys of the connection to the brokers, and any producer key. `transaction.timeout.ms` is 10 s
            if it is not set.
        transactional_id: The producer's id; two living processes must not have the same id.
        committed: `Consumer.committed`; it determines whether a transaction was committed if its end had no response.
    """

    def __init__(self, client_config: ClientConfig, transactional_id: str, committed: CommittedLookup) -> None:
        self._config: ClientConfig = {
            "transaction.timeout.ms": DEFAULT_TIMEOUT_MS,
            **client_config,
            "transactional.id": transactional_id,
        }
        self._timeout_s = int(str(self._config["transaction.timeout.ms"])) / 1000
        self._id = transactional_id
        self._committed = committed
        self._producer: TransactionalProducer | None = None
        self._known_topics: set[str] = set()
        self._began = 0.0
        #: How many starts of producers had no response. Each may still arrive, and fence a later producer.
        self._late_starts = 0

    def start(self) -> None:
        """Start the producer, which ends the open transaction of an earlier process with this id. Idempotent.

        Call it when the member has its first assignment: the start also fences a living process with this id. Without
        this call, the first `commit` starts the producer.

        Raises:
            TransactionAbortedError: the brokers did not respond; try again.
            FatalTransactionError: the brokers refused the producer.
        """
        self._ready()

    def commit(self, outputs: Sequence[OutputRecord], offsets: list[TopicPartition], group_metadata: bytes) -> None:
        """Write the outputs and the offsets, or neither.

        Each of the offsets must differ from the committed offset or its metadata. `group_metadata` is the result of
        `Consumer.consumer_group_metadata()`, taken immediately before, because the member's epoch changes.

        Raises:
            TransactionAbortedError: nothing was written. Take the group metadata again, and try again with the outputs
                of the partitions that the member still owns. `code` is `OFFSET_METADATA_TOO_LARGE` if the brokers
                permit less metadata.
            OutputError: nothing was written, because a record cannot be written.
            FencedError: nothing was written; the member is not in its group, or another process has the
                `transactional.id` (`is_final`).
            FatalTransactionError: the brokers refused the producer; end the process.
            TransactionInDoubtError: the result is not known yet. Call `was_committed` with these offsets before the
                next transaction.
        """
        if epoch_in(group_metadata) < 0:
            # The coordinator of an empty group would accept the offsets.
            raise FencedError("this consumer is not a member of its group; no outputs and no offsets were written")
        producer = self._ready()
        self._check_topics(producer, outputs)
        self._began = monotonic()
        try:
            producer.begin()
            for output in outputs:
                _add(producer, output)
            producer.send_offsets(offsets, group_metadata)
        except KafkaException as refused:
            raise self._aborted(producer, refused.args[0]) from refused
        except BaseException:
            self._abort(producer)
            raise
        try:
            producer.commit()
        except KafkaException as refused:
            raised = self._aborted(producer, refused.args[0])
            # After a fence, another start of this producer would fence the other process in return.
            is_in_doubt = self._producer is None and not isinstance(raised, FencedError)
            if is_in_doubt and self.was_committed(offsets):
                return
            raise raised from refused

    def was_committed(self, offsets: list[TopicPartition]) -> bool:
        """Return whether the last transaction, which contained these offsets, was committed.

        The start of the next producer returns when that transaction has ended. Its offsets differ from the earlier
        ones, so they show its result. Partitions that the member has lost may have later offsets; if it has lost all of
        them, the result makes no difference to it.

        Raises:
            TransactionInDoubtError: the brokers did not respond; call this again.
            FatalTransactionError: the brokers refused the producer.
            FencedError: another process has the `transactional.id`.
        """
        wanted = {(offset.topic, offset.partition): (offset.offset, offset.metadata or "") for offset in offsets}
        try:
            self._ready()
            found = self._committed([TopicPartition(topic, number) for topic, number in wanted], PATIENCE_S)
        except (KafkaException, TransactionAbortedError) as unknown:
            raise TransactionInDoubtError(str(unknown)) from unknown
        return any(wanted[offset.topic, offset.partition] == (offset.offset, offset.metadata or "") for offset in found)

    def close(self) -> None:
        """Release the producer; no transaction is open between two calls. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    # ---- the producer ----

    def _ready(self) -> TransactionalProducer:
        """Return the producer for the next transaction: a new one if a late request could affect it."""
        if self._producer is not None and self._producer.may_have_late_requests:
            _log().info(
                "The transactional producer %s is replaced: one of its requests may still be in flight", self._id
            )
            self.close()
        if self._producer is None:
            self._producer = self._started()
        return self._producer

    def _started(self) -> TransactionalProducer:
        self._began = monotonic()
        producer = TransactionalProducer(self._config, _log(), PATIENCE_S)
        try:
            producer.start()
        except KafkaException as refused:
            raised = self._error(producer, refused.args[0])
            self._late_starts += isinstance(raised, TransactionAbortedError)
            raise raised from refused
        return producer

    def _check_topics(self, producer: TransactionalProducer, outputs: Sequence[OutputRecord]) -> None:
        """Look up topics once; librdkafka would wait for an unknown topic, and then report an undelivered record."""
        for topic in {output.topic for output in outputs} - self._known_topics:
            error = producer.topic_error(topic, TOPIC_S)
            if error is not None:
                raise refused_output(topic, error)
            self._known_topics.add(topic)

    # ---- errors ----

    def _aborted(self, producer: TransactionalProducer, error: KafkaError) -> MembershipError:
        """Abort the transaction, and return the exception for its error."""
        not_aborted = self._abort(producer)
        self._known_topics.clear()  # one of them may have been deleted
        if error.code() == KafkaError._FATAL and not_aborted is not None:
            # `produce` only reports that the producer has failed permanently; the transaction calls have the cause.
            error = not_aborted
        return self._error(producer, error)

    def _abort(self, producer: TransactionalProducer) -> KafkaError | None:
        """Abort the transaction; return the error if that fails.

        Then the producer is dropped, and the start of the next producer ends its transaction.
        """
        try:
            producer.abort()
        except KafkaException as refused:
            _log().debug("The transaction was not aborted: %s", refused)
            # Dropped, not closed: in the middle of a transaction, `close` would wait for the brokers forever.
            self._producer = None
            error: KafkaError = refused.args[0]
            return error
        return None

    def _explains_fence(self) -> bool:
        """Return whether the fence is of this process: its transaction or an earlier start has timed out."""
        if monotonic() - self._began >= self._timeout_s:
            return True
        if self._late_starts == 0:
            return False
        self._late_starts -= 1
        return True

    def _error(self, producer: TransactionalProducer, error: KafkaError) -> MembershipError:
        text, code = error.str(), error.code()
        failed = producer.failures.error
        if failed is not None and failed.code() in _REJECTED_RECORD:
            return refused_output(producer.failures.topic, failed)
        if code in _PRODUCER_FENCED and not self._explains_fence():
            return FencedError(
                f"another process has transactional.id {self._id!r} ({text}); give each process its own id",
                is_final=True,
            )
        if code in _PERMANENT:
            return FatalTransactionError(
                f"the brokers refused the transactional producer {self._id!r}: {text}; grant it the ACL operations that"
                " transactions need, or correct its configuration",
                code,
            )
        if error.fatal() and code not in _PRODUCER_FENCED:
            return FatalTransactionError(f"the transactional producer {self._id!r} failed: {text}", code)
        return TransactionAbortedError(f"the transaction of {self._id!r} was aborted: {text}", code)


def _add(producer: TransactionalProducer, output: OutputRecord) -> None:
    """Add a record to the transaction.

    Raises:
        OutputError: librdkafka rejected the record.
        KafkaException: the transaction has failed.
    """
    try:
        producer.produce(output)
    except KafkaException as refused:
        if refused.args[0].code() in _REJECTED_RECORD:
            raise refused_output(output.topic, refused.args[0]) from refused
        raise
