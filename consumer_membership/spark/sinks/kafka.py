"""`KafkaSink`: write records to Kafka, in one transaction with the offsets of the group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from consumer_membership.clients.group_metadata import epoch_in
from consumer_membership.errors import ConfigurationError, FencedError, SinkError
from consumer_membership.processing.outputs import TOPIC_S, OutputRecord
from consumer_membership.processing.transactional_producer import (
    CALL_S,
    FIRST_RETRY_PAUSE_S,
    LONGEST_RETRY_PAUSE_S,
    TransactionalProducer,
)
from consumer_membership.spark.arguments import topic_names
from consumer_membership.spark.batches import after
from consumer_membership.spark.context import BatchFormat, SinkContext, SinkUse, name_record, notes_of
from consumer_membership.spark.sinks.resource import PerProcess
from consumer_membership.spark.sinks.ruling import batch_name

_log = logging.getLogger("consumer_membership.spark")

#: How often one call of the sink starts a batch if the member's epoch changes in the meantime. Other errors are raised,
#: and `sink_attempts` limits the calls.
_ATTEMPTS = 3

#: The timeout of the driver's check before a job starts.
_CHECK_S = 5.0
#: Errors of a topic that last until an operator acts.
_NO_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
    }
)
#: Another producer has the transactional id.
_PRODUCER_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)
#: The coordinator does not know the member with this epoch.
_MEMBER_FENCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)


#: The record that `transform` yields: the same class as for handlers.
OutRecord = OutputRecord
#: A value of librdkafka's configuration.
Setting: TypeAlias = str | int | float | bool


class KafkaSink:
    """Writes the records that `transform` returns and the group's offsets in one transaction for each batch.

    Readers with `isolation.level=read_committed` see the result of each record exactly once. `transform(message)`
    yields any number of records. It may be called again for the same message; then its earlier records were aborted.
    The sink accepts only batches of messages, not Arrow or pandas.

    Each member has its own producer. Its `transactional.id` is the member's `group.instance.id`; if `producer_config`
    has a `transactional.id`, it is that with `-<number of the member>`. The producer of a replacement ends the
    transaction of the previous attempt. The coordinator also refuses the offsets of a replaced member: an attempt that
    was stopped and continues gets a `FencedError`, and its transaction is aborted. A batch must be finished within
    `transaction.timeout.ms`, or the brokers abort it. After a broken connection, or a response that did not arrive in
    time, the next batch uses a new producer. librdkafka's log lines go to the logger `consumer_membership.spark`.

    Args:
        producer_config: The configuration of a `confluent_kafka.Producer`; it is sent to the tasks.
        transform: A function that takes a message and yields `OutRecord`s.
        topics: The topics to which `transform` writes, if they are known: the driver checks before a job starts that
            they exist and may be written.

    Raises:
        ConfigurationError: a key of `producer_config` is missing or not supported.
    """

    #: The offsets are in the transaction; there is nothing left to commit.
    commits_offsets = True

    def __init__(
        self,
        producer_config: Mapping[str, Setting],
        transform: Callable[[Message], Iterable[OutRecord]],
        *,
        topics: Sequence[str] = (),
    ) -> None:
        _check(producer_config)
        self._topics = topic_names(topics) if topics else ()
        self._config = dict(producer_config)
        self._transform = transform
        self._producer: PerProcess[TransactionalProducer] = PerProcess()
        #: Whether it is unknown if the last transaction was committed.
        self._is_in_doubt = False
        #: Topics that exist, and topics that were not found.
        self._known: set[str] = set()
        self._missed: set[str] = set()

    def __repr__(self) -> str:
        return f"KafkaSink(bootstrap.servers={self._config.get('bootstrap.servers')!r})"

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Write the records of a batch, and commit the transaction.

        Raises:
            FencedError: the member was replaced, or another producer has its `transactional.id`; nothing was written.
            SinkError: the brokers refused the transaction or did not respond; it is aborted, unless the text has
                another outcome.
            ConfigurationError: the batch format is Arrow or pandas.
        """
        _refuse_format(context.batch_format)
        attempts = Retrying(
            retry=retry_if_exception_type(_AbortedError),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=FIRST_RETRY_PAUSE_S, max=LONGEST_RETRY_PAUSE_S),
            reraise=True,
        )
        try:
            attempts(self._transact, batch, context)
        except _AbortedError as aborted:
            raise SinkError(
                f"the transaction for {batch_name(context)} was aborted {_ATTEMPTS} times, because the member's epoch"
                f" changed each time: {aborted.__cause__}"
            ) from aborted.__cause__

    def check_use(self, use: SinkUse) -> str:
        """Check that a job can write to the `topics`; return a description of what exists.

        Raises:
            ConfigurationError: the batch format is Arrow or pandas; a topic does not exist, or may not be written.
            KafkaException: no broker responded.
        """
        _refuse_format(use.batch_format)
        if not self._topics or not use.is_on_driver:
            return ""
        admin = AdminClient({key: value for key, value in self._config.items() if key != "transactional.id"})
        responses = admin.describe_topics(
            TopicCollection(list(self._topics)), include_authorized_operations=True, request_timeout=_CHECK_S
        )
        for topic, response in responses.items():
            try:
                allowed = response.result().authorized_operations
            except KafkaException as refused:
                if refused.args[0].code() not in _NO_TOPIC:
                    raise
                raise ConfigurationError(
                    "topics", topic, f"{refused.args[0].str()}; create the topic, or grant the producer WRITE on it"
                ) from refused
            if allowed and not any(operation.name == "WRITE" for operation in allowed):
                raise ConfigurationError(
                    "topics", topic, "the producer may not write to this topic; add an ACL for the operation WRITE"
                )
        return f"topics {', '.join(self._topics)} exist and may be written"

    def prepare(self, instance: int, instance_id: str) -> None:
        """Start the producer before the member fetches anything, which ends the transaction of a previous attempt.

        Offsets in an open transaction delay every request for committed offsets until the brokers abort it
        (`transaction.timeout.ms`, a minute by default). Without this call, the first batch starts the producer. The
        caller must make sure that no later attempt is running.

        Raises:
            SinkError: the brokers refused the producer, or did not respond.
        """
        try:
            self._producer.get(lambda: self._made(instance, instance_id))
        except KafkaException as refused:
            raise SinkError(f"the producer of {instance_id!r} cannot start: {refused.args[0].str()}") from refused

    def close(self) -> None:
        """Release the producer."""
        producer = self._producer.taken()
        if producer is not None:
            producer.close()

    # ---- one transaction ----

    def _transact(self, batch: list[Message], context: SinkContext) -> None:
        try:
            producer = self._ready(context)
            left = self._left(batch, context) if self._is_in_doubt else batch
            self._is_in_doubt = False
            if left:
                self._fill(producer, left, context)
        except KafkaException as refused:
            self._refused(refused, context)

    def _fill(self, producer: TransactionalProducer, batch: list[Message], context: SinkContext) -> None:
        producer.begin()
        try:
            for message in batch:
                try:
                    self._add(producer, message)
                except Exception as raised:
                    name_record(raised, message)
                    raise
            offsets = context.offsets()
            # Read right before its use, because its epoch changes.
            producer.send_offsets(offsets, _membership(context))
            context.check_leases()
            self._is_in_doubt = True
            producer.commit()
            self._is_in_doubt = False
        except KafkaException:
            raise
        except BaseException:
            # An exception of the caller's code.
            self._abort(producer)
            raise

    def _add(self, producer: TransactionalProducer, message: Message) -> None:
        """Add the result of a message to the transaction."""
        for record in self._transform(message):
            if record.topic not in self._known:
                # librdkafka would wait a minute for the topic, and then report a record that was not delivered.
                error = producer.topic_error(record.topic, 0.0 if record.topic in self._missed else TOPIC_S)
                if error is not None:
                    self._missed.add(record.topic)
                    raise SinkError(
                        f"topic {record.topic!r} cannot be written: {error.str()}; create it, and grant the producer "
                        "the ACL operation WRITE on it"
                    )
                self._known.add(record.topic)
            producer.produce(record)

    def _refused(self, refused: KafkaException, context: SinkContext) -> NoReturn:
        """Abort the transaction, and raise an error that names the cause.

        Raises:
            _AbortedError: the batch can be started again.
        """
        error: KafkaError = refused.args[0]
        producer = self._producer.held()
        undelivered = None if producer is None else producer.failures.first
        not_aborted = None if producer is None else self._abort(producer)
        is_aborted = producer is not None and not_aborted is None
        if is_aborted:
            self._is_in_doubt = False
        if error.code() == KafkaError._FATAL and not_aborted is not None:
            # `produce` only reports that the producer has failed permanently; the transaction calls have the cause.
            error = not_aborted
        if error.code() in _PRODUCER_FENCED:
            if not self._is_in_doubt:
                # If the member was replaced, this raises an error that names the group.
                context.verify()
            mine = self._transactional_id(context.instance, context.instance_id)
            raise FencedError(
                f"another producer has transactional.id {mine!r} of {context.instance_id!r}, or the brokers ended its"
                f" transaction ({error.str()}); no more records of {batch_name(context)} are written. If the member was"
                " not replaced, keep batches shorter than transaction.timeout.ms, and give each pipeline with this name"
                " its own transactional.id in producer_config"
            ) from refused
        if error.code() in _MEMBER_FENCED:
            # The member's epoch may have changed before the offsets were sent. Then the member is confirmed, and still
            # owns the partitions, because they are not revoked during a sink call.
            context.verify()
            raise _AbortedError from refused
        if not (is_aborted and error.txn_requires_abort()):
            self.close()
        # The topic may have been deleted.
        self._known.clear()
        outcome = "it is not known whether it was committed" if self._is_in_doubt else "nothing was written"
        why = ", ".join((undelivered or error.str(), *notes_of(refused)))
        raise SinkError(f"the transaction for {batch_name(context)} failed: {why}; {outcome}") from refused

    def _left(self, batch: list[Message], context: SinkContext) -> list[Message]:
        """Return the uncommitted messages, which shows whether the previous transaction was committed."""
        wanted = [TopicPartition(part.topic, part.partition) for part in context.ranges]
        admin = AdminClient({key: value for key, value in self._config.items() if key != "transactional.id"})
        futures = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(context.group, wanted)], require_stable=True, request_timeout=CALL_S
        )
        found = futures[context.group].result().topic_partitions or ()
        for partition in found:
            if partition.error is not None:
                raise KafkaException(partition.error)
        positions = {(partition.topic, partition.partition): partition.offset for partition in found}
        left = after(batch, BatchFormat.MESSAGES, positions)
        return left if isinstance(left, list) else batch

    def _abort(self, producer: TransactionalProducer) -> KafkaError | None:
        """Abort the transaction; return the error if that fails.

        Then the producer is dropped, and the start of the next producer ends its transaction.
        """
        try:
            producer.abort()
        except KafkaException as refused:
            _log.debug("The transaction was not aborted: %s", refused)
            # Dropped, not closed: in the middle of a transaction, `close` would wait for the brokers forever.
            self._producer.taken()
            error: KafkaError = refused.args[0]
            return error
        return None

    # ---- the producer ----

    def _transactional_id(self, instance: int, instance_id: str) -> str:
        given = self._config.get("transactional.id")
        return instance_id if given is None else f"{given}-{instance}"

    def _ready(self, context: SinkContext) -> TransactionalProducer:
        """Return the producer for the next transaction: a new one if late requests of the last one could affect it."""
        held = self._producer.held()
        if held is not None and held.may_have_late_requests:
            _log.info(
                "The producer for %s is replaced, because one of its requests may still be in flight",
                batch_name(context),
            )
            self.close()
        return self._producer.get(lambda: self._started(context))

    def _started(self, context: SinkContext) -> TransactionalProducer:
        # The start of a producer fences another producer with its id, so only the owner may start it.
        if not self._is_in_doubt:
            # `verify` commits the known offsets again, which must not be done while the last commit is in doubt.
            context.verify()
        return self._made(context.instance, context.instance_id)

    def _made(self, instance: int, instance_id: str) -> TransactionalProducer:
        mine = self._transactional_id(instance, instance_id)
        producer = TransactionalProducer(self._config | {"transactional.id": mine}, _log)
        producer.start()
        return producer


class _AbortedError(Exception):
    """The transaction was aborted, and the batch can be started again."""


def _membership(context: SinkContext) -> bytes:
    """Return the group metadata for the offsets.

    Raises:
        FencedError: this process is no longer a member. The coordinator of an empty group would accept its offsets.
    """
    metadata = context.group_metadata()
    if epoch_in(metadata) < 0:
        raise FencedError(
            f"{context.instance_id!r} is no longer a member of group {context.group!r}, so another member may own its"
            f" partitions; nothing was written of {batch_name(context)}"
        )
    return metadata


def _refuse_format(batch_format: BatchFormat) -> None:
    if batch_format is not BatchFormat.MESSAGES:
        raise ConfigurationError(
            "batch_format", batch_format.value, "KafkaSink accepts only messages; use batch_format='messages'"
        )


def _check(config: Mapping[str, Setting]) -> None:
    if "bootstrap.servers" not in config:
        raise ConfigurationError("bootstrap.servers", None, "the producer needs the brokers' addresses")
    if str(config.get("enable.idempotence", True)).lower() in ("false", "0", "f"):
        raise ConfigurationError(
            "enable.idempotence", config["enable.idempotence"], "transactions need it; remove the key"
        )
    if "transactional.id" in config and not str(config["transactional.id"]):
        raise ConfigurationError(
            "transactional.id", "", "must not be empty; remove the key to use the members' instance ids"
        )
    if not str(config.get("log_level", 0)).isdecimal():
        raise ConfigurationError("log_level", config["log_level"], "must be a number from 0 to 7")
    for key, value in config.items():
        if key in ("group.id", "logger", "on_delivery") or key.endswith("_cb"):
            # Only the type is shown: the repr of a function or an object may contain a password.
            raise ConfigurationError(
                key, type(value).__qualname__, "the sink's producer does not support it; remove the key"
            )
