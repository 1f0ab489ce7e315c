"""What health, metrics and `progress` read of a processor, in any thread.

It refers to the work only, never to the consumer: the member's thread keeps it, and would keep the consumer alive.
"""

from __future__ import annotations

from collections.abc import Iterator

from consumer_membership.health.handlers import HandlerHealth, RunningHandler, UnfinishedRecord
from consumer_membership.metrics.handler_ledger import HandlerGauges
from consumer_membership.processing.progress import HandlingProgress, ProcessorProgress
from consumer_membership.processing.scheduler import OwnedPartition, Runner, Scheduler, Task
from consumer_membership.processing.work import Work
from consumer_membership.text import error_text
from consumer_membership.types import Instant


class HandlerObservation:
    """Reads the work of one processor. `timeout_s`: the limit of one handler call; None: no limit."""

    def __init__(self, work: Work, timeout_s: float | None) -> None:
        self._work = work
        self._timeout_s = timeout_s

    def health(self, now: Instant) -> HandlerHealth:
        """Return the handlers beyond their timeout, the failure, and the oldest unfinished records."""
        work = self._work
        with work.lock:
            scheduler = work.scheduler
            overdue = [(task, task.runner) for task in self._overdue(now)]
            tasks = _Tasks(scheduler)
            oldest = {
                owned.partition: record
                for owned in scheduler.partitions.values()
                if (record := _oldest(tasks, owned)) is not None
            }
            failure = work.failure
        return HandlerHealth(
            stuck=tuple(self._stuck(overdue)),
            failure=None if failure is None else str(failure),
            failed_at=work.failed_at,
            oldest=oldest,
        )

    def _stuck(self, overdue: list[tuple[Task, Runner | None]]) -> Iterator[RunningHandler]:
        """Yield these handlers with their stacks, which are read without the lock, unless they end meanwhile."""
        work = self._work
        for task, runner in overdue:
            stack = "" if runner is None else runner.stack()
            with work.lock:
                is_running = task in work.scheduler.running or task in work.disowned
                found = self._running(task, stack) if is_running and task.runner is runner else None
            if found is not None:
                yield found

    def progress(self) -> ProcessorProgress:
        """Return the progress of all partitions."""
        work = self._work
        now = work.now()
        counts = work.ledger.counts(now)
        with work.lock:
            scheduler = work.scheduler
            tasks = _Tasks(scheduler)
            partitions = {owned.partition: _progress(tasks, owned) for owned in scheduler.partitions.values()}
            running = tuple(self._running(task) for task in scheduler.running)
        return ProcessorProgress(at=now, partitions=partitions, running=running, counts=counts)

    def _overdue(self, now: Instant) -> list[Task]:
        """Return the handlers beyond their timeout, also of partitions that were given up: their threads still run."""
        timeout_s = self._timeout_s
        if timeout_s is None:
            return []
        disowned = [task for task in self._work.disowned if now - task.began_at >= timeout_s]
        return sorted([*self._work.scheduler.overdue(now, timeout_s), *disowned], key=lambda task: task.began_at)

    def _running(self, task: Task, stack: str = "") -> RunningHandler:
        message, offset, _ = task.records[0]
        key: str | bytes | None = message.key()
        runner = task.runner
        return RunningHandler(
            partition=task.owned.partition,
            offset=offset,
            key=key.encode() if isinstance(key, str) else key,
            attempt=task.attempt,
            began_at=task.began_at,
            deadline=None if self._timeout_s is None else task.began_at + self._timeout_s,
            stack=stack,
            can_be_cancelled=runner is not None and runner.can_cancel,
            is_disowned=task.is_disowned,
        )


def gauges_of(scheduler: Scheduler, now: Instant) -> HandlerGauges:
    """Return the current numbers; the caller holds the lock."""
    every = scheduler.partitions.values()
    in_flight = sum(len(task.records) for task in scheduler.running)
    first = next(iter(scheduler.running), None)
    return HandlerGauges(
        lanes=sum(len(owned.lanes) for owned in every),
        busy=sum(len(task.lanes) for task in scheduler.running),
        queued=sum(owned.in_hand for owned in every) - in_flight,
        in_flight=in_flight,
        oldest_in_flight_s=None if first is None else now - first.began_at,
    )


class _Tasks:
    """The tasks of each partition at one moment: those that run, and those that wait for their next attempt."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._running: dict[OwnedPartition, list[Task]] = {}
        self._waiting: dict[OwnedPartition, list[Task]] = {}
        for found, tasks in ((self._running, scheduler.running), (self._waiting, scheduler.waiting)):
            for task in tasks:
                found.setdefault(task.owned, []).append(task)

    def running(self, owned: OwnedPartition) -> list[Task]:
        return self._running.get(owned, [])

    def waiting(self, owned: OwnedPartition) -> list[Task]:
        return self._waiting.get(owned, [])

    def of(self, owned: OwnedPartition) -> list[Task]:
        return [*self.running(owned), *self.waiting(owned)]


def _oldest(tasks: _Tasks, owned: OwnedPartition) -> UnfinishedRecord | None:
    """Return the record that holds back the committed offset; None: nothing is in hand."""
    base = owned.offsets.base
    if base is None or not owned.in_hand:
        return None
    for task in tasks.of(owned):
        for _, offset, since in task.records:
            if offset == base:
                return UnfinishedRecord(
                    offset=base, since=since, attempt=task.attempt, last_error=_text_of(task.last_error)
                )
    # Lanes are in the order in which they were made, so that of the oldest record is among the first.
    for lane in owned.lanes.values():
        if lane.queue and lane.queue[0][1] == base:
            return UnfinishedRecord(offset=base, since=lane.queue[0][2])
    return None


def _progress(tasks: _Tasks, owned: OwnedPartition) -> HandlingProgress:
    in_flight = sum(len(task.records) for task in tasks.running(owned))
    retrying = sum(len(task.records) for task in tasks.waiting(owned))
    failed = [task for task in tasks.of(owned) if task.last_error is not None]
    latest = max(failed, key=lambda task: task.began_at, default=None)
    return HandlingProgress(
        committed=owned.committed,
        oldest_unfinished=_oldest(tasks, owned),
        finished_beyond=owned.offsets.finished_beyond,
        queued=owned.in_hand - in_flight - retrying,
        running=in_flight,
        retrying=retrying,
        last_error="" if latest is None else _text_of(latest.last_error),
        epoch=owned.epoch,
    )


def _text_of(error: BaseException | None) -> str:
    return "" if error is None else error_text(error)
