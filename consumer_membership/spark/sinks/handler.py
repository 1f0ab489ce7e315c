"""`HandlerSink`: call a handler for each record of a batch, with the order, retries and dead letters of a `Processor`.

The sink runs each batch through the scheduler and the workers of `consumer_membership.processing`, and returns when
every record of the batch is finished: handled, or stored in the target for dead letters. So the member commits a batch
as for every other sink, and the records of a key also run in order from one batch to the next.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Literal, cast

from confluent_kafka import Message
from tenacity import BaseRetrying

from consumer_membership.clients.lease import Lease
from consumer_membership.errors import ConfigurationError, FencedError, InternalError, LeaseOverError
from consumer_membership.metrics.handler_ledger import HandlerLedger
from consumer_membership.processing.calls import FunctionCall, HandlerCalls
from consumer_membership.processing.context import HandlerContext
from consumer_membership.processing.coroutines import CoroutineWorkers, own_event_loop
from consumer_membership.processing.dead_letters import (
    NO_CLIENT_LIMIT,
    DeadLetters,
    FunctionDeadLetters,
    TopicDeadLetters,
)
from consumer_membership.processing.handlers import HandlerKind, RecordHandler, checked_handler
from consumer_membership.processing.observation import gauges_of
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.outputs import ClientConfig, OutputProducer, OutputRecord
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import ProcessingOrder, Scheduler, Task
from consumer_membership.processing.settings import (
    CONCURRENCY,
    DeadLetterFunction,
    count_of,
    dead_letter_of,
    order_of,
    retry_of,
)
from consumer_membership.processing.threads import ThreadWorkers
from consumer_membership.processing.work import Work
from consumer_membership.spark.context import BatchFormat, Fence, SinkContext, SinkUse
from consumer_membership.spark.sinks.resource import PerProcess
from consumer_membership.types import Instant, TopicPartition

#: Offsets are committed for whole batches, without metadata. So no limit of the metadata delays a record.
_NO_METADATA_LIMIT = 2**40
#: The interval at which unacknowledged outputs are checked.
_FLUSH_S = 1.0
#: The interval at which the leases of a batch are checked while its handlers run.
_LEASE_CHECK_S = 0.1
#: Errors that end the batch, because it may belong to another member by now.
_NOT_OWNED = (FencedError, LeaseOverError)


class SinkHandlerContext(HandlerContext):
    """One call of a handler in a Spark task: a `HandlerContext` with the context of the batch.

    `is_current` stays True, and `deadline` is None: a batch has the time limit `sink_timeout_s`, and the coordinator
    knows whether the member was replaced (`context.batch.verify()`). `is_ending` and `is_cancelled` are True after
    another record of the batch has failed for the last time.

    Attributes:
        batch: The context of the batch that has the record.
    """

    __slots__ = ("batch",)

    def __init__(self, task: Task, deadline: Instant | None, batch: SinkContext) -> None:
        super().__init__(task, deadline, lambda partition, _: batch.lease(partition))
        self.batch = batch

    @property
    def fence(self) -> Fence:
        """The fencing token of the record's partition, to store with the data."""
        return next(fence for fence in self.batch.fences if fence.topic_partition == self.partition)


class HandlerSink:
    """Calls a handler for each record of a batch, in parallel and in order, with retries and dead letters.

        sink = HandlerSink(handle, concurrency=32, dead_letter="orders.dlq")
        drain(spark, config, ["orders"], "billing", sink)

    The handler, the options and their defaults are those of `consumer_membership.processing.Processor`. The batch is
    committed when each of its records was handled, or is in the target for dead letters. Without a target, a record
    that fails for the last time ends the task with a `SinkError` that names the record, and the batch is not committed.
    `sink_timeout_s` limits the time for all records of a batch, including retries.

    `OutputRecord`s that the handler returns are written at least once, before the batch is committed.

    A handler with a second parameter receives a `SinkHandlerContext`. If a handler raises `FencedError` or
    `LeaseOverError`, its record is neither retried nor dead-lettered: the batch ends, as with every other sink. With
    `ownership.lease.enable`, no handler starts after the end of the lease.

    Args:
        handler: A function or coroutine function that is called with a `confluent_kafka.Message`, or with the message
            and a `SinkHandlerContext`. The sink is pickled with it, and sent to the tasks.
        order: Which records run one after the other: those with the same key, of the same partition, or none.
        concurrency: How many handlers run at the same time in each task.
        retry: A tenacity policy, which must end. Default: 10 attempts with exponential waits between 0.2 s and 30 s.
        dead_letter: Where failed records go: a topic of the same cluster, or a function `(record, error, attempts)`.

    Raises:
        ConfigurationError: an argument cannot work; the message has its name, its value and the fix.
    """

    def __init__(
        self,
        handler: object,
        *,
        order: Literal["key", "partition", "none"] | ProcessingOrder = ProcessingOrder.KEY,
        concurrency: int = CONCURRENCY,
        retry: BaseRetrying | Callable[..., object] | None = None,
        dead_letter: str | DeadLetterFunction | None = None,
    ) -> None:
        called = checked_handler(handler)
        self._options = _HandlerOptions(
            handler=called,
            order=order_of(order),
            concurrency=count_of("concurrency", concurrency),
            retry=retry_of(retry, called),
            dead_letter=dead_letter_of(dead_letter),
        )
        if self._options.retry.never_ends:
            remedy = "the batch of a failing record would never end; give the policy a stop, or a narrower retry"
            raise ConfigurationError("retry", retry, remedy)
        self._handling: PerProcess[_Handling] = PerProcess()

    def __repr__(self) -> str:
        return f"HandlerSink({self._options.handler.name})"

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Handle all records of a batch.

        Raises:
            HandlerError: a record failed for the last time, and there is no target for dead letters.
            FencedError: the handler raised it.
            OutputError: a record that the handler returned was not written.
            ConfigurationError: the batch format is Arrow or pandas.
        """
        _refuse_format(context.batch_format)
        handling = self._handling.get(lambda: _Handling(self._options, context.cluster_config))
        try:
            handling.handle(batch, context)
        except BaseException:
            self.close()
            raise

    def check_use(self, use: SinkUse) -> str:
        """Check that a job can write dead letters; return a description of the target.

        Raises:
            ConfigurationError: the batch format is Arrow or pandas; the dead-letter topic does not exist, may not be
                written, or is read by the job.
        """
        _refuse_format(use.batch_format)
        topic = self._options.dead_letter
        if not isinstance(topic, str):
            return ""
        if topic in {name for name, _ in use.partitions}:
            remedy = "the job reads this topic, so each dead letter would fail again; use another topic"
            raise ConfigurationError("dead_letter", topic, remedy)
        if use.is_on_driver and use.cluster_config:
            TopicDeadLetters(topic, use.cluster_config).check()
        return f"failed records go to topic {topic}"

    def close(self) -> None:
        """End the workers, and release the producers."""
        handling = self._handling.taken()
        if handling is not None:
            handling.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _HandlerOptions:
    """The checked arguments of a `HandlerSink`."""

    handler: RecordHandler
    order: ProcessingOrder
    concurrency: int
    retry: RetryPolicy
    dead_letter: str | DeadLetterFunction | None


class _Handling:
    """The workers of one process. They live until an error, so that handlers can keep clients by thread or loop."""

    def __init__(self, options: _HandlerOptions, cluster_config: ClientConfig) -> None:
        self._target = _target_of(options.dead_letter, cluster_config)
        self._outputs = OutputProducer({**cluster_config, "message.max.bytes": NO_CLIENT_LIMIT})
        self._batch: SinkContext | None = None
        scheduler = Scheduler(order=options.order, max_queued=sys.maxsize)
        self._work = Work(
            scheduler,
            HandlerLedger(lambda now: gauges_of(scheduler, now)),
            options.retry,
            has_target=self._target is not None,
            max_batch=1,
            fatal=_NOT_OWNED,
        )
        calls = HandlerCalls(
            options.handler,
            options.retry,
            is_batch=False,
            timeout_s=None,
            prepare=None,
            make_context=lambda task, deadline: SinkHandlerContext(task, deadline, self._current),
        )
        self._resources = ExitStack()
        self._resources.callback(self._outputs.close)
        if self._target is not None:
            self._resources.callback(self._target.close)
        self._resources.callback(self._workers(calls, options).stop)

    def _workers(self, calls: HandlerCalls, options: _HandlerOptions) -> ThreadWorkers | CoroutineWorkers:
        work, count = self._work, options.concurrency
        if options.handler.kind is HandlerKind.FUNCTION:
            return ThreadWorkers(work, lambda: FunctionCall(calls), self._write_dead_letter, count)
        loop = self._resources.enter_context(own_event_loop())
        return CoroutineWorkers(work, calls.start, calls.outputs_of, self._write_dead_letter, count, loop)

    def handle(self, batch: list[Message], context: SinkContext) -> None:
        """Return when all records of the batch are finished; raise if one cannot be, when no handler runs any more."""
        self._batch = context
        work = self._work
        leases = [context.lease(one.topic_partition) for one in context.ranges] if context.ownership.has_leases else []
        work.lease = lambda: _end_of(leases)
        partitions = [TopicPartition(*one.topic_partition) for one in context.ranges]
        for partition, one, fence in zip(partitions, context.ranges, context.fences, strict=True):
            work.assign(partition, fence.epoch, UnfinishedOffsets(one.first, None, _NO_METADATA_LIMIT))
        work.admit(batch)
        try:
            while not work.wait_until(self._is_over, _LEASE_CHECK_S):
                context.check_leases()
        except LeaseOverError:
            self._end(partitions)
            raise
        if work.failure is not None:
            self._end(partitions)
            cause = work.failure.__cause__
            raise cause if isinstance(cause, _NOT_OWNED) else work.failure
        outputs = work.scheduler.take_outputs()
        work.release(partitions)
        self._outputs.send(outputs)
        while not self._outputs.flush(_FLUSH_S):
            pass

    def _end(self, partitions: list[TopicPartition]) -> None:
        """Cancel the running handlers, and wait for those that cannot be cancelled."""
        work = self._work
        work.close(partitions)
        with work.lock:
            running = work.scheduler.running_of(partitions)
        work.cancel(running)
        work.wait_until(lambda: work.scheduler.is_drained(partitions))

    def _is_over(self) -> bool:
        work = self._work
        return work.failure is not None or not any(owned.in_hand for owned in work.scheduler.partitions.values())

    @property
    def _current(self) -> SinkContext:
        return cast("SinkContext", self._batch)  # set before a record is admitted

    def _write_dead_letter(self, task: Task) -> Collection[OutputRecord]:
        error, target, context = task.last_error, self._target, self._current
        if target is None or error is None:
            raise InternalError("a dead letter without a target or an error")
        for message in task.messages:
            target.send(message, error, task.attempt, context.group)
        self._work.failures.dead_lettered(task, error)
        return ()

    def close(self) -> None:
        """End the workers, and release the producers."""
        self._resources.close()


def _end_of(leases: Sequence[Lease]) -> Instant | None:
    """Return until when records of the batch may start; None: leases are not enabled."""
    if not leases:
        return None
    left_s = min(lease.remaining for lease in leases)
    return monotonic() + left_s if left_s else -inf


def _target_of(dead_letter: str | DeadLetterFunction | None, cluster_config: ClientConfig) -> DeadLetters | None:
    match dead_letter:
        case None:
            return None
        case str() as topic:
            return TopicDeadLetters(topic, cluster_config)
        case function:
            return FunctionDeadLetters(function)


def _refuse_format(batch_format: BatchFormat) -> None:
    if batch_format is not BatchFormat.MESSAGES:
        remedy = "HandlerSink accepts only messages; use batch_format='messages'"
        raise ConfigurationError("batch_format", batch_format.value, remedy)
