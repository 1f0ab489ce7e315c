"""Builds a processor's parts from its settings: consumer, scheduler, workers, commits, poll loop.

`Processor` and `AsyncProcessor` are thin classes around an engine. They differ in the event loop on which coroutines
run: a loop that the engine starts on another thread, or the caller's loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Collection
from concurrent.futures import Future
from functools import partial

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.clients.consumer import Consumer, observer_of, session_of
from consumer_membership.clients.lease import lease_of, why_no_token
from consumer_membership.errors import InternalError, UseError
from consumer_membership.health.handlers import RecordDeadLettered
from consumer_membership.metrics.handler_ledger import HandlerGauges, HandlerLedger
from consumer_membership.processing.calls import FunctionCall, HandlerCalls, ProcessCall
from consumer_membership.processing.commits import FinishedCommits, MetadataLimit, OffsetCommits
from consumer_membership.processing.context import HandlerContext
from consumer_membership.processing.coroutines import CoroutineWorkers, own_event_loop
from consumer_membership.processing.dead_letters import (
    NO_CLIENT_LIMIT,
    DeadLetters,
    FunctionDeadLetters,
    TopicDeadLetters,
)
from consumer_membership.processing.deserialization import Deserialized
from consumer_membership.processing.handlers import HandlerKind
from consumer_membership.processing.observation import HandlerObservation, gauges_of
from consumer_membership.processing.outputs import OutputProducer, OutputRecord
from consumer_membership.processing.poll_loop import HandlerWorkers, LoopSettings, PollLoop
from consumer_membership.processing.progress import live_line
from consumer_membership.processing.scheduler import Scheduler, Task
from consumer_membership.processing.settings import ProcessorSettings
from consumer_membership.processing.shared_lease import SharedLease
from consumer_membership.processing.threads import ThreadWorkers, WorkerCall
from consumer_membership.processing.transactional_commits import TransactionalCommits
from consumer_membership.processing.transactions import Transactions, default_transactional_id
from consumer_membership.processing.work import WORK_OF_HANDLER, Work
from consumer_membership.runtime.application.session import Session
from consumer_membership.types import Instant


class Engine:
    """One processor. It opens nothing before `run`, except to check the target for dead letters.

    Raises:
        ConfigurationError: the consumer's configuration or the target for dead letters cannot be used.
    """

    def __init__(self, settings: ProcessorSettings) -> None:
        self._settings = settings
        self._dead_letters = _dead_letters_of(settings)
        self._on_commit = settings.consumer_config.get("on_commit")
        self.consumer = Consumer({**settings.consumer_config, "on_commit": self._committed})
        session = session_of(self.consumer)
        #: The time of the cluster.
        self.clock = session.line.time
        if settings.processes and self.clock.is_virtual:
            self.consumer.close()
            raise UseError(
                "processes=True: worker processes have no virtual time; remove processes=True in the test, or use "
                'FakeCluster(time="real")'
            )
        scheduler = Scheduler(
            order=settings.order,
            max_queued=settings.max_queued,
            max_batch=settings.max_batch,
            max_wait_s=settings.max_wait_s,
        )
        self._work = Work(
            scheduler,
            HandlerLedger(self._gauges),
            settings.retry,
            has_target=settings.dead_letter is not None,
            max_batch=settings.max_batch,
            clock=self.clock,
        )
        self._observation = HandlerObservation(self._work, settings.handler_timeout_s)
        self.progress = self._observation.progress
        self._work.lease = session.line.lease_until
        self._observer = observer_of(self.consumer)
        self._observer.watch_handlers(self._observation.health, self._work.ledger)
        self._limit = MetadataLimit(self._work, settings.metadata_limit)
        self._commits = self._made_commits()
        self._calls = HandlerCalls(
            settings.handler,
            settings.retry,
            is_batch=settings.max_batch > 1,
            timeout_s=settings.handler_timeout_s,
            prepare=_deserializer_of(settings),
            max_output_bytes=settings.max_output_bytes,
            make_context=lambda task, deadline: HandlerContext(task, deadline, partial(lease_of, session)),
            lease=_shared_lease(session) if settings.processes else None,
            now=self.clock.now,
        )
        self._starting = threading.Lock()
        self._process = os.getpid()
        self.has_begun = False
        #: Completed when `run` has ended.
        self.ended: Future[None] = Future()
        self.ended.set_running_or_notify_cancel()  # so that nothing cancels it
        #: The thread of `run`.
        self._thread: int | None = None
        self._is_stopping = False
        self._loop: PollLoop | None = None

    # ---- any thread, signal handlers included ----

    def stop(self) -> None:
        """Make `run` return after the running handlers."""
        self._is_stopping = True
        if self._loop is not None:
            self._loop.stop()

    def stop_now(self) -> None:
        """Make `run` return without waiting for handlers."""
        self._is_stopping = True
        if self._loop is not None:
            self._loop.stop_now()

    @property
    def is_called_by_handler(self) -> bool:
        """Whether the caller is a handler of this processor: `run` waits for it, so it must not wait for `run`."""
        return WORK_OF_HANDLER.get() is self._work

    def begin(self) -> None:
        """Claim the only run.

        Raises:
            UseError: it was claimed before.
        """
        with self._starting:
            if self.has_begun:
                raise UseError("a processor runs once; create another one to continue")
            self.has_begun = True

    # ---- the thread that runs ----

    def run(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Run until `stop`, or until a record cannot be processed. Coroutines run on `loop`, or on an own loop.

        `begin` has to be called before.

        Raises:
            HandlerError: the processor stopped at a record.
        """
        self._thread = threading.get_ident()
        try:
            self._run_workers(loop)
        finally:
            self.ended.set_result(None)

    def _run_workers(self, loop: asyncio.AbstractEventLoop | None) -> None:
        settings = self._settings
        with live_line(self.progress, sys.stderr, is_wanted=settings.live):
            if settings.handler.kind is HandlerKind.FUNCTION:
                self._run(ThreadWorkers(self._work, self._make_call, self._write_dead_letter, settings.concurrency))
            elif loop is not None:
                self._run(self._coroutine_workers(loop))
            else:
                with own_event_loop(self.clock) as own_loop:
                    self._run(self._coroutine_workers(own_loop))

    def _run(self, workers: HandlerWorkers) -> None:
        settings = self._settings
        self._loop = PollLoop(
            self.consumer,
            self._work,
            workers,
            self._commits,
            LoopSettings(
                topics=list(settings.topics),
                max_queued=settings.max_queued,
                handler_timeout_s=settings.handler_timeout_s,
                drain_timeout_s=settings.drain_timeout_s,
                grace_period_s=settings.grace_period_s,
                membership=settings.membership,
                on_warm=settings.on_warm,
            ),
            metadata_limit=lambda: self._limit.value,
            on_handlers=self._observer.on_handlers,
        )
        if self._is_stopping:  # before it could reach the loop
            self._loop.stop()
        try:
            self._loop.run()
        finally:
            self._close_dead_letters()

    def _coroutine_workers(self, loop: asyncio.AbstractEventLoop) -> CoroutineWorkers:
        return CoroutineWorkers(
            self._work,
            self._calls.start,
            self._calls.outputs_of,
            self._write_dead_letter,
            self._settings.concurrency,
            loop,
        )

    def _make_call(self) -> WorkerCall:
        return ProcessCall(self._calls) if self._settings.processes else FunctionCall(self._calls)

    def _made_commits(self) -> FinishedCommits:
        settings = self._settings
        # Outputs were checked where they were returned; a dead letter is larger than its record.
        producer_config = {**settings.cluster_config, "message.max.bytes": NO_CLIENT_LIMIT}
        if not settings.transactional:
            outputs = OutputProducer(producer_config)
            return OffsetCommits(self.consumer, self._work, settings.commit_interval_s, self._limit, outputs)
        instance_id = self.consumer.membership().instance_id
        name = settings.transactional_id or default_transactional_id(settings.group_id, instance_id)
        transactions = Transactions(producer_config, name, self.consumer.committed)
        return TransactionalCommits(self.consumer, self._work, transactions, self._limit)

    def _write_dead_letter(self, task: Task) -> Collection[OutputRecord]:
        """Write a record to the target for dead letters; with transactions, return it as an output."""
        error, target, group_id = task.last_error, self._dead_letters, self._settings.group_id
        if target is None or error is None:
            raise InternalError("a dead letter without a target or an error")
        outputs: list[OutputRecord] = []
        for message in task.messages:
            if self._settings.transactional and isinstance(target, TopicDeadLetters):
                outputs.append(target.to_output(message, error, task.attempt, group_id))
            else:
                target.send(message, error, task.attempt, group_id)
        self._work.failures.dead_lettered(task, error)
        self._observer.on_handlers(
            RecordDeadLettered(
                partition=task.owned.partition,
                offset=task.first_offset,
                attempts=task.attempt,
                error=type(error).__name__,
            )
        )
        return outputs

    def _committed(self, error: KafkaError | None, partitions: list[PartitionOffset]) -> None:
        """Receive the result of a commit, and pass it to the program's `on_commit`."""
        self._commits.on_commit(error, partitions)
        if callable(self._on_commit):
            self._on_commit(error, partitions)

    def _gauges(self, _: Instant) -> HandlerGauges:
        """Return the current numbers, on the time of the cluster, which may differ from that of the metrics."""
        with self._work.lock:
            return gauges_of(self._work.scheduler, self.clock.now())

    def close(self) -> None:
        """Stop, wait for the end of `run`, and release what it has not released. Idempotent.

        A handler, and the thread of `run`, only stop the processor, because `run` releases everything.
        """
        self.stop()
        if self.has_begun and not self.ended.done() and os.getpid() == self._process:
            if self.is_called_by_handler or threading.get_ident() == self._thread:
                return
            self.clock.wait_for_end(self.ended)
        self.consumer.close()
        self._commits.close()
        self._close_dead_letters()

    def _close_dead_letters(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.close()


def _dead_letters_of(settings: ProcessorSettings) -> DeadLetters | None:
    match settings.dead_letter:
        case None:
            return None
        case str() as topic:
            target: DeadLetters = TopicDeadLetters(topic, settings.cluster_config)
        case function:
            target = FunctionDeadLetters(function)
    target.check()
    return target


def _deserializer_of(settings: ProcessorSettings) -> Deserialized | None:
    if settings.key_deserializer is None and settings.value_deserializer is None:
        return None
    return Deserialized(settings.key_deserializer, settings.value_deserializer)


def _shared_lease(session: Session) -> SharedLease | None:
    """Return the memory that follows the consumer's lease; None: leases are not enabled."""
    if not session.has_leases:
        return None
    lease = SharedLease(session.steps.epochs.get, partial(why_no_token, session))
    session.line.follow_lease(lease.follow)
    return lease
