"""A member that uses `Processor`: threads handle records in the order of each key, and finished records are committed.

The handler of a transactional processor returns a result for each record. A processor sets the rebalance callbacks of
its consumer itself. `Ownership` wraps these callbacks, so that the history also has assignments and revocations.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership import Consumer
from consumer_membership.processing import HandlerContext, OutputRecord, Processor
from tests.chaos import history as h
from tests.chaos.members.account import Account, named
from tests.chaos.members.statements import Statements, epochs_of, ns
from tests.chaos.plan import Loop

_HANDLES_S = 0.002
_CONCURRENCY = 4

Callback = Callable[[Consumer, list[TopicPartition]], None]


class Handler:
    """The handler: writes each record, and returns a result if the processor is transactional."""

    def __init__(self, account: Account) -> None:
        self._account = account
        #: `ended_ns`: the end of the thread's previous handler. The next record's lease was checked after that.
        self._local = threading.local()

    def __call__(self, message: Message, context: HandlerContext) -> OutputRecord | None:
        """Handle a record."""
        account = self._account
        until_ns = None
        if account.plan.has_leases:
            try:
                until_ns = ns(context.lease.until)
            except KafkaException:
                until_ns = None
        partition = account.received(message, getattr(self._local, "ended_ns", 0), until_ns)
        time.sleep(account.take_sleep_s() + _HANDLES_S)
        account.finished(message)
        self._local.ended_ns = h.now_ns()
        if account.plan.loop is not Loop.TRANSACTIONS:
            return None
        return OutputRecord(account.output, message.value(), str(partition.number))


class Ownership:
    """Writes the ownership and the commits of a processor."""

    def __init__(self, account: Account, consumer: Consumer) -> None:
        self._account, self._consumer = account, consumer
        self._subscribe = consumer.subscribe
        # Replaced, because a processor has no parameters for callbacks.
        consumer.subscribe = self.subscribe  # type: ignore[method-assign, assignment]

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback,
        on_revoke: Callback,
        on_lost: Callback,
        *,
        on_warm: Callback,
    ) -> None:
        """Subscribe with callbacks that also write to the history."""

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            view = consumer.membership()
            epochs = epochs_of(self._account.plan.has_leases, consumer, partitions)
            self._account.writer.write(
                h.Assigned(member_id=view.member_id, epochs=epochs, instance_id=view.instance_id)
            )
            time.sleep(self._account.slow_s())
            on_assign(consumer, partitions)

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                on_revoke(consumer, partitions)
            finally:
                self._account.writer.write(h.Revoked(partitions=named(partitions)))

        def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                on_lost(consumer, partitions)
            finally:
                self._account.writer.write(h.Lost(partitions=named(partitions)))

        def warmed(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._account.warmed(partitions)
            on_warm(consumer, partitions)

        self._subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost, on_warm=warmed)


def run_processor(account: Account) -> int:
    """Run the member until it is closed, or fails permanently."""

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        offsets = [h.Offset(one.topic, one.partition, one.offset) for one in partitions]
        number = account.writer.begin_commit(offsets)
        account.end_commit(number, partitions if error is None else KafkaException(error))

    processor = Processor(
        account.config() | {"on_commit": on_commit},
        [account.topic],
        Handler(account),
        concurrency=_CONCURRENCY,
        transactional=account.plan.loop is Loop.TRANSACTIONS,
    )
    consumer = processor._engine.consumer
    Ownership(account, consumer)
    statements = Statements(account.writer, consumer.membership, consumer.health, has_leases=account.plan.has_leases)
    account.on_close(processor.stop)
    try:
        # `Account` has installed a handler for SIGTERM.
        processor.run(handle_signals=False)
    except KeyboardInterrupt:
        return 130
    except KafkaException as error:
        account.writer.write(h.Raised(error=repr(error), is_fatal=True))
        return 1
    finally:
        statements.stop()
        consumer.dump(account.folder / f"{account.process}.recording")
    account.writer.write(h.Closed())
    return 0
