"""The verifiable consumer: subscribes, polls, reports each batch, and then commits it.

A batch is reported before it is committed and before a callback reports a revocation, because the system tests compare
the order of the events: committed offsets are never ahead of reported records, and a member reports records only of its
own partitions.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership.kafkatest.arguments import VerifiableOptions
from consumer_membership.kafkatest.events import (
    CommittedOffset,
    ConsumedRange,
    EventPartition,
    OffsetsCommitted,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordData,
    RecordsConsumed,
    ShutdownComplete,
    StartupComplete,
    VerifiableEvent,
    encode,
)

_POLL_S = 0.1
_BATCH = 500  # Java's default of max.poll.records
#: Errors that end a member. confluent-kafka reports them with the code `_FATAL` or the broker's code.
_FATAL = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID})


class ConsumerApi(Protocol):
    """The methods of a consumer that a verifiable consumer calls."""

    def subscribe(
        self,
        topics: list[str],
        /,
        *,
        on_assign: Callable[[object, list[TopicPartition]], object],
        on_revoke: Callable[[object, list[TopicPartition]], object],
        on_lost: Callable[[object, list[TopicPartition]], object],
    ) -> object:
        """Join the group."""

    def poll(self, timeout: float = ...) -> Message | None:
        """Return the next record or error."""

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        """Commit these offsets."""

    def close(self) -> None:
        """Leave the group."""


class VerifiableConsumer:
    """One consumer that reports its events to `send`; `stop` may be called from a signal handler."""

    def __init__(
        self, consumer: ConsumerApi, options: VerifiableOptions, send: Callable[[VerifiableEvent], None]
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._send = send
        self._is_stopping = False
        self._batch: dict[EventPartition, list[Message]] = {}
        self._received = 0

    def stop(self) -> None:
        """Make `run` close the consumer and return."""
        self._is_stopping = True

    def run(self) -> bool:
        """Consume until `stop`, the limit of records, or a fatal error; return False after an error."""
        self._send(StartupComplete())
        is_failed = False
        try:
            self._consumer.subscribe(
                [self._options.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._is_stopping and not self._is_finished:
                self._gather()
                self._flush(may_commit=True)
        except KafkaException as error:
            _report_error(f"The consumer ends: {error}")
            is_failed = True
        try:
            self._consumer.close()
        except KafkaException as error:
            _report_error(f"close failed: {error}")
            is_failed = True
        self._send(ShutdownComplete())
        return not is_failed

    @property
    def _is_finished(self) -> bool:
        limit = self._options.max_messages
        return limit is not None and self._received >= limit

    def _gather(self) -> None:
        """Receive records until none is buffered, a batch is complete, or the limit is reached."""
        timeout = _POLL_S
        for _ in range(_BATCH):
            message = self._consumer.poll(timeout)
            if message is None:
                return
            timeout = 0
            error = message.error()
            if error is None:
                self._receive(message)
            elif error.fatal() or error.code() in _FATAL:
                raise KafkaException(error)
            else:
                _report_error(str(error))
            if self._is_finished:
                return

    def _receive(self, message: Message) -> None:
        self._received += 1
        topic, partition = message.topic(), message.partition()
        if topic is not None and partition is not None:
            self._batch.setdefault(EventPartition(topic=topic, partition=partition), []).append(message)

    def _flush(self, *, may_commit: bool) -> None:
        """Report the batch, and commit it unless the partitions are lost or commits are automatic."""
        batch, self._batch = self._batch, {}
        if not batch:
            return
        ranges = tuple(_range(partition, messages) for partition, messages in batch.items())
        if self._options.is_verbose:
            for partition, messages in batch.items():
                for message in messages:
                    self._send(_record(partition, message))
        self._send(RecordsConsumed(ranges=ranges))
        if may_commit and not self._options.is_auto_commit:
            self._commit(ranges)

    def _commit(self, ranges: Sequence[ConsumedRange]) -> None:
        offsets = tuple(CommittedOffset(partition=one.partition, offset=one.max_offset + 1) for one in ranges)
        requested = [TopicPartition(one.partition.topic, one.partition.partition, one.offset) for one in offsets]
        try:
            answered = self._consumer.commit(offsets=requested, asynchronous=False) or []
        except KafkaException as error:
            self._send(OffsetsCommitted(offsets=offsets, error=str(error)))
            if isinstance(cause := error.args[0], KafkaError) and (cause.fatal() or cause.code() in _FATAL):
                raise
        else:
            refused = next((str(one.error) for one in answered if one.error is not None), None)
            self._send(OffsetsCommitted(offsets=offsets, error=refused))

    def _on_assign(self, _: object, partitions: list[TopicPartition]) -> None:
        self._send(PartitionsAssigned(partitions=_event_partitions(partitions)))

    def _on_revoke(self, _: object, partitions: list[TopicPartition]) -> None:
        self._flush(may_commit=True)
        self._send(PartitionsRevoked(partitions=_event_partitions(partitions)))

    def _on_lost(self, _: object, partitions: list[TopicPartition]) -> None:
        # Java's listener has no callback of its own for lost partitions; it receives them as revoked.
        self._flush(may_commit=False)
        self._send(PartitionsRevoked(partitions=_event_partitions(partitions)))


def run_until_signal(create: Callable[[dict[str, str | int | bool]], ConsumerApi], options: VerifiableOptions) -> int:
    """Run a verifiable consumer that SIGTERM and SIGINT stop, with events on stdout; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    verifiable = VerifiableConsumer(create(dict(options.config)), options, _write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: verifiable.stop())
    return 0 if verifiable.run() else 1


def _write(event: VerifiableEvent) -> None:
    try:
        sys.stdout.write(encode(event, int(time.time() * 1000)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The process that reads the events has ended.
        os._exit(1)


def _report_error(text: str) -> None:
    """Write to stderr, because the system tests read only events from stdout."""
    sys.stderr.write(f"{text}\n")


def _event_partitions(partitions: Iterable[TopicPartition]) -> tuple[EventPartition, ...]:
    return tuple(EventPartition(topic=one.topic, partition=one.partition) for one in partitions)


def _range(partition: EventPartition, messages: Sequence[Message]) -> ConsumedRange:
    offsets = [offset for message in messages if (offset := message.offset()) is not None]
    return ConsumedRange(partition=partition, count=len(messages), min_offset=offsets[0], max_offset=offsets[-1])


def _record(partition: EventPartition, message: Message) -> RecordData:
    return RecordData(
        partition=partition, offset=message.offset() or 0, key=_text(message.key()), value=_text(message.value())
    )


def _text(field: bytes | str | None) -> str | None:
    return field.decode(errors="replace") if isinstance(field, bytes) else field
