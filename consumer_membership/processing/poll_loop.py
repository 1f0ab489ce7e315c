"""The thread of a processor that polls: it feeds the scheduler, and performs rebalances, commits and the end.

No handler runs on this thread, so a long handler delays neither polls nor rebalances. One turn polls once, then pauses
and resumes partitions, commits if it is time, and looks for handlers beyond their timeout.

A revocation closes the partitions, waits until their handlers have ended or `drain.timeout.ms` is over, cancels what
can be cancelled, commits, and only then returns to the member, which acknowledges. A loss commits nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Literal, Protocol

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.clients.consumer import Consumer
from consumer_membership.health.handlers import HandlersDisowned
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.processing.commits import FinishedCommits
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.scheduler import Task
from consumer_membership.processing.work import Work, timeout_of
from consumer_membership.translation.offset_metadata import decode
from consumer_membership.types import TopicPartition

_log = partial(logging.getLogger, "consumer_membership.processing")

#: The most records of one poll; if a partition can have fewer in hand, that number applies.
POLL_RECORDS = 1000
#: How long a poll waits for records: normally, and while a paused partition may have space soon.
POLL_S, PAUSED_POLL_S = 0.2, 0.005
#: How long the loop waits for space in a full partition before it pauses it. A pause makes librdkafka fetch again.
SPACE_S = 0.05
#: How long a cancelled handler may take to end.
CANCEL_S = 2.0
#: The timeout for the committed offsets of new partitions.
COMMITTED_S = 30.0
#: How long the end waits for handlers between two polls, which perform rebalances.
DRAIN_POLL_S = 0.05
#: The interval at which the loop looks for handlers beyond their timeout.
CHECK_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The settings of a poll loop; durations in seconds, None: no limit."""

    topics: list[str]
    max_queued: int
    handler_timeout_s: float | None
    drain_timeout_s: float
    grace_period_s: float
    membership: Literal["default", "leave", "remain"]
    on_warm: Callable[[list[PartitionOffset]], object] | None


class HandlerWorkers(Protocol):
    """What runs the handlers."""

    def replace(self, disowned: Collection[Task]) -> None:
        """Allow another worker for each that runs a disowned task; it ends after that task."""

    def stop(self) -> None:
        """End all workers; does not wait."""


class PollLoop:
    """The poll loop of one processor. `stop` and `stop_now` may be called in any thread and in signal handlers.

    Args:
        consumer: The consumer, which is closed at the end.
        work: The scheduler under its lock.
        workers: What runs the handlers; stopped at the end.
        commits: Commits finished records.
        settings: The settings.
        metadata_limit: Returns the broker's limit of commit metadata in bytes.
        on_handlers: Receives the handlers whose results no longer count.
    """

    def __init__(
        self,
        consumer: Consumer,
        work: Work,
        workers: HandlerWorkers,
        commits: FinishedCommits,
        settings: LoopSettings,
        *,
        metadata_limit: Callable[[], int],
        on_handlers: Callable[[HandlersDisowned], None],
    ) -> None:
        self._consumer = consumer
        self._work = work
        self._workers = workers
        self._commits = commits
        self._settings = settings
        self._metadata_limit = metadata_limit
        self._on_handlers = on_handlers
        #: Not an `Event`: a signal that arrives while another one's handler sets an event waits for the event's lock.
        self._is_stopping = False
        #: How long a revocation waits for handlers: not at all after the end has waited for them.
        self._drain_s = settings.drain_timeout_s
        #: Set by a second signal: nothing is waited for.
        self._is_hurried = False
        self._paused: set[TopicPartition] = set()
        self._checks_at = work.now()
        self._finished = 0

    # ---- any thread ----

    def stop(self) -> None:
        """Accept no more records, finish those whose handlers run, commit, and leave the group."""
        self._is_stopping = True

    def stop_now(self) -> None:
        """End without waiting for handlers."""
        self._is_hurried = True
        self._is_stopping = True

    # ---- its thread ----

    def run(self) -> None:
        """Run until `stop`, or until a record cannot be processed.

        Raises:
            HandlerError: a record failed for the last time and there is no target for dead letters, or a handler that
                cannot be ended exceeded its timeout.
            MembershipError: outputs cannot be written, or a transaction cannot be finished.
            KafkaException: the membership ended, the consumer failed, or auto.offset.reset is error and a partition has
                no valid committed offset.
        """
        settings = self._settings
        consumer = self._consumer
        try:
            consumer.subscribe(
                settings.topics,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
                on_warm=self._on_warm,
            )
            while not self._is_stopping and self._work.failure is None:
                self._turn()
            self._drain()
        finally:
            self._end()
        if self._work.failure is not None:
            raise self._work.failure

    def _turn(self) -> None:
        work = self._work
        records = self._poll()
        if records and (orphans := work.admit(records)):
            self._workers.replace(orphans)
        if work.is_suspended:
            work.resume()
        if work.scheduler.has_space:
            self._resume()
        if work.scheduler.has_full:
            self._pause()
        now = work.now()
        self._commits.tick(now)
        if now >= self._checks_at:
            self._checks_at = now + CHECK_S
            self._end_overdue()

    def _poll(self) -> list[Message]:
        is_moving = self._finished != self._work.ledger.finished
        self._finished = self._work.ledger.finished
        poll_s = PAUSED_POLL_S if self._paused and is_moving else min(POLL_S, self._commits.tick_s)
        found = self._consumer.consume(min(POLL_RECORDS, self._settings.max_queued), poll_s)
        if not [message for message in found if message.error() is not None]:
            return found
        return [message for message in found if self._is_record(message)]

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        # With auto.offset.reset=error, the records of a partition without a valid offset would never be read.
        if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise KafkaException(error)
        if error.code() != KafkaError._PARTITION_EOF:
            _log().warning("Consumer error: %s", error.str())
        return False

    # ---- full partitions ----

    def _pause(self) -> None:
        """Pause full partitions, while others continue; if the handlers have enough records, wait for space first."""
        work, scheduler = self._work, self._work.scheduler
        if scheduler.has_reserve:
            work.wait_until(
                lambda: not scheduler.has_full or not scheduler.has_turns or work.failure is not None, SPACE_S
            )
        with work.lock:
            full = work.scheduler.pause_full()
        if full:
            self._consumer.pause([PartitionOffset(*partition) for partition in full])
            self._paused.update(full)

    def _resume(self) -> None:
        with self._work.lock:
            spacious = self._work.scheduler.resume_spacious()
        self._consumer.resume([PartitionOffset(*partition) for partition in spacious])
        self._paused.difference_update(spacious)

    # ---- handlers beyond their timeout ----

    def _end_overdue(self) -> None:
        """Cancel the handlers beyond their timeout; one that cannot be ended makes the processor stop."""
        timeout_s = self._settings.handler_timeout_s
        if timeout_s is None:
            return
        work = self._work
        now = work.now()
        with work.lock:
            overdue = work.scheduler.overdue(now, timeout_s)
        for task in work.cancel([task for task in overdue if not task.is_cancelled]):
            work.fail(timeout_of(task, timeout_s))
        for task in overdue:
            if task.is_cancelled and now - task.began_at > timeout_s + max(CANCEL_S, timeout_s):
                work.fail(timeout_of(task, timeout_s))

    # ---- rebalances ----

    def _on_warm(self, _: Consumer, partitions: list[PartitionOffset]) -> None:
        if self._settings.on_warm is not None:
            self._settings.on_warm(partitions)

    def _on_assign(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        """Accept the records of new partitions, except those that an earlier owner has finished."""
        self._commits.prepare()
        for partition, committed in self._committed(consumer, partitions).items():
            start = None if committed is None or committed.offset < 0 else committed.offset
            finished = None if start is None or committed is None else decode(committed.metadata, start)
            leader_epoch = None if start is None or committed is None else committed.leader_epoch
            epoch = consumer.owned_since(PartitionOffset(*partition))
            self._work.assign(
                partition,
                consumer.generation() if epoch is None else epoch,
                UnfinishedOffsets(start, finished, self._metadata_limit(), leader_epoch=leader_epoch),
            )

    def _committed(
        self, consumer: Consumer, partitions: list[PartitionOffset]
    ) -> Mapping[TopicPartition, PartitionOffset | None]:
        """Return the committed offsets; none without a response, so that records may be repeated but are never lost.

        Raises:
            KafkaException: the coordinator did not respond, and records must not be repeated (`must_not_repeat`).
        """
        found: dict[TopicPartition, PartitionOffset | None] = {
            TopicPartition(one.topic, one.partition): None for one in partitions
        }
        try:
            answer = consumer.committed(partitions, COMMITTED_S)
        except KafkaException as failed:
            if self._commits.must_not_repeat:
                raise
            _log().warning(
                "The metadata of committed offsets could not be read (%s); records that an earlier owner finished "
                "beyond the committed offset may be processed again",
                failed.args[0].str(),
            )
            return found
        for one in answer:
            if one.error is not None and self._commits.must_not_repeat:
                raise KafkaException(one.error)
            if one.error is None:
                found[TopicPartition(one.topic, one.partition)] = one
        return found

    def _on_revoke(self, _: Consumer, partitions: list[PartitionOffset]) -> None:
        self._give_up([TopicPartition(one.topic, one.partition) for one in partitions], self._drain_s)

    def _on_lost(self, _: Consumer, partitions: list[PartitionOffset]) -> None:
        lost = [TopicPartition(one.topic, one.partition) for one in partitions]
        self._forget(lost, is_loss=True)

    def _give_up(self, partitions: list[TopicPartition], timeout_s: float) -> None:
        """End the work on these partitions, commit what is finished, and forget them."""
        self._wait_for_handlers(partitions, timeout_s)
        # Before the commit: a handler that ends after it must not count as finished.
        self._report(self._work.disown(partitions), is_loss=False)
        self._commits.commit(partitions)
        self._forget(partitions, is_loss=False)

    def _forget(self, partitions: list[TopicPartition], *, is_loss: bool) -> None:
        self._report(self._work.release(partitions), is_loss=is_loss)
        self._paused.difference_update(partitions)

    def _report(self, disowned: list[Task], *, is_loss: bool) -> None:
        """Replace the workers of disowned tasks, and log their records."""
        if not disowned:
            return
        self._workers.replace(disowned)
        offsets: dict[TopicPartition, tuple[int, ...]] = {}
        for task in disowned:
            place = task.owned.partition
            offsets[place] = (*offsets.get(place, ()), *(offset for _, offset, _ in task.records))
        _log().warning(
            "Handlers still run for %s, which were %s; their results are ignored, and the next owner processes these "
            "records again",
            ", ".join(f"{topic}-{number} {list(at)}" for (topic, number), at in sorted(offsets.items())),
            "lost" if is_loss else "revoked",
        )
        self._on_handlers(HandlersDisowned(offsets=offsets, is_loss=is_loss))

    def _wait_for_handlers(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Start no more records of these partitions, wait for their handlers, and cancel the last ones."""
        work, closing = self._work, list(partitions)
        work.close(closing)
        deadline = work.now() + timeout_s
        while not work.scheduler.is_drained(closing) and not self._is_hurried:
            left = deadline - work.now()
            if left <= 0:
                break
            work.wait_until(lambda: work.scheduler.is_drained(closing) or self._is_hurried, min(left, CHECK_S))
            if work.is_suspended:
                work.resume()
            self._end_overdue()
        with work.lock:
            running = work.scheduler.running_of(closing)
        left_running = work.cancel(running)
        if len(left_running) < len(running):
            limit_s = 0.0 if self._is_hurried else CANCEL_S
            work.wait_until(lambda: len(work.scheduler.running_of(closing)) <= len(left_running), limit_s)

    # ---- the end ----

    def _drain(self) -> None:
        """Finish running handlers, at most for the grace period, while rebalances continue; then commit everything."""
        work, consumer = self._work, self._consumer
        deadline = work.now() + (0.0 if self._is_hurried else self._settings.grace_period_s)
        work.close(self._partitions)
        while not self._has_drained() and work.now() < deadline:
            consumer.pause(consumer.assignment())
            consumer.consume(1, 0)
            work.close(self._partitions)
            work.wait_until(self._has_drained, DRAIN_POLL_S)
            self._end_overdue()
        self._drain_s = 0.0
        self._wait_for_handlers(self._partitions, self._drain_s)
        self._commits.commit(self._partitions)

    @property
    def _partitions(self) -> list[TopicPartition]:
        return [owned.partition for owned in self._work.scheduler.partitions.values()]

    def _has_drained(self) -> bool:
        return self._is_hurried or self._work.scheduler.is_drained(self._partitions)

    def _end(self) -> None:
        """Release everything, whatever happened before."""
        work = self._work
        with work.lock:
            work.is_over = True
        try:
            self._consumer.close(membership=self._settings.membership)
        finally:
            self._forget(self._partitions, is_loss=False)
            self._workers.stop()
            self._commits.close()
