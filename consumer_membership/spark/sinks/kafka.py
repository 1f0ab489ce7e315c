"""Records to Kafka, in one transaction with the offsets of the group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

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
from consumer_membership.spark.arguments import topic_names
from consumer_membership.spark.batches import after
from consumer_membership.spark.context import BatchFormat, SinkContext, SinkUse, name_record, notes_of
from consumer_membership.spark.sinks.producer import (
    CALL_S,
    FIRST_RETRY_PAUSE_S,
    LONGEST_RETRY_PAUSE_S,
    TOPIC_S,
    Setting,
    TransactionalProducer,
)
from consumer_membership.spark.sinks.resource import PerProcess
from consumer_membership.spark.sinks.ruling import said

_log = logging.getLogger("consumer_membership.spark")

#: How often a batch is begun in one call of the sink when the member's epoch moves meanwhile. Other errors are raised:
#: `sink_attempts` says how often such a batch is tried.
_ATTEMPTS = 3

#: How long the driver waits for the brokers before a job starts.
_LOOK_S = 5.0
#: Errors of a topic that no later answer changes unless an operator acts.
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
#: The coordinator does not know the member as the offsets tell of it.
_MEMBER_FENCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutRecord:
    """A record to be written; without a partition the producer's partitioner chooses, without a time it is now."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None = None
    headers: tuple[tuple[str, bytes | str | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class KafkaSink:
    """Writes what `transform` makes of each record, and the group's offsets, in one transaction for each batch.

    Readers with `isolation.level=read_committed` see the result of each record exactly once. `transform(message)`
    yields any number of records, none to leave one out; it may be called again for the same message, and what it made
    before was aborted. For batches of messages only; Arrow and pandas are refused.

    Each member has a producer of its own, whose `transactional.id` is its `group.instance.id`, or, if `producer_config`
    has one, that with the number of the member behind it: the producer of a replacement ends the transaction that the
    one before has left. Beyond that, the coordinator refuses the offsets of a member that was replaced, so an attempt
    that was stopped and woke up gets a `FencedError` and its transaction is aborted. A batch must be done within
    `transaction.timeout.ms`, after which the brokers end it. Where a connection broke, or an answer did not come in
    time, the next batch has a new producer (`spark/sinks/producer`). What librdkafka logs goes to the log
    `consumer_membership.spark`.

    Args:
        producer_config: as `confluent_kafka.Producer` takes it; sent to the tasks.
        transform: makes records of a record.
        topics: the topics that `transform` writes to, if they are known: before a job starts, the driver looks whether
            they exist and may be written.
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
        #: Whether the last transaction was committed is not known.
        self._is_in_doubt = False
        #: Topics that the brokers know, and those that were looked for in vain.
        self._known: set[str] = set()
        self._missed: set[str] = set()

    def __repr__(self) -> str:
        return f"KafkaSink(bootstrap.servers={self._config.get('bootstrap.servers')!r})"

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Write, and commit.

        Raises:
            FencedError: the member was replaced, or another producer has its `transactional.id`; nothing was written.
            SinkError: the brokers refused it or did not answer; what was written is aborted, unless the text says more.
            ConfigurationError: Arrow or pandas is asked for.
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
                f"the transaction for {said(context)} was aborted {_ATTEMPTS} times, for the member's epoch moved each"
                f" time: {aborted.__cause__}"
            ) from aborted.__cause__

    def check_use(self, use: SinkUse) -> str:
        """Check that a job can write to the `topics`; return a description of what exists.

        Raises:
            ConfigurationError: Arrow or pandas is asked for; a topic does not exist, or may not be written.
            KafkaException: no broker answers.
        """
        _refuse_format(use.batch_format)
        if not self._topics or not use.is_on_driver:
            return ""
        admin = AdminClient({key: value for key, value in self._config.items() if key != "transactional.id"})
        asked = admin.describe_topics(
            TopicCollection(list(self._topics)), include_authorized_operations=True, request_timeout=_LOOK_S
        )
        for topic, answer in asked.items():
            try:
                allowed = answer.result().authorized_operations
            except KafkaException as refused:
                if refused.args[0].code() not in _NO_TOPIC:
                    raise
                raise ConfigurationError(
                    "topics", topic, f"{refused.args[0].str()}; create the topic, or allow the producer to write to it"
                ) from refused
            if allowed and not any(operation.name == "WRITE" for operation in allowed):
                raise ConfigurationError(
                    "topics", topic, "the producer may not write to this topic; add an ACL for the operation WRITE"
                )
        return f"topics {', '.join(self._topics)} exist and may be written"

    def prepare(self, instance: int, instance_id: str) -> None:
        """Start the producer of a member before it fetches anything, and so end what an attempt before has left.

        Offsets in a transaction that nobody ends hold up whoever wants to know what is committed, until the brokers
        abort it (`transaction.timeout.ms`, a minute by default). Without this the first batch starts the producer; it
        is for a caller who has made sure that no later attempt is at work.

        Raises:
            SinkError: the brokers refused it or did not answer.
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
            # Right before it is used: the epoch in it moves.
            producer.send_offsets(offsets, _membership(context))
            self._is_in_doubt = True
            producer.commit()
            self._is_in_doubt = False
        except KafkaException:
            raise
        except BaseException:
            # What the caller's own code raises.
            self._abort(producer)
            raise

    def _add(self, producer: TransactionalProducer, message: Message) -> None:
        """Add what is made of a record to the transaction."""
        for record in self._transform(message):
            if record.topic not in self._known:
                # librdkafka would wait for the topic for a minute, and then say that a record was not delivered.
                error = producer.topic_error(record.topic, 0.0 if record.topic in self._missed else TOPIC_S)
                if error is not None:
                    self._missed.add(record.topic)
                    raise SinkError(
                        f"topic {record.topic!r} cannot be written: {error.str()}; create it, and allow the producer "
                        "to write to it (ACL: operation WRITE)"
                    )
                self._known.add(record.topic)
            producer.produce(
                record.topic,
                record.value,
                record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )

    def _refused(self, refused: KafkaException, context: SinkContext) -> NoReturn:
        """Abort what is left, and say whose fault it is.

        Raises:
            _AbortedError: the batch can be begun again.
        """
        error: KafkaError = refused.args[0]
        producer = self._producer.held()
        undelivered = None if producer is None else producer.undelivered
        not_aborted = None if producer is None else self._abort(producer)
        is_aborted = producer is not None and not_aborted is None
        if is_aborted:
            self._is_in_doubt = False
        if error.code() == KafkaError._FATAL and not_aborted is not None:
            # `produce` says no more of a producer that has failed for good; the calls of a transaction say why it has.
            error = not_aborted
        if error.code() in _PRODUCER_FENCED:
            if not self._is_in_doubt:
                # Whoever was replaced hears it from the coordinator, in words that name the group.
                context.verify()
            mine = self._transactional_id(context.instance, context.instance_id)
            raise FencedError(
                f"another producer has transactional.id {mine!r} of {context.instance_id!r}, or the brokers ended its"
                f" transaction ({error.str()}); nothing more is written of {said(context)}. If the group knows of no"
                " replacement: let a batch be shorter than transaction.timeout.ms, and give each pipeline of this name"
                " its own transactional.id in the producer's configuration"
            ) from refused
        if error.code() in _MEMBER_FENCED:
            # The member's epoch may have moved between the question and the offsets; then it is confirmed, and the
            # partitions are its own, for they are not given away while a sink works.
            context.verify()
            raise _AbortedError from refused
        if not (is_aborted and error.txn_requires_abort()):
            self.close()
        # The topic may be gone.
        self._known.clear()
        outcome = "it is not known whether it was committed" if self._is_in_doubt else "nothing was written"
        why = ", ".join((undelivered or error.str(), *notes_of(refused)))
        raise SinkError(f"the transaction for {said(context)} failed: {why}; {outcome}") from refused

    def _left(self, batch: list[Message], context: SinkContext) -> list[Message]:
        """What the group has not committed: the answer whether the transaction before was, now that it is over."""
        wanted = [TopicPartition(part.topic, part.partition) for part in context.ranges]
        admin = AdminClient({key: value for key, value in self._config.items() if key != "transactional.id"})
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(context.group, wanted)], require_stable=True, request_timeout=CALL_S
        )
        found = asked[context.group].result().topic_partitions or ()
        for partition in found:
            if partition.error is not None:
                raise KafkaException(partition.error)
        positions = {(partition.topic, partition.partition): partition.offset for partition in found}
        left = after(batch, BatchFormat.MESSAGES, positions)
        return left if isinstance(left, list) else batch

    def _abort(self, producer: TransactionalProducer) -> KafkaError | None:
        """Abort; what is returned says why it failed.

        Then the producer goes, and the start of the next one ends what this one has left.
        """
        try:
            producer.abort()
        except KafkaException as refused:
            _log.debug("Not aborted: %s", refused)
            # Dropped, not closed: in the middle of a transaction that would wait for the brokers without end.
            self._producer.taken()
            error: KafkaError = refused.args[0]
            return error
        return None

    # ---- the producer ----

    def _transactional_id(self, instance: int, instance_id: str) -> str:
        given = self._config.get("transactional.id")
        return instance_id if given is None else f"{given}-{instance}"

    def _ready(self, context: SinkContext) -> TransactionalProducer:
        """The producer for the next transaction: a new one if requests of the one before could get into that."""
        held = self._producer.held()
        if held is not None and held.may_have_late_requests:
            _log.info("The producer of %s is replaced: a request of it may still be on its way", said(context))
            self.close()
        return self._producer.get(lambda: self._started(context))

    def _started(self, context: SinkContext) -> TransactionalProducer:
        # The start of a producer fences the one of the same id that is at work, and only the owner may do that.
        if not self._is_in_doubt:
            # The question commits what is known to be committed, so it must not be asked while that is not known.
            context.verify()
        return self._made(context.instance, context.instance_id)

    def _made(self, instance: int, instance_id: str) -> TransactionalProducer:
        mine = self._transactional_id(instance, instance_id)
        producer = TransactionalProducer(self._config | {"transactional.id": mine})
        producer.start()
        return producer


class _AbortedError(Exception):
    """The transaction was aborted, and the batch can be begun again."""


def _membership(context: SinkContext) -> bytes:
    """What the offsets tell of the member.

    Raises:
        FencedError: it is none any more. The coordinator of a group without members would take such offsets.
    """
    metadata = context.group_metadata()
    if epoch_in(metadata) < 0:
        raise FencedError(
            f"{context.instance_id!r} is no member of group {context.group!r} any more, so somebody else may own its"
            f" partitions; nothing was written of {said(context)}"
        )
    return metadata


def _refuse_format(batch_format: BatchFormat) -> None:
    if batch_format is not BatchFormat.MESSAGES:
        raise ConfigurationError(
            "batch_format", batch_format.value, "KafkaSink takes messages; use batch_format='messages'"
        )


def _check(config: Mapping[str, Setting]) -> None:
    if "bootstrap.servers" not in config:
        raise ConfigurationError("bootstrap.servers", None, "the producer needs the brokers' addresses")
    if str(config.get("enable.idempotence", True)).lower() in ("false", "0", "f"):
        raise ConfigurationError(
            "enable.idempotence", config["enable.idempotence"], "a transaction needs it; remove the key"
        )
    if "transactional.id" in config and not str(config["transactional.id"]):
        raise ConfigurationError(
            "transactional.id", "", "must be the beginning of an id; remove the key to have each member's own"
        )
    if not str(config.get("log_level", 0)).isdecimal():
        raise ConfigurationError("log_level", config["log_level"], "must be a number from 0 to 7")
    for key, value in config.items():
        if key in ("group.id", "logger", "on_delivery") or key.endswith("_cb"):
            # By its type: what a function or an object shows of itself may contain a password.
            raise ConfigurationError(
                key, type(value).__qualname__, "the sink's producer has no use for it; remove the key"
            )
